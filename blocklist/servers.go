package blocklist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// servers are the one Redis server, or the masters of the cluster, of a namespace: which master has which key, which of them
// answer, and how scripts are called.
type servers struct {
	client  redis.UniversalClient
	address string // as an operator reads it
	homeKey string // the delta streams' key: its master is the one without which nothing goes on
	scripts scripts
	reach   *reach
	// flagless is set once a server has refused the first line of a script, its flags: a server older than Redis 7, or one that
	// is embedded in a process. From then on scripts are sent without flags: when such a server is full, it refuses releases, too.
	flagless atomic.Bool
}

func newServers(client redis.UniversalClient, address string, keys Keys) *servers {
	return &servers{client: client, address: address, homeKey: keys.Streams(), scripts: newScripts(), reach: newReach()}
}

// eachMaster calls visit for the server, or at the same time for every master of the cluster.
func (s *servers) eachMaster(ctx context.Context, visit func(ctx context.Context, node *redis.Client) error) error {
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, visit)
	case *redis.Client:
		return visit(ctx, client)
	default:
		return fmt.Errorf("redis client of type %T; allowed: *redis.Client or *redis.ClusterClient", client)
	}
}

// eachKey visits the keys of a master that match pattern, a step of SCAN at a time. A key that exists during the whole scan is
// visited at least once.
func (s *servers) eachKey(ctx context.Context, node *redis.Client, pattern string, visit func(keys []string) error) error {
	for at := uint64(0); ; {
		keys, next, err := node.Scan(ctx, at, pattern, scanSize).Result()
		if err != nil {
			return fmt.Errorf("%s: scan: %w", s.address, err)
		}
		if err := visit(keys); err != nil {
			return err
		}
		if at = next; at == 0 {
			return nil
		}
	}
}

// Master is what one master says of itself.
type Master struct {
	Run string // its run id; "" from a server that does not tell it (an embedded one)
	Err error  // it does not answer
}

// masters is Store.Masters.
func (s *servers) masters(ctx context.Context) (map[string]Master, error) {
	var mu sync.Mutex
	found := map[string]Master{}
	err := s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		m := askMaster(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		found[node.Options().Addr] = m
		if m.Err != nil {
			s.reach.lost(node.Options().Addr)
		} else {
			s.reach.found(node.Options().Addr)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: masters: %w", s.address, err)
	}
	return found, nil
}

func askMaster(ctx context.Context, node *redis.Client) Master {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	info, err := node.Info(ctx, "server").Result()
	if err == nil || !unanswered(err) {
		return Master{Run: runID(info)}
	}
	return Master{Err: err}
}

// runID finds the server's run id in the answer to INFO server.
func runID(info string) string { return readInfo(info)["run_id"] }

// masterOf is the address of the master that has key.
func (s *servers) masterOf(ctx context.Context, key string) (string, error) {
	node, err := s.masterNode(ctx, key)
	if err != nil {
		return "", err
	}
	return node.Options().Addr, nil
}

// masterNode is the client of the master that has key.
func (s *servers) masterNode(ctx context.Context, key string) (*redis.Client, error) {
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *redis.Client:
		return client, nil
	default:
		return nil, fmt.Errorf("redis client of type %T; allowed: *redis.Client or *redis.ClusterClient", client)
	}
}

// home is the address of the master of the modes and the delta streams; without a cluster, that of the server. Gates are told
// of changes through it alone, so no work goes on while it is away.
func (s *servers) home(ctx context.Context) (string, error) { return s.masterOf(ctx, s.homeKey) }

// How long a master of a cluster that does not answer is waited for. Releases wait behind it.
const (
	reachTimeout = 500 * time.Millisecond // for what it is asked, by whoever is the first to find it away
	pingTimeout  = 200 * time.Millisecond // for a sign of life after that
	pingInterval = 2 * time.Second        // between one ping and the next
)

// reach knows which masters do not answer, for all that use a Store: what one has waited for is not waited for again.
type reach struct {
	mu      sync.Mutex
	away    map[string]time.Time // when each that does not answer was last asked, by its address
	returns int                  // how many that did not answer have answered again
}

func newReach() *reach { return &reach{away: map[string]time.Time{}} }

