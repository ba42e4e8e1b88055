package blocklist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/traffic"
)

// Store is one namespace in Redis or Redis Cluster: it reads blocks and publishes modes. A Writer changes blocks, and a Feed
// follows all changes. Its methods may be called by several goroutines.
type Store struct {
	redis  *servers
	keys   Keys
	marks  *marks
	crowds Crowds
	never  *NeverList

	signatures signatures
	mine       func(ctx context.Context) (string, error) // nil: not asked
}

// NewStore uses client for the blocks of namespace. Closing the Store closes client.
func NewStore(client redis.UniversalClient, namespace string) (*Store, error) {
	keys, err := NewKeys(namespace)
	if err != nil {
		return nil, err
	}
	return newStore(client, "redis", keys), nil
}

func newStore(client redis.UniversalClient, address string, keys Keys) *Store {
	return &Store{
		redis: newServers(client, address, keys), keys: keys, marks: newMarks(),
		never: NewNeverList(nil, func() traffic.Time { return traffic.At(time.Now()) }),
	}
}

// Connect makes a Store of namespace on the server. It does not dial; Ping does.
func Connect(server Server, namespace string) (*Store, error) {
	keys, err := NewKeys(namespace)
	if err != nil {
		return nil, err
	}
	client, err := server.client()
	if err != nil {
		return nil, err
	}
	return newStore(client, server.Address(), keys), nil
}

// Ping asks the server, or every master of the cluster, for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	err := s.redis.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.Ping(ctx).Err() })
	if err != nil {
		return fmt.Errorf("%s does not answer: %w; start it, or correct its address", s.redis.address, err)
	}
	return nil
}

// PingStreams asks the server that has the modes and the delta streams for a sign of life: while it gives one, gates can be
// told of what changes, whichever other master of a cluster is away.
func (s *Store) PingStreams(ctx context.Context) error {
	node, err := s.redis.masterNode(ctx, s.redis.homeKey)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		err = node.Ping(ctx).Err()
	}
	if err != nil {
		return fmt.Errorf("%s, the server of modes and delta streams, does not answer: %w; start it, or correct its address", s.redis.address, err)
	}
	return nil
}

// Address is what an operator reads about where the Store is: never a password.
func (s *Store) Address() string { return s.redis.address }

// Place is Address with the database, where a server has several, and the namespace: everything by which a Store can be
// at the wrong one.
func (s *Store) Place() string {
	place := s.redis.address
	if single, ok := s.redis.client.(*redis.Client); ok {
		place += fmt.Sprintf(", database %d", single.Options().DB)
	}
	return place + ", namespace " + s.keys.Namespace()
}

// EpochKey is the key of the marker that HasMarker looks for.
func (s *Store) EpochKey() string { return s.keys.Epoch() }

// Close ends the connections.
func (s *Store) Close() error { return s.redis.client.Close() }

// Bound makes s refuse blocks beyond what c allows. It is called before s is used.
func (s *Store) Bound(c Crowds) { s.crowds = c }

// Except tells which blocks are in force for nobody: gates leave them out when they read them. Each reading of blocks,
// or of modes, adds what people have entered. It is called before s is used.
func (s *Store) Except(never *NeverList) { s.never = never }

// Inspect asks the server, or every master of the cluster, about itself, and changes nothing. clock is this machine's.
func (s *Store) Inspect(ctx context.Context, clock func() traffic.Time) (Inspected, error) {
	return s.redis.inspect(ctx, clock)
}

// HasMarker reports whether the reconciler's marker is there. Without the marker, Redis has forgotten.
func (s *Store) HasMarker(ctx context.Context) (bool, error) {
	n, err := s.redis.client.Exists(ctx, s.keys.Epoch()).Result()
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.redis.address, err)
	}
	return n > 0, nil
}

// SetMarker sets the reconciler's marker: Redis holds what it should, says the reconciler called id.
func (s *Store) SetMarker(ctx context.Context, id string) error {
	if err := s.redis.client.Set(ctx, s.keys.Epoch(), id, 0).Err(); err != nil {
		return fmt.Errorf("%s: %w", s.redis.address, err)
	}
	return nil
}

// TakeLease gives the reconcilers' lease to the reconciler called id for ttl, unless one has it.
func (s *Store) TakeLease(ctx context.Context, id string, ttl time.Duration) (taken bool, err error) {
	return s.redis.client.SetNX(ctx, s.keys.Lease(), id, ttl).Result()
}

// Masters asks the server, or all masters of the cluster at the same time, for their run ids. The result, by address, has the
// masters that do not answer, too, with their errors.
func (s *Store) Masters(ctx context.Context) (map[string]Master, error) { return s.redis.masters(ctx) }

// Returns is how often a master that did not answer this Store has answered again.
func (s *Store) Returns() int { return s.redis.reach.returned() }

// Owner is the installation whose a namespace in Redis is.
type Owner struct {
	Format       int          `json:"v"`
	Installation string       `json:"installation"` // its name, which the rule store has
	Since        traffic.Time `json:"since"`
	By           string       `json:"by"` // who or what has written this
}

// ForeignError says that a namespace in Redis is another installation's.
type ForeignError struct {
	Place string
	Owner Owner
	Mine  string // the name of the installation that asked
}

