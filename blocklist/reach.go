package blocklist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How long a master of a cluster that does not answer is waited for. Releases wait behind it.
const (
	reachPatience = 500 * time.Millisecond // for what it is asked, by whoever is the first to find it away
	pingPatience  = 200 * time.Millisecond // for a sign of life after that
	reachRest     = 2 * time.Second        // between one ping and the next
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
	if turn = away && time.Since(asked) >= reachRest; turn {
		r.away[address] = time.Now()
	}
	return away, turn
}

// unreachedError stands where the master of a key did not answer, or could not serve the key. Whether it did what it was asked,
// or will when it goes on, is not known.
type unreachedError struct {
	address string
	why     error
}

// Error names the master.
func (e *unreachedError) Error() string {
	return fmt.Sprintf("master at %s does not answer: %v", e.address, e.why)
}

// Unwrap is what came instead of an answer.
func (e *unreachedError) Unwrap() error { return e.why }

func isUnreached(err error) bool {
	var u *unreachedError
	return errors.As(err, &u)
}

var errLeftAlone = errors.New("it has not answered a moment ago")

// share is the part of a question that is one master's.
type share struct {
	node *redis.Client
	at   []int // of the keys
}

// spread asks about keys, those of each master apart from and beside the others': one that does not answer spoils its own keys
// and no others, and is waited for as long as patience once, by the first who asks. ask gives an error, or nil, for each key
// that it is to ask about. The master called home is asked in any case, for as long as the client waits.
func (s *Store) spread(ctx context.Context, keys []string, home string, patience time.Duration, ask func(ctx context.Context, at []int) []error) ([]error, error) {
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
				answers = s.reached(ctx, sh, patience, ask)
			}
			for j, err := range answers {
				errs[sh.at[j]] = err
			}
		})
	}
	asking.Wait()
	return errs, ctx.Err()
}

// reached asks a master unless it does not answer.
func (s *Store) reached(ctx context.Context, sh *share, patience time.Duration, ask func(ctx context.Context, at []int) []error) []error {
	address := sh.node.Options().Addr
	if away, turn := s.reach.isAway(address); away && !(turn && s.pings(ctx, sh.node)) {
		return slices.Repeat([]error{&unreachedError{address, errLeftAlone}}, len(sh.at))
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
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

// pings looks for a sign of life. A master that does not answer is asked for nothing else: it would do it when it goes on, after
// all others have gone on without it.
func (s *Store) pings(ctx context.Context, node *redis.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
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

// unanswered reports whether err, not nil, stands where a server was asked and did not answer. Who has closed the client asks none.
func unanswered(err error) bool { return !answered(err) && !errors.Is(err, redis.ErrClosed) }

// unserved reports whether err, not nil, says that nobody serves a key at present: its master is away, or about to be another.
func unserved(err error) bool {
	return unanswered(err) || slices.ContainsFunc([]string{"CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", "TRYAGAIN", "MOVED", "ASK"},
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// home is the address of the master of the modes and the delta streams. Without it gates are told nothing, so nothing goes on
// without it; a server that is no cluster is its own.
func (s *Store) home(ctx context.Context) (string, error) { return s.masterOf(ctx, s.keys.Streams()) }

// PingStreams asks the server that has the modes and the delta streams for a sign of life: while it gives one, gates can be
// told of what changes, whichever other master of a cluster is away.
func (s *Store) PingStreams(ctx context.Context) error {
	node, err := s.masterNode(ctx, s.keys.Streams())
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, reachPatience)
		defer cancel()
		err = node.Ping(ctx).Err()
	}
	if err != nil {
		return fmt.Errorf("%s, the server of modes and delta streams, does not answer: %w; start it, or correct its address", s.address, err)
	}
	return nil
}
