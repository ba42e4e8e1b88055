package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/blocklist/signing"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

func keyOf(t testing.TB, namespace string) ([]byte, *signing.Signer) {
	t.Helper()
	seed := bytes.Repeat([]byte{3}, signing.SeedBytes)
	s, err := signing.NewSigner(seed, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return seed, s
}

// judgements are what a vouched made of modes, in words.
func judgements(v *vouched, told ...[2]any) (all []string) {
	for _, one := range told {
		m, _ := one[0].(rules.ModeState)
		text, _ := one[1].(string)
		j := v.judge(&m, text)
		word := "ignored"
		if j.known {
			word = fmt.Sprint(j.state.Mode, " ", j.state.Generation)
		}
		all = append(all, strings.TrimSpace(fmt.Sprint(word, " ", j.refused)))
	}
	return all
}

// Modes come in any order and from anybody: what is signed and not older holds, what is not signed makes the rule one
// in shadow until the next that is, and nothing goes back.
func TestWhatAModeDoes(t *testing.T) {
	_, signer := keyOf(t, "weir")
	state := func(mode rules.Mode, generation int64, newest int) rules.ModeState {
		return rules.ModeState{Rule: "tokens", Mode: mode, Generation: generation, Newest: newest}
	}
	signed := func(m rules.ModeState) [2]any { return [2]any{m, signer.Sign(modeText(&m))} }
	plain := func(m rules.ModeState) [2]any { return [2]any{m, modeText(&m)} }
	forged := func(m rules.ModeState) [2]any {
		shadow := state(rules.ModeShadow, m.Generation, m.Newest)
		text := signer.Sign(modeText(&shadow))
		return [2]any{m, strings.Replace(text, "shadow", "block", 1)}
	}
	block4, shadow5, block6 := state(rules.ModeBlock, 4, 1), state(rules.ModeShadow, 5, 1), state(rules.ModeBlock, 6, 2)
	for _, tt := range []struct {
		what string
		told [][2]any
		want []string
		held int
	}{
		{"as it should be", [][2]any{signed(block4), signed(shadow5), signed(block6)}, []string{"block 4", "shadow 5",
			"block 6"}, 0},
		{"a rule that never blocked", [][2]any{signed(state(rules.ModeShadow, 1, 1)), plain(state(rules.ModeBlock, 9,
			9)), forged(state(rules.ModeBlock, 1, 1))}, []string{"shadow 1", "shadow 1 unsigned",
			"shadow 1 forged"}, 1},
		{"a rule that nobody knows", [][2]any{plain(block4), forged(block6)}, []string{"ignored unsigned",
			"ignored forged"}, 1},
		{"the last promotion again", [][2]any{signed(block4), signed(shadow5), signed(block4)}, []string{"block 4",
			"shadow 5", "ignored older"}, 0},
		{"an older version of the same generation", [][2]any{signed(state(rules.ModeBlock, 6, 2)), signed(state(
			rules.ModeBlock, 6, 1))}, []string{"block 6", "ignored older"}, 0},
		{"signed again after a forgery", [][2]any{signed(block4), plain(state(rules.ModeBlock, 9, 1)), signed(block4)},
			[]string{"block 4", "shadow 4 unsigned", "block 4"}, 0},
		{"an older one after a forgery", [][2]any{signed(block6), forged(block6), signed(block4)}, []string{"block 6",
			"shadow 6 forged", "ignored older"}, 1},
		{"a demotion by a build that does not sign", [][2]any{signed(block4), plain(shadow5)}, []string{"block 4",
			"shadow 4 unsigned"}, 1},
	} {
		v := newVouched(signer.Trust)
		if got := judgements(v, tt.told...); !slices.Equal(got, tt.want) || v.heldBack() != tt.held {
			t.Errorf("%s: got %q and %d held back, want %q and %d", tt.what, got, v.heldBack(), tt.want, tt.held)
		}
	}
	if got := judgements(newVouched(nil), plain(block4), plain(shadow5)); !slices.Equal(got, []string{"block 4",
		"shadow 5"}) {
		t.Errorf("where nothing needs a signature: %q", got)
	}
}

// The log names the rules that are not acted on, up to a bound, and once each until all are.
func TestTheLogNamesWhatIsNotSignedOnce(t *testing.T) {
	_, signer := keyOf(t, "weir")
	v := newVouched(signer.Trust)
	told := 0
	for i := range 3 * tellMost {
		m := rules.ModeState{Rule: fmt.Sprint("r-", i/2), Mode: rules.ModeBlock}
		if v.judge(&m, modeText(&m)).news {
			told++
		}
	}
	if told != tellMost {
		t.Errorf("%d of %d lines, want %d", told, 3*tellMost, tellMost)
	}
	over := 0
	for i := range 3 * tellMost / 2 {
		m := rules.ModeState{Rule: fmt.Sprint("r-", i), Mode: rules.ModeBlock}
		if v.judge(&m, signer.Sign(modeText(&m))).over {
			over++
		}
	}
	m := rules.ModeState{Rule: "r-1", Mode: rules.ModeBlock, Generation: 2}
	if again := v.judge(&m, modeText(&m)); over != 1 || !again.news {
		t.Errorf("over %d times; the next one is news: %v", over, again.news)
	}
}

// forge does with Redis what whoever may write there can do to block Viewer by a rule in shadow: its mode, the delta
// that tells of it, and the block.
func forge(t *testing.T, s *blocktest.Stage, text string, generation int64) {
	t.Helper()
	now := s.Clock.Now()
	block := blocklist.NewBlock(blocktest.FloodRule, generation, strings.Repeat("ab", 16), now, now.Add(time.Hour))
	stream, last := s.Keys.Stream(blocklist.StreamModes), s.Keys.Last(blocklist.StreamModes)
	before, err := s.Client.Get(t.Context(), last).Result()
	if err != nil {
		t.Fatal(err)
	}
	id, next := fmt.Sprintf("%d-7", number(before)+1), fmt.Sprintf("%d-7", number(before)+2)
	for _, err := range []error{
		s.Client.Set(t.Context(), s.Keys.Block(blocktest.Viewer, blocktest.FloodRule), blocktest.JSONText(&block),
			0).Err(),
		s.Client.HSet(t.Context(), s.Keys.Rules(), blocktest.FloodRule, text).Err(),
		s.Client.Set(t.Context(), last, next, 0).Err(),
		s.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: id, Values: []any{"prev", before, "op", "mode",
			"rule", blocktest.FloodRule, "value", text}}).Err(),
		s.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: next, Values: []any{"prev", id, "op",
			"reload"}}).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Somebody with nothing but the right to write to Redis makes a rule in shadow block there. A gate that knows the rule
