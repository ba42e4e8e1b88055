package blocklist

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Store is one namespace's blocks in Redis or Redis Cluster. Its methods may be called by several goroutines.
type Store struct {
	client  redis.UniversalClient
	keys    Keys
	scripts scripts
	marks   *marks
	address string
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
	script *redis.Script
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
		if missing := missingScript(cmds); len(missing) > 0 {
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
	for i, c := range calls {
		cmds[i] = c.script.EvalSha(ctx, pipe, c.keys, c.args...)
	}
	_, err := pipe.Exec(ctx)
	for i := 0; i < len(cmds) && err == nil; i++ {
		err = cmds[i].Err() // a call without an answer must not pass for one with
	}
	return cmds, err
}

// missingScript lists the calls whose node does not know the script.
func missingScript(cmds []*redis.Cmd) []int {
	var missing []int
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			missing = append(missing, i)
		}
	}
	return missing
}

// sendAgain loads the scripts and repeats the calls that missed them, and only those: the others have had their effect,
// and would answer that nothing is to be done.
func (s *Store) sendAgain(ctx context.Context, calls []call, cmds []*redis.Cmd, missing []int) ([]*redis.Cmd, error) {
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	again := make([]call, len(missing))
	for i, at := range missing {
		again[i] = calls[at]
	}
	answers, err := s.send(ctx, again)
	for i, at := range missing {
		cmds[at] = answers[i]
	}
	for i := 0; i < len(cmds) && err == nil; i++ {
		err = cmds[i].Err()
	}
	return cmds, err
}

// load makes the scripts known to every node.
func (s *Store) load(ctx context.Context) error {
	for _, script := range s.scripts.all() {
		if err := script.Load(ctx, s.client).Err(); err != nil {
			return fmt.Errorf("%s: load script: %w", s.address, err)
		}
	}
	return nil
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