func (e *ForeignError) Error() string {
	return e.Place + " " + e.whose() + ": two installations would take each other's blocks and modes for their own; " +
		"give this one another Redis, database or namespace, or, where this Redis is to be its own from now on: " +
		"weir migrate --take-redis"
}

// whose names both installations, whatever somebody has written there.
func (e *ForeignError) whose() string {
	return fmt.Sprintf("belongs to installation %.100q (since %s, by %.100q), and this one is %s",
		e.Owner.Installation, e.Owner.Since.Std().UTC().Format(time.RFC3339), e.Owner.By, e.Mine)
}

// Means says whose Redis is, without its address, and what that means for who looks at it.
func (e *ForeignError) Means() string {
	return e.whose() + ": ENFORCE of this one stands still there and blocks nobody anew, and the blocks, modes and " +
		"gates that are there are not this installation's"
}

// Public is what may be read by who asks without a password: it has addresses and names, and no secret.
func (e *ForeignError) Public() string { return e.Error() }

// Ownership says and changes whose the namespace of a Store is.
type Ownership struct{ s *Store }

// NewOwnership makes the Ownership of a Store's namespace.
func NewOwnership(s *Store) Ownership { return Ownership{s} }

// Owner is whose the namespace is; the zero Owner where nobody has said so.
func (o Ownership) Owner(ctx context.Context) (Owner, error) {
	s := o.s
	values, err := s.redis.client.MGet(ctx, s.keys.Installation()).Result()
	if err != nil {
		return Owner{}, fmt.Errorf("%s: read whose it is: %w", s.redis.address, err)
	}
	text, ok := values[0].(string)
	if !ok {
		return Owner{}, nil
	}
	var is Owner
	if err := json.Unmarshal([]byte(text), &is); err != nil || is.Format != ValueFormat || is.Installation == "" {
		return Owner{Installation: unreadable}, nil
	}
	return is, nil
}

// unreadable stands for an installation whose mark cannot be read.
const unreadable = "which this build cannot read"

// Own makes the namespace that of the installation me.Installation, where nobody's it is; *ForeignError where it is
// another one's.
func (o Ownership) Own(ctx context.Context, me Owner) error {
	s := o.s
	text, err := me.encode()
	if err != nil {
		return err
	}
	err = s.redis.client.SetArgs(ctx, s.keys.Installation(), text, redis.SetArgs{Mode: "NX"}).Err()
	if err == nil {
		return nil
	}
	if !errors.Is(err, redis.Nil) {
		return fmt.Errorf("%s: write whose it is: %w", s.redis.address, err)
	}
	is, err := o.Owner(ctx)
	if err == nil && is.Installation == "" { // there is a mark, and it is no text
		is.Installation = unreadable
	}
	return o.foreign(is, me.Installation, err)
}

// RefuseForeign is a *ForeignError where the namespace is another installation's than mine. It writes nothing.
func (o Ownership) RefuseForeign(ctx context.Context, mine string) error {
	is, err := o.Owner(ctx)
	return o.foreign(is, mine, err)
}

// foreign judges what Owner has said.
func (o Ownership) foreign(is Owner, mine string, err error) error {
	if err == nil && is.Installation != "" && is.Installation != mine {
		err = &ForeignError{Place: o.s.Place(), Owner: is, Mine: mine}
	}
	return err
}

// Take makes the namespace that of the installation me.Installation, whosever it was.
func (o Ownership) Take(ctx context.Context, me Owner) error {
	s := o.s
	text, err := me.encode()
	if err == nil {
		err = s.redis.client.Set(ctx, s.keys.Installation(), text, 0).Err()
	}
	if err != nil {
		return fmt.Errorf("%s: write whose it is: %w", s.redis.address, err)
	}
	return nil
}

func (o Owner) encode() (string, error) {
	o.Format, o.By = ValueFormat, traffic.Printable(o.By)
	text, err := json.Marshal(o)
	return string(text), err
}

// ActFor has s tell modes and never-block entries only where the namespace is that of the installation of that name, or
// nobody's: it is looked at in the same step in which they are written, so that a Redis that changes hands is not told
// what the one before wanted. It is called before s is used.
func ActFor(s *Store, name func(ctx context.Context) (string, error)) { s.mine = name }

// whose is the installation that s acts for, empty where that is not said or not asked.
func whose(ctx context.Context, s *Store, ask bool) (string, error) {
	if s.mine == nil || !ask {
		return "", nil
	}
	return s.mine(ctx)
}

// tell runs a script that changes what is kept under key, and tells it on the modes stream; *ForeignError where the
// namespace is another installation's than mine.
func tell(ctx context.Context, s *Store, script script, key string, args []any, mine string) error {
	keys := []string{key, s.keys.Stream(StreamModes), s.keys.Last(StreamModes), s.keys.Streams(), s.keys.Installation()}
	return s.redis.run(ctx, []call{{script: script, keys: keys, args: args}}, func(_ int, answer any) error {
		if answer != "foreign" {
			return nil
		}
		if err := NewOwnership(s).RefuseForeign(ctx, mine); err != nil {
			return err
		}
		return &ForeignError{Place: s.Place(), Owner: Owner{Installation: unreadable}, Mine: mine}
	})
}
