package blocklist

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func manyDeltas(n int) []Delta {
	out := make([]Delta, n)
	for i := range out {
		out[i] = Delta{Op: OpBlock, Name: Name{Subject: traffic.Subject(fmt.Sprint("device=d", i)), Rule: someRule}, Value: "{}"}
	}
	return out
}

// chained checks that each entry of a stream names the one before it, in numbers that rise by one, and that last is the
// newest. It returns how many there are.
func chained(t testing.TB, s *Store, stream string) int {
	t.Helper()
	entries, err := s.redis.client.XRange(t.Context(), s.keys.Stream(stream), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for i, x := range entries {
		if prev, _ := x.Values["prev"].(string); i > 0 && (prev != before || entryNumber(x.ID) != entryNumber(before)+1) {
			t.Fatalf("stream %s: entry %s names %q before it, which is %q", stream, x.ID, prev, before)
		}
		before = x.ID
	}
	last, err := s.redis.client.Get(t.Context(), s.keys.Last(stream)).Result()
	if err != nil || last != before {
		t.Fatalf("last of stream %s: %q, %v, want %q", stream, last, err, before)
	}
	return len(entries)
}

// commandCalls is how often a server has been called with a command, by scripts too.
func commandCalls(t testing.TB, client redis.UniversalClient, command string) int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// All gates and all partitions wait for the one server of the streams: a call looks up where a stream ends once, however much
// it appends.
func TestAppendingLooksForTheEndOnce(t *testing.T) {
	store, err := NewStore(testbed.OwnRedis(t).Server().Client(t), testbed.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	modes := make([]rules.ModeState, 50)
	for i := range modes {
		modes[i] = rules.ModeState{Rule: fmt.Sprint("r", i), Mode: rules.ModeBlock, Generation: 1}
	}
	for _, c := range []struct {
		name    string
		run     func(ctx context.Context) error
		streams int // that are appended to
		entries int
	}{
		{"a new stream", func(ctx context.Context) error { return NewWriter(store).Tell(ctx, "0", 1, manyDeltas(100)) }, 2, 101},
		{"a known one", func(ctx context.Context) error { return NewWriter(store).Tell(ctx, "0", 1, manyDeltas(100)) }, 1, 100},
		{"modes", func(ctx context.Context) error { return store.PublishModes(ctx, 1, modes) }, 1, 50},
		{"modes that stand", func(ctx context.Context) error { return store.PublishModes(ctx, 1, modes) }, 0, 0},
	} {
		var before [4]int
		commands := [4]string{"get", "xrevrange", "set", "xadd"}
		for i, command := range commands {
			before[i] = commandCalls(t, store.redis.client, command)
		}
		if err := c.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, want := range [4]int{c.streams, c.streams, c.streams, c.entries} {
			if got := commandCalls(t, store.redis.client, commands[i]) - before[i]; got != want {
				t.Errorf("%s: %d calls of %s, want %d", c.name, got, commands[i], want)
			}
		}
	}
	if got := chained(t, store, "0"); got != 200 {
		t.Errorf("%d entries, want 200", got)
	}
	if got := chained(t, store, StreamModes); got != 51 {
		t.Errorf("%d entries of modes, want 51", got)
	}
}

// A script may stop in between, as when the server refuses an entry. Whoever has read some of what went out, or none, must notice
// when all of it is gone: the entry after that may not name an id as the one before it where a reader may stand.
func TestAScriptThatStopsInBetweenIsNoticed(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		store, err := NewStore(server.Client(t), testbed.Namespace(t))
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		// Lua's numbers are doubles: above this one not every other number is one, and an entry gets the id before it again.
		const top = 1<<53 - 2
		if err := NewWriter(store).Tell(ctx, "0", top-1, manyDeltas(1)); err != nil {
			t.Fatal(err)
		}
		if err := NewWriter(store).Tell(ctx, "0", top-1, manyDeltas(9)); err == nil {
			t.Fatal("no entry was refused")
		}
		last, err := store.redis.client.Get(ctx, store.keys.Last("0")).Result()
		if err != nil {
			t.Fatal(err)
		}
		entries, err := store.redis.client.XRange(ctx, store.keys.Stream("0"), "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) < 2 || len(entries) > 9 {
			t.Fatalf("%d entries, want some of 10", len(entries))
		}
		if newest := entries[len(entries)-1].ID; entryNumber(last) < entryNumber(newest) {
			t.Errorf("last is %s, behind %s: the next entry would follow it, and hide what came between", last, newest)
		}
	})
}

// What has been published of a rule twice in one call, the older text last, ends as the newer one.
func TestModesOfOneCallOnlyRaise(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		store, err := NewStore(server.Client(t), testbed.Namespace(t))
		if err != nil {
			t.Fatal(err)
		}
		newer := rules.ModeState{Rule: someRule, Mode: rules.ModeBlock, Generation: 2}
		older := rules.ModeState{Rule: someRule, Mode: rules.ModeShadow, Generation: 1}
		if err := store.PublishModes(t.Context(), 1, []rules.ModeState{newer, older, newer}); err != nil {
			t.Fatal(err)
		}
		modes, err := store.Modes(t.Context())
		if err != nil || len(modes) != 1 || modes[0].Generation != 2 {
			t.Errorf("modes: %+v, %v", modes, err)
		}
		if got := chained(t, store, StreamModes); got != 1 {
			t.Errorf("%d entries, want 1", got)
		}
	})
}

// BenchmarkAppend is what a full call of 200 changes costs its client, beside nobody else.
func BenchmarkAppend(b *testing.B) {
	store, err := NewStore(testbed.OwnRedis(b).Server().Client(b), testbed.Namespace(b))
	if err != nil {
		b.Fatal(err)
	}
	deltas := manyDeltas(deltasPerCall)
	calls := 0
	for b.Loop() {
		if err := NewWriter(store).Tell(b.Context(), "0", 1, deltas); err != nil {
			b.Fatal(err)
		}
		calls++
	}
	if got, want := chained(b, store, "0"), min(calls*deltasPerCall, streamLength); got < want {
		b.Fatalf("%d entries, want %d", got, want)
	}
}

// entryNumber is the first part of an entry's id.
func entryNumber(id string) uint64 {
	text, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}
