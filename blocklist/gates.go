package blocklist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/clocks"
	"github.com/weirhq/weir/traffic"
)

// How gates tell of themselves.
const (
	GateEvery = 10 * time.Second // a gate tells of itself
	GateTTL   = 30 * time.Second // one that does not any more is forgotten
	// GateBehind is how old the newest moment may be of which a gate knows everything, as for the alert
	// WeirReplicaStale.
	GateBehind = 30 * time.Second

	gateFormat   = 1
	gatesMost    = 1000 // gates of a namespace that are listed
	maxGateBytes = 4096 // of a report
	maxGateName  = 128
	maxGateText  = 1024
	// maxGateAge bounds ages in seconds, a hundred years: a time.Duration holds three times that.
	maxGateAge     = 100 * 365 * 24 * 3600
	gateSlots      = 16384 // of Redis
	gatesAtATime   = 100
	gateNamespaces = 20 // other namespaces that are looked for in the same database
)

// GateReport is what a gate says of itself, as JSON. Counters are since Started.
type GateReport struct {
	Format      int          `json:"v"`
	Instance    string       `json:"instance"` // letters, digits, '.', '_' and '-'; another one at each start
	Namespace   string       `json:"namespace"`
	Build       string       `json:"build"`
	Identity    string       `json:"identity"`                // Fingerprint of its identity map
	Unready     string       `json:"unready,omitempty"`       // why it is not ready; empty: it is
	Foreign     string       `json:"foreign,omitempty"`       // whose this Redis is, if another installation's
	Observing   bool         `json:"observing,omitempty"`     // it refuses nobody
	HeldBack    int          `json:"held_back,omitempty"`     // rules held as in shadow: their modes are not signed
	Blocks      int          `json:"blocks"`                  // that it holds
	Missing     int          `json:"missing_slots"`           // of Redis, which it has not read
	Behind      float64      `json:"behind_seconds"`          // age of the newest moment of which it knows every change
	Staleness   float64      `json:"staleness_seconds"`       // since Redis last answered it
	Clock       float64      `json:"clock_seconds,omitempty"` // by which Redis' clock is ahead of its own, at the least
	Passed      int64        `json:"passed"`                  // requests that no block held
	FailedOpen  int64        `json:"failed_open,omitempty"`   // passed unjudged
	Refused     int64        `json:"refused"`
	WouldRefuse int64        `json:"would_refuse,omitempty"`
	Started     traffic.Time `json:"started"` // by the gate's clock, as At
	At          traffic.Time `json:"at"`
}

// check says what is wrong with a report that is written, or that somebody else wrote.
func (r *GateReport) check(instance, namespace string) error {
	printable := func(s string, most int) bool {
		return len(s) <= most && strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) < 0
	}
	switch {
	case r.Format != gateFormat:
		return fmt.Errorf("gate report: format %d, known: %d", r.Format, gateFormat)
	case r.Instance != instance || !gateName(instance):
		return fmt.Errorf("gate report: instance: got %q, allowed: 1 to %d letters, digits, '.', '_' and '-'",
			instance, maxGateName)
	case r.Namespace != namespace:
		return fmt.Errorf("gate report: namespace: got %q, allowed: %q", r.Namespace, namespace)
	case !printable(r.Build, maxGateName), !printable(r.Identity, maxGateName), !printable(r.Unready, maxGateText),
		!printable(r.Foreign, maxGateText):
		return errors.New("gate report: build, identity, unready or foreign is too long, or cannot be printed")
	case min(r.Behind, r.Staleness) < 0, min(r.Blocks, r.Missing, r.HeldBack) < 0,
		min(r.Passed, r.FailedOpen, r.Refused, r.WouldRefuse) < 0:
		return errors.New("gate report: a number is negative")
	case math.Abs(r.Clock) > maxGateAge:
		return fmt.Errorf("gate report: got a clock that is %g s away, allowed: at most %d", r.Clock, maxGateAge)
	case max(r.Behind, r.Staleness) > maxGateAge, r.Missing > gateSlots:
		return fmt.Errorf("gate report: got %g and %g seconds and %d slots, allowed: at most %d and %d",
			r.Behind, r.Staleness, r.Missing, maxGateAge, gateSlots)
	case !Storable(r.Started), !Storable(r.At):
		return fmt.Errorf("gate report: started %s, told at %s", r.Started, r.At)
	}
	return nil
}

func gateName(name string) bool {
	return name != "" && len(name) <= maxGateName && strings.IndexFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' ||
			c == '-')
	}) < 0
}