// lost notes that a master does not answer.
func (r *reach) lost(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away[address] = time.Now()
}

// found notes that a master answers.
func (r *reach) found(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, away := r.away[address]; away {
		delete(r.away, address)
		r.returns++
	}
}

// returned is how often a master has come back.
func (r *reach) returned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.returns
}

// isAway reports whether a master does not answer, and whether it is this caller's turn to ping it.
func (r *reach) isAway(address string) (away, turn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, away := r.away[address]
	if turn = away && time.Since(asked) >= pingInterval; turn {
		r.away[address] = time.Now()
	}
	return away, turn
}

// unreachedError is the error of a key whose master did not answer, or could not serve the key. The master may have executed
// the command, or may yet.
type unreachedError struct {
	address string
	why     error
}

func (e *unreachedError) Error() string {
	return fmt.Sprintf("master at %s does not answer: %v", e.address, e.why)
}

func (e *unreachedError) Unwrap() error { return e.why }

// IsUnreached reports whether err says that the master of a key did not answer, or could not serve the key.
func IsUnreached(err error) bool {
	var u *unreachedError
	return errors.As(err, &u)
}

var errLeftAlone = errors.New("it has not answered a moment ago")

// share is the part of a question that is one master's.
type share struct {
	node *redis.Client
	at   []int // of the keys
}

// spread calls ask once for each master, all at the same time, with the indexes of the keys that the master has; ask returns an error,
// or nil, for each of them. A master that does not answer fails its own keys only, with an *unreachedError: the first call waits for it
// for timeout, the calls after that do not ask it until a ping is answered. The master at the address home is always asked, for as long
// as the client waits.
func (s *servers) spread(ctx context.Context, keys []string, home string, timeout time.Duration, ask func(ctx context.Context, at []int) []error) ([]error, error) {
	shares := map[string]*share{}
	for i, key := range keys {
		node, err := s.masterNode(ctx, key)
		if err != nil {
			return nil, err
		}
		address := node.Options().Addr
		if shares[address] == nil {
			shares[address] = &share{node: node}
		}
		shares[address].at = append(shares[address].at, i)
	}
	errs := make([]error, len(keys))
	var asking sync.WaitGroup
	for address, sh := range shares {
		asking.Go(func() {
			var answers []error
			if address == home {
				answers = ask(ctx, sh.at)
			} else {
				answers = s.reached(ctx, sh, timeout, ask)
			}
			for j, err := range answers {
				errs[sh.at[j]] = err
			}
		})
	}
	asking.Wait()
	return errs, ctx.Err()
}

// reached is spread's part for one master: it asks nothing of a master that is known not to answer.
func (s *servers) reached(ctx context.Context, sh *share, timeout time.Duration, ask func(ctx context.Context, at []int) []error) []error {
	address := sh.node.Options().Addr
	if away, turn := s.reach.isAway(address); away && !(turn && s.pings(ctx, sh.node)) {
		return slices.Repeat([]error{&unreachedError{address, errLeftAlone}}, len(sh.at))
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers := ask(bounded, sh.at)
	silent := true
	for j, err := range answers {
		silent = silent && err != nil && unanswered(err)
		if err != nil && unserved(err) {
			answers[j] = &unreachedError{address, err}
		}
	}
	if silent && ctx.Err() == nil {
		s.reach.lost(address)
	}
	return answers
}

// pings reports whether the master answers a ping. Before it does, nothing else is sent to it: a frozen master would execute
// commands when it goes on, long after all others have gone on without it.
func (s *servers) pings(ctx context.Context, node *redis.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := node.Ping(ctx).Err(); err != nil && unanswered(err) {
		return false
	}
	s.reach.found(node.Options().Addr)
	return true
}

// answered reports whether err, not nil, is the server's word.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// unanswered reports whether err, not nil, stands for a missing answer. A closed client has asked nobody.
func unanswered(err error) bool { return !answered(err) && !errors.Is(err, redis.ErrClosed) }

// unserved reports whether err, not nil, says that nobody serves a key at present: its master is away, or about to be another.
func unserved(err error) bool {
	return unanswered(err) || slices.ContainsFunc([]string{"CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", "TRYAGAIN", "MOVED", "ASK"},
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}
