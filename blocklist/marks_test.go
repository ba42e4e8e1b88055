package blocklist

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A stream keeps what is younger than deltaAge, however much that is, and little else; its numbers go on when all of it
// has gone.
func TestDeltaStreamsAreTrimmedByAge(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newBare(t, server)
		ctx, client, key := t.Context(), s.client, s.keys.Stream("0")
		written := 0
		write := func(n int) {
			t.Helper()
			deltas := make([]Delta, n)
			for i := range deltas {
				deltas[i] = Delta{Op: OpRelease, Name: Name{traffic.Subject(fmt.Sprint("device=", written)), someRule}, Value: "{}"}
				written++
			}
			if err := s.writer.Tell(ctx, "0", s.now(), deltas); err != nil {
				t.Fatal(err)
			}
		}
		length := func() int {
			t.Helper()
			n, err := client.XLen(ctx, key).Result()
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		s.publish(rules.ModeBlock)
		many := 1500
		if os.Getenv(testbed.RedisKind.Env()) != "" {
			many = 12_000 // more than a stream kept when it was trimmed by length; an embedded server is slow at it
		}
		write(many)
		s.add(markEvery)
		write(1)
		s.add(deltaAge - markEvery - time.Second)
		if write(500); length() < written-deltasPerCall {
			t.Errorf("%d entries of less than %s, want all of %d but for a call's", length(), deltaAge, written)
		}
		s.add(2 * markEvery)
		write(500)
		// Redis drops whole nodes of 100 entries.
		if n := length(); n < 1000 || n > 1000+2*100 {
			t.Errorf("%d entries after the first ones have become old, want the 1000 newest", n)
		}
		// A process that has just begun knows no ages, and leaves all as it is until it does.
		s.store.marks = newMarks()
		s.add(deltaAge)
		before := length()
		write(1)
		if n := length(); n != before+1 {
			t.Errorf("a new process made %d entries of %d", n, before+1)
		}
		s.add(deltaAge)
		write(1)
		if n := length(); n > 2+100 {
			t.Errorf("%d entries remain once the new process knows that all are old", n)
		}

		if ttl, err := client.PTTL(ctx, key).Result(); err != nil || ttl <= deltaAge/2 || ttl > deltaAge {
			t.Errorf("the stream goes %s after its last entry (%v), want %s", ttl, err, deltaAge)
		}
	})
}

// The modes' entries are few and are kept by number: a gate that was away for long reads them all.
func TestModesAreNotTrimmedByAge(t *testing.T) {
	s := newBare(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	for range 5 {
		s.publish(rules.ModeShadow)
		s.add(2 * deltaAge)
	}
	key := s.keys.Stream(StreamModes)
	if n, err := s.client.XLen(t.Context(), key).Result(); err != nil || n != 5 {
		t.Errorf("%d entries of modes (%v), want 5", n, err)
	}
	if ttl, err := s.client.TTL(t.Context(), key).Result(); err != nil || ttl >= 0 {
		t.Errorf("the stream of modes expires in %s (%v)", ttl, err)
	}
}

// bare is a Store and its Writer, and a clock that only the test moves.
type bare struct {
	t          testing.TB
	store      *Store
	writer     *Writer
	client     redis.UniversalClient
	keys       Keys
	clock      time.Time
	generation int64
}

func newBare(t testing.TB, server testbed.RedisServer) *bare {
	t.Helper()
	client := server.Client(t)
	store, err := NewStore(client, testbed.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	return &bare{t: t, store: store, writer: NewWriter(store), client: client, keys: store.keys, clock: time.Now()}
}

func (b *bare) now() traffic.Time { return traffic.At(b.clock) }

func (b *bare) add(d time.Duration) { b.clock = b.clock.Add(d) }

func (b *bare) publish(mode rules.Mode) {
	b.t.Helper()
	b.generation++
	state := rules.ModeState{Rule: someRule, Mode: mode, Generation: b.generation}
	if err := b.store.PublishModes(b.t.Context(), b.now(), []rules.ModeState{state}); err != nil {
		b.t.Fatal(err)
	}
}