// Gates is the sorted set of the gates that tell of themselves, by when they are forgotten.
func (k Keys) Gates() string { return k.prefix + gatesPart + "{" + k.Rules() + "}" }

// Gate is the key of what a gate says of itself, in the slot of Gates.
func (k Keys) Gate(instance string) string { return k.Gates() + ":" + instance }

const gatesPart = "gates:"

// GateBook is where the gates of a namespace tell of themselves. Its methods may be called by several goroutines.
type GateBook struct{ store *Store }

// NewGateBook makes a GateBook of s.
func NewGateBook(s *Store) *GateBook { return &GateBook{s} }

// Report keeps r for GateTTL. Times are Redis's own: a gate whose clock is wrong makes nobody else be forgotten.
func (b *GateBook) Report(ctx context.Context, r GateReport) error {
	s := b.store
	r.Format, r.Namespace = gateFormat, s.keys.Namespace()
	if err := r.check(r.Instance, r.Namespace); err != nil {
		return err
	}
	text := encode(&r)
	if len(text) > maxGateBytes {
		return fmt.Errorf("gate report: got %d bytes, allowed: at most %d", len(text), maxGateBytes)
	}
	node, err := s.redis.masterNode(ctx, s.keys.Gates())
	if err != nil {
		return fmt.Errorf("%s: gate report: %w", s.redis.address, err)
	}
	now, err := node.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("%s: gate report: %w", s.redis.address, err)
	}
	index := s.keys.Gates()
	pipe := s.redis.client.Pipeline()
	pipe.Set(ctx, s.keys.Gate(r.Instance), text, GateTTL)
	pipe.ZAdd(ctx, index, redis.Z{Score: float64(now.Add(GateTTL).UnixMilli()), Member: r.Instance})
	pipe.ZRemRangeByScore(ctx, index, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
	// Who claims more time than a report gets is no gate, or Redis' clock was ahead: it must not displace those that
	// are.
	pipe.ZRemRangeByScore(ctx, index, "("+strconv.FormatInt(now.Add(2*GateTTL).UnixMilli(), 10), "+inf")
	pipe.ZRemRangeByRank(ctx, index, 0, -gatesMost-1)
	pipe.PExpire(ctx, index, GateTTL)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%s: gate report: %w", s.redis.address, err)
	}
	return nil
}

// Forget ends what a gate has told of itself: it stops.
func (b *GateBook) Forget(ctx context.Context, instance string) error {
	s := b.store
	pipe := s.redis.client.Pipeline()
	pipe.Del(ctx, s.keys.Gate(instance))
	pipe.ZRem(ctx, s.keys.Gates(), instance)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%s: gate report: %w", s.redis.address, err)
	}
	return nil
}

// GateListing is the gates that have told of themselves within GateTTL, ascending by instance.
type GateListing struct {
	Gates      []GateReport
	Unreadable int // reports of a build that this one cannot read, or of somebody who is no gate
}

// List reads at most 1,000 gates, and 4 KiB of each.
func (b *GateBook) List(ctx context.Context) (GateListing, error) { return b.of(ctx, b.store.keys) }

func (b *GateBook) of(ctx context.Context, keys Keys) (GateListing, error) {
	s := b.store
	var found GateListing
	names, err := s.redis.client.ZRange(ctx, keys.Gates(), -gatesMost, -1).Result()
	if err != nil {
		return found, fmt.Errorf("%s: gates: %w", s.redis.address, err)
	}
	for part := range slices.Chunk(names, gatesAtATime) {
		pipe := s.redis.client.Pipeline()
		texts := make([]*redis.StringCmd, len(part))
		for i, name := range part {
			texts[i] = pipe.GetRange(ctx, keys.Gate(name), 0, maxGateBytes)
		}
		_, _ = pipe.Exec(ctx) // each answer has its own error
		for i, name := range part {
			text, err := texts[i].Result()
			switch report, ok := readGate(text, name, keys.Namespace()); {
			case err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE"):
				return found, fmt.Errorf("%s: gates: %w", s.redis.address, err)
			case err == nil && text == "": // it has just been forgotten
			case err != nil || !ok:
				found.Unreadable++
			default:
				found.Gates = append(found.Gates, report)
			}
		}
	}
	slices.SortFunc(found.Gates, func(a, b GateReport) int { return strings.Compare(a.Instance, b.Instance) })
	return found, nil
}

