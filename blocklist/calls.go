package blocklist

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/rules"
)

// script is a Lua script in two forms: with the line of its flags, and without. A Script of the client holds no connection.
type script struct{ flagged, plain *redis.Script }

func newScript(text string) script {
	return script{flagged: redis.NewScript(text), plain: redis.NewScript(strings.TrimPrefix(text, luaAlways))}
}

func (x script) form(flagless bool) *redis.Script {
	if flagless {
		return x.plain
	}
	return x.flagged
}

// scripts are all scripts of a Store.
type scripts struct{ raise, release, delta, modes, never, shapes, admit, leave script }

func newScripts() scripts {
	return scripts{
		raise:   newScript(luaRaise),
		release: newScript(luaRelease),
		delta:   newScript(luaDelta),
		modes:   newScript(strings.ReplaceAll(luaModes, "MOST_GIVEN", strconv.Itoa(rules.MostGiven))),
		never:   newScript(luaNever),
		shapes:  newScript(luaShapes),
		admit:   newScript(luaAdmit),
		leave:   newScript(luaLeave),
	}
}

// call is one script call of a pipeline.
type call struct {
	script script
	keys   []string
	args   []any
}

// pipelineSize bounds one pipeline: 1,000 calls of about 1 KiB are a megabyte in flight.
const pipelineSize = 1000

// run sends calls in pipelines, one for each master, and hands each answer to done. Calls may reach their masters in any order.
// The first call that fails is the error; all are idempotent, so the caller simply runs them again. A master of a cluster that
// does not answer is no failure unless it is the one without which gates are told nothing: done does not hear of its calls.
func (s *servers) run(ctx context.Context, calls []call, done func(i int, answer any) error) error {
	for start := 0; start < len(calls); start += pipelineSize {
		part := calls[start:min(start+pipelineSize, len(calls))]
		answers, errs, err := s.runPart(ctx, part)
		if err != nil {
			return fmt.Errorf("%s: %w", s.address, err)
		}
		for i, err := range errs {
			switch {
			case IsUnreached(err):
				continue
			case err != nil:
				return fmt.Errorf("%s: %w", s.address, err)
			}
			if err := done(start+i, answers[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// runPart gives the answer or the error of each call.
func (s *servers) runPart(ctx context.Context, part []call) ([]any, []error, error) {
	home, err := s.home(ctx)
	if err != nil {
		return nil, nil, err
	}
	keys := make([]string, len(part))
	for i := range part {
		keys[i] = part[i].keys[0] // the others lie in its slot
	}
	answers := make([]any, len(part))
	errs, err := s.spread(ctx, keys, home, reachTimeout, func(ctx context.Context, at []int) []error {
		calls := make([]call, len(at))
		for j, i := range at {
			calls[j] = part[i]
		}
		cmds := s.send(ctx, calls)
		errs := make([]error, len(at))
		for j, i := range at {
			answers[i], errs[j] = cmds[j].Result()
		}
		return errs
	})
	return answers, errs, err
}

// send makes calls, and makes those again that miss their script.
func (s *servers) send(ctx context.Context, calls []call) []*redis.Cmd {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	flagless := s.flagless.Load()
	for i, c := range calls {
		cmds[i] = c.script.form(flagless).EvalSha(ctx, pipe, c.keys, c.args...)
	}
	execute(ctx, pipe, cmds)
	if missing := indexesOf(cmds, "NOSCRIPT"); len(missing) > 0 {
		s.sendAgain(ctx, calls, cmds, missing)
	}
	return cmds
}

// execute sends what was put into pipe. A call without an answer must not pass for one with: it gets the pipeline's error.
func execute(ctx context.Context, pipe redis.Pipeliner, cmds []*redis.Cmd) {
	_, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if cmd.Err() == nil && cmd.Val() == nil {
			cmd.SetErr(errors.Join(errors.New("no answer"), err))
		}
	}
}

// indexesOf lists the calls that were answered with an error of this prefix.
func indexesOf(cmds []*redis.Cmd, prefix string) []int {
	var at []int
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), prefix) {
			at = append(at, i)
		}
	}
	return at
}

// sendAgain repeats the calls that missed their script, with the script's text, and only those: the others have had their
// effect, and would answer that nothing is to be done. The node keeps the text, so the next call finds it. No node is
// asked but those of the calls: one that is away must not keep a script from the others.
func (s *servers) sendAgain(ctx context.Context, calls []call, cmds []*redis.Cmd, missing []int) {
	pipe := s.client.Pipeline()
	flagless := s.flagless.Load()
	for _, at := range missing {
		c := &calls[at]
		cmds[at] = c.script.form(flagless).Eval(ctx, pipe, c.keys, c.args...)
	}
	execute(ctx, pipe, cmds)
	if refused := indexesOf(cmds, "Error compiling script"); len(refused) > 0 && !flagless {
		s.flagless.Store(true)
		s.sendAgain(ctx, calls, cmds, refused)
	}
}

// getEach reads keys of any masters. Each has its own error: redis.Nil where nothing is there.
func (s *servers) getEach(ctx context.Context, keys []string) ([]string, []error, error) {
	home, err := s.home(ctx)
	if err != nil {
		return nil, nil, err
	}
	texts := make([]string, len(keys))
	errs, err := s.spread(ctx, keys, home, reachTimeout, func(ctx context.Context, at []int) []error {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.StringCmd, len(at))
		for j, i := range at {
			cmds[j] = pipe.Get(ctx, keys[i])
		}
		_, _ = pipe.Exec(ctx) // each answer has its own error
		errs := make([]error, len(at))
		for j, i := range at {
			texts[i], errs[j] = cmds[j].Result()
		}
		return errs
	})
	return texts, errs, err
}

// badAnswer is an answer that no script of ours gives.
func badAnswer(script string, answer any) error {
	return fmt.Errorf("script %s: answer %v of type %T", script, answer, answer)
}
