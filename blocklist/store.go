package blocklist

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Store is one namespace's blocks in Redis or Redis Cluster. Its methods may be called by several goroutines.
type Store struct {
	client  redis.UniversalClient
	keys    Keys
	scripts scripts
	marks   *marks
	address string
	crowds  Crowds
	// flagless is set once a server has refused the first line of a script, its flags: one that is older than Redis 7, or the
	// one inside a process. From then on scripts go without: when such a server is full, it refuses releases, too.
	flagless atomic.Bool
}

// NewStore uses client for the blocks of namespace. Closing the Store closes client.
func NewStore(client redis.UniversalClient, namespace string) (*Store, error) {
	keys, err := NewKeys(namespace)
	if err != nil {
		return nil, err
	}
	return newStore(client, keys), nil
}

func newStore(client redis.UniversalClient, keys Keys) *Store {
	return &Store{client: client, keys: keys, scripts: newScripts(), marks: newMarks(), address: "redis"}
}

// call is one script call of a pipeline.
type call struct {
	script script
	keys   []string
	args   []any
}

// pipelineSize bounds one pipeline: 1,000 calls of about 1 KiB are a megabyte in flight.
const pipelineSize = 1000

// run sends calls in pipelines, which the cluster client splits by node, and hands each answer to done. Calls in one
// pipeline may reach their nodes in any order. The first call that fails is the error; all are idempotent, so the caller
// simply runs them again.
func (s *Store) run(ctx context.Context, calls []call, done func(i int, answer any) error) error {
	for start := 0; start < len(calls); start += pipelineSize {
		part := calls[start:min(start+pipelineSize, len(calls))]
		cmds, err := s.send(ctx, part)
		if missing := indexesOf(cmds, "NOSCRIPT"); len(missing) > 0 {
			cmds, err = s.sendAgain(ctx, part, cmds, missing)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.address, err)
		}
		for i, cmd := range cmds {
			if err := done(start+i, cmd.Val()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) send(ctx context.Context, calls []call) ([]*redis.Cmd, error) {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	flagless := s.flagless.Load()
	for i, c := range calls {
		cmds[i] = c.script.form(flagless).EvalSha(ctx, pipe, c.keys, c.args...)
	}
	_, err := pipe.Exec(ctx)
	if err == nil {
		err = firstError(cmds)
	}
	return cmds, err
}

// firstError is the first error among cmds: a call without an answer must not pass for one with.
func firstError(cmds []*redis.Cmd) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
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
func (s *Store) sendAgain(ctx context.Context, calls []call, cmds []*redis.Cmd, missing []int) ([]*redis.Cmd, error) {
	pipe := s.client.Pipeline()
	flagless := s.flagless.Load()
	for _, at := range missing {
		c := &calls[at]
		cmds[at] = c.script.form(flagless).Eval(ctx, pipe, c.keys, c.args...)
	}
	_, err := pipe.Exec(ctx)
	if refused := indexesOf(cmds, "Error compiling script"); len(refused) > 0 && !flagless {
		s.flagless.Store(true)
		return s.sendAgain(ctx, calls, cmds, refused)
	}
	if err == nil {
		err = firstError(cmds)
	}
	return cmds, err
}

// eachMaster calls visit for the server, or at the same time for every master of the cluster.
func (s *Store) eachMaster(ctx context.Context, visit func(ctx context.Context, node *redis.Client) error) error {
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, visit)
	case *redis.Client:
		return visit(ctx, client)
	default:
		return fmt.Errorf("redis client of type %T; allowed: *redis.Client or *redis.ClusterClient", client)
	}
}

// badAnswer is an answer that no script of ours gives.
func badAnswer(script string, answer any) error {
	return fmt.Errorf("script %s: answer %v of type %T", script, answer, answer)
}