// readGate reads what stands under the name of a gate, whoever wrote it.
func readGate(text, name, namespace string) (GateReport, bool) {
	var r GateReport
	if len(text) > maxGateBytes || json.Unmarshal([]byte(text), &r) != nil || r.check(name, namespace) != nil {
		return GateReport{}, false
	}
	return r, true
}

// OtherGates is the gates of another namespace in the same database.
type OtherGates struct {
	Namespace string
	GateListing
	Err error // they could not be read
}

// Others looks through the keys of the server, or of every master, for gates of other namespaces: 20 at most,
// ascending by namespace. It takes steps SCANs of each at most; whole is false where that was not enough for all keys.
func (b *GateBook) Others(ctx context.Context, steps int) (found []OtherGates, whole bool, err error) {
	names, whole, err := b.namespaces(ctx, steps)
	for _, keys := range names[:min(len(names), gateNamespaces)] {
		listing, err := b.of(ctx, keys)
		found = append(found, OtherGates{Namespace: keys.Namespace(), GateListing: listing, Err: err})
	}
	return found, whole, err
}

var errEnough = errors.New("enough keys have been looked at")

// namespaces lists the other ones that have gates, ascending.
func (b *GateBook) namespaces(ctx context.Context, steps int) (all []Keys, whole bool, err error) {
	s := b.store
	var mu sync.Mutex
	found, cut := map[Keys]bool{}, false
	err = s.redis.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		left := steps
		err := s.redis.eachKey(ctx, node, "*"+version+gatesPart+"{*}", func(keys []string) error {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				name, _, _ := strings.Cut(key, version)
				if of, err := NewKeys(name); err == nil && of != s.keys && of.Gates() == key {
					found[of] = true
				}
			}
			if left--; left > 0 {
				return nil
			}
			cut = true
			return errEnough
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
	all = slices.SortedFunc(maps.Keys(found), func(a, b Keys) int { return strings.Compare(a.prefix, b.prefix) })
	return all, !cut, err
}

// GateDoubt is why a gate may not do what its installation asks.
type GateDoubt int

// The doubts, worst first.
const (
	GateUnready  GateDoubt = iota // it is not ready
	GateForeign                   // its Redis is another installation's
	GateClock                     // its clock differs from Redis'
	GateUnsigned                  // it holds rules as in shadow, since their modes are not signed
	GateIdentity                  // it reads requests by another identity map than events are read by
	GateStale                     // it does not know of the newest changes
	GateMissing                   // a part of Redis has not been read
)

// Doubted is a doubt with its figures, in words.
type Doubted struct {
	Kind  GateDoubt
	Text  string
	Minor bool // it works, and somebody should know
}

// Doubts are what is wrong with a gate of an installation whose identity map in effect has this fingerprint; "": it is
// not known.
func (r *GateReport) Doubts(identity string) (all []Doubted) {
	note := func(kind GateDoubt, format string, args ...any) {
		all = append(all, Doubted{Kind: kind, Text: fmt.Sprintf(format, args...)})
	}
	if r.Unready != "" {
		note(GateUnready, "is not ready and lets everybody pass whom it does not know: %s", r.Unready)
	}
	if r.Foreign != "" {
		note(GateForeign, "takes nothing from this Redis, and goes on with what it had: %s", r.Foreign)
	}
	apart := clocks.Offset{Store: "Redis", Apart: time.Duration(r.Clock * float64(time.Second))}
	if clocks.Size(apart.Apart) >= clocks.Warns {
		note(GateClock, "has a clock that is %s, so blocks end too early or too late there", apart)
		all[len(all)-1].Minor = clocks.Size(apart.Apart) < clocks.Fails
	}
	if r.HeldBack > 0 {
		note(GateUnsigned, "holds %d rules as in shadow: the rule store has not signed what Redis has of their modes",
			r.HeldBack)
	}
	if identity != "" && r.Identity != identity {
		note(GateIdentity, "reads requests by another identity map (%s) than the one in effect (%s), "+
			"so blocks may hold nobody, or others", r.Identity, identity)
	}
	behind := time.Duration(max(r.Behind, r.Staleness) * float64(time.Second))
	if r.Unready == "" && behind > GateBehind {
		note(GateStale, "knows nothing newer than %s: new blocks, releases and demotions do not reach it",
			behind.Round(time.Second))
	}
	if r.Unready == "" && r.Missing > 0 {
		note(GateMissing, "has not read %d of the 16,384 hash slots of Redis: who is blocked there passes", r.Missing)
	}
	return all
}