// store's key refuses nobody for it, running or started after; one that does not know it does. The rule store's next
// mode holds again.
func TestAForgedModeBlocksNobody(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	seed, signer := keyOf(t, s.Namespace)
	blocklist.SignModes(s.Store, func(context.Context) ([]byte, error) { return seed, nil })
	if err := reconcilerOf(t, s).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Publish(blocktest.FloodRule, rules.ModeShadow)
	begin := func(trust *signing.Trust) doubting {
		d := doubting{log: &said{}, registry: prometheus.NewRegistry()}
		var err error
		d.Replica, err = New(Options{Store: s.Store, Signed: trust, Clock: s.Clock.Now,
			Logger: slog.New(slog.NewTextHandler(d.log, nil)), Registerer: d.registry})
		if err != nil {
			t.Fatal(err)
		}
		blocktest.Run(t, d.Run)
		d.awaits(t, "begun", isReady)
		return d
	}
	careful, careless := begin(signer.Trust), begin(nil)
	held := func(d doubting, rule int) {
		t.Helper()
		testbed.Eventually(t, 10*time.Second, func() error {
			if n := d.HeldBack(); n != rule {
				return fmt.Errorf("%d rules held back, want %d", n, rule)
			}
			return nil
		})
	}
	held(careful, 0)

	generation := s.Rules.States[blocktest.FloodRule].Generation
	forged := rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: generation + 1}
	forge(t, s, modeText(&forged), forged.Generation)
	blocktest.EventuallyHeld(t, careless, s.Clock, true) // the forgery is a good one
	later := begin(signer.Trust)
	for _, d := range []doubting{careful, later} {
		held(d, 1)
		testbed.Eventually(t, 10*time.Second, func() error {
			if d.Missing() > 0 {
				return errors.New("it has not read all blocks")
			}
			return nil
		})
		blocktest.EventuallyHeld(t, d, s.Clock, false)
		if got := blocktest.Metric(t, d.registry, "weir_blocklist_modes_refused_total", "unsigned"); got < 1 {
			t.Errorf("%v modes counted as unsigned", got)
		}
		if got := blocktest.Metric(t, d.registry, "weir_blocklist_rules_held_back"); got != 1 {
			t.Errorf("%v rules held back", got)
		}
		d.says(t, "is not acted on")
	}

	// The rule store numbers its modes above; when it says so itself, the rule blocks.
	state := s.Rules.States[blocktest.FloodRule]
	state.Mode, state.Generation = rules.ModeBlock, forged.Generation
	s.Rules.States[blocktest.FloodRule] = state
	if n, err := s.Store.SyncModes(t.Context(), s.Clock.Now(), []rules.ModeState{state}); err != nil || n != 1 {
		t.Fatalf("%d modes published, %v; an unsigned one is to be replaced by the same, signed", n, err)
	}
	held(careful, 0)
	blocktest.EventuallyHeld(t, careful, s.Clock, true)
	blocktest.EventuallyHeld(t, later, s.Clock, true)
	if n, err := s.Store.SyncModes(t.Context(), s.Clock.Now(), []rules.ModeState{state}); err != nil || n != 0 {
		t.Errorf("%d modes published again, %v", n, err)
	}
}

// A key that cannot be read holds up no demotion: it is published unsigned, which gates that ask for signatures take
// for one, and it is said.
func TestWithoutItsKeyTheRuleStoreStillDemotes(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	seed, signer := keyOf(t, s.Namespace)
	var lost error
	blocklist.SignModes(s.Store, func(context.Context) ([]byte, error) { return seed, lost })
	s.PublishModes()
	s.Decide(s.Hit())
	r, err := New(Options{Store: s.Store, Signed: signer.Trust, Clock: s.Clock.Now, Logger: blocktest.Quiet(),
		Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Run(t, r.Run)
	blocktest.EventuallyHeld(t, r, s.Clock, true)
	lost = errors.New("permission denied")
	s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
	modes, err := s.Rules.Modes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unsigned := (*blocklist.UnsignedError)(nil)
	if n, err := s.Store.SyncModes(t.Context(), s.Clock.Now(), modes); n != 1 || !errors.As(err, &unsigned) ||
		!strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%d published, %v", n, err)
	}
	blocktest.EventuallyHeld(t, r, s.Clock, false)
}
