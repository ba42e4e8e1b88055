package enforce_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestWhatOneRecordDoes(t *testing.T) {
	private := traffic.Subject("ip=10.1.2.3%2F32")
	own := traffic.Subject("ip=198.51.100.7%2F32&device=probe")
	tests := []struct {
		name   string
		change func(h *detectors.Hit)
		set    func(s *blocktest.Stage)
		want   string // decisions
	}{
		{name: "an opening hit blocks", want: "[written]"},
		{name: "so does an update that comes first", change: func(h *detectors.Hit) { h.Phase = detectors.PhaseUpdate }, want: "[written]"},
		{name: "a closing hit starts nothing", change: func(h *detectors.Hit) { h.Phase = detectors.PhaseClosed }, want: "[]"},
		{name: "a merged episode is no offence", change: func(h *detectors.Hit) { h.Phase = detectors.PhaseMerged }, want: "[]"},
		{name: "a phase of a later version", change: func(h *detectors.Hit) { h.Phase = "paused" }, want: "[]"},
		{name: "grouped windows never block", change: func(h *detectors.Hit) { h.Grouped = true }, want: "[]"},
		{name: "nobody to block", change: func(h *detectors.Hit) { h.BlockSubject = "" }, want: "[]"},
		{name: "late events block nobody", change: func(h *detectors.Hit) { h.Kind = detectors.KindLate }, want: "[]"},
		{name: "events left out block nobody", change: func(h *detectors.Hit) { h.Kind = detectors.KindUncounted }, want: "[]"},
		{name: "a limit on trial of a rule that blocks", change: func(h *detectors.Hit) { h.Kind = detectors.KindCandidate }, want: "[]"},
		{name: "a warning, whoever it names", change: func(h *detectors.Hit) { h.Kind = detectors.KindNear }, want: "[]"},
		{name: "a rule in shadow", set: func(s *blocktest.Stage) { s.Rules.Set(blocktest.FloodRule, rules.ModeShadow) }, want: "[]"},
		{name: "a rule that is off", set: func(s *blocktest.Stage) { s.Rules.Set(blocktest.FloodRule, rules.ModeOff) }, want: "[]"},
		{name: "a rule that nobody knows", change: func(h *detectors.Hit) { h.Rule = "other" }, want: "[]"},
		{name: "evidence from a backlog", change: func(h *detectors.Hit) {
			h.First, h.Last = h.First.Add(-2*time.Minute), h.Last.Add(-2*time.Minute)
		}, want: "[withheld max_lag]"},
		{name: "evidence as old as may be", change: func(h *detectors.Hit) {
			h.First, h.Last = h.First.Add(-50*time.Second), h.Last.Add(-50*time.Second)
		}, want: "[written]"},
		{name: "a block that would be over", set: func(s *blocktest.Stage) { s.Rules.Block[blocktest.FloodRule].TTL = time.Millisecond }, want: "[withheld expired]"},
		{name: "a private address", change: func(h *detectors.Hit) { h.BlockSubject = private }, want: "[withheld never_block]"},
		{name: "a private address with a device", change: func(h *detectors.Hit) { h.BlockSubject = private + "&device=x" }, want: "[written]"},
		{name: "an address of our own", change: func(h *detectors.Hit) { h.BlockSubject = own }, want: "[withheld never_block]"},
		{name: "a version without block", set: func(s *blocktest.Stage) { s.Rules.Block[blocktest.FloodRule] = nil }, want: "[withheld no_block_spec]"},
		{name: "an unknown version", set: func(s *blocktest.Stage) { delete(s.Rules.Block, blocktest.FloodRule) }, want: "[withheld no_block_spec]"},
	}
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				s := blocktest.NewStage(t, server, netip.MustParsePrefix("198.51.100.0/28"))
				s.Clock.Stop() // evidence grows no older
				if tt.set != nil {
					tt.set(s)
				}
				h := s.Hit()
				if tt.change != nil {
					tt.change(&h)
				}
				if got := fmt.Sprint(s.Decide(h)); got != tt.want {
					t.Errorf("decisions: got %s, want %s", got, tt.want)
				}
				stands := false
				if h.BlockSubject != "" {
					b, _, err := s.Store.Get(t.Context(), h.BlockSubject, h.Rule)
					if err != nil {
						t.Fatal(err)
					}
					stands = b != nil
				}
				if want := tt.want == "[written]"; stands != want {
					t.Errorf("a block stands: %v, want %v", stands, want)
				}
				if len(s.Dead.Letters) != 0 {
					t.Errorf("dead letters: %+v", s.Dead.Letters)
				}
			})
		}
	})
}

func TestBlockFollowsTheEpisode(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		open := s.Hit()
		later := func(d time.Duration, phase detectors.Phase) detectors.Hit {
			h := open
			h.Phase, h.Last = phase, open.Last.Add(d)
			return h
		}
		steps := []struct {
			name      string
			hit       detectors.Hit
			decisions string
			until     time.Duration // after the first over event
		}{
			{"it opens", open, "[written]", blocktest.TTL},
			{"the same again", open, "[]", blocktest.TTL},
			{"it goes on", later(300*time.Millisecond, detectors.PhaseUpdate), "[extended]", blocktest.TTL + 300*time.Millisecond},
			{"an older record again", open, "[]", blocktest.TTL + 300*time.Millisecond},
			{"it closes, with over events that no update told", later(500*time.Millisecond, detectors.PhaseClosed), "[extended]", blocktest.TTL + 500*time.Millisecond},
			{"it closes again", later(500*time.Millisecond, detectors.PhaseClosed), "[]", blocktest.TTL + 500*time.Millisecond},
		}
		for _, step := range steps {
			if got := fmt.Sprint(s.Decide(step.hit)); got != step.decisions {
				t.Errorf("%s: got %s, want %s", step.name, got, step.decisions)
			}
			b, _ := s.Stands()
			if b == nil || b.Until != open.First.Add(step.until) || b.Hit != open.ID || b.Generation != 1 {
				t.Fatalf("%s: block %+v, want until %s", step.name, b, open.First.Add(step.until))
			}
			most := b.Until.Sub(s.Clock.Now())
			left, err := s.Client.PTTL(t.Context(), s.Keys.Block(blocktest.Viewer, blocktest.FloodRule)).Result()
			if err != nil {
				t.Fatal(err)
			}
			if least := b.Until.Sub(s.Clock.Now()); left < least-2*time.Second || left > most+2*time.Second {
				t.Errorf("%s: the key expires in %s, want %s to %s", step.name, left, least, most)
			}
		}
		shapes, err := s.Client.SMembers(t.Context(), s.Keys.Shapes()).Result()
		if err != nil || !slices.Equal(shapes, []string{"match:ip4/32&device"}) {
			t.Errorf("shapes: got %v, %v", shapes, err)
		}
		if n := s.Written(); n != 1 { // extending and repeating writes none
			t.Errorf("%d blocks written, want 1", n)
		}
	})
}

func TestExtendNeverCountsTheOpeningOnly(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Rules.Block[blocktest.FloodRule].Extend = rules.ExtendNever
		open := s.Hit()
		update := open
		update.Phase, update.Last = detectors.PhaseUpdate, open.Last.Add(500*time.Millisecond)
		if got := fmt.Sprint(s.Decide(open), s.Decide(update), s.Decide(update)); got != "[written] [] []" {
			t.Errorf("decisions: %s", got)
		}
		if b, _ := s.Stands(); b == nil || b.Until != open.First.Add(blocktest.TTL) {
			t.Errorf("block: %+v", b)
		}
	})
}

// A crash may come after any of the three effects. Whatever has been done, a retry finishes it, with the same ids.
func TestRetryAfterACrashTellsAgain(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		batch := s.Messages(s.Hit(), s.Hit(func(h *detectors.Hit) { h.Phase, h.Last = detectors.PhaseUpdate, h.Last.Add(time.Millisecond) }))
		s.Log.Fail = errors.New("kafka is away")
		if err := s.Apply(t.Context(), batch); err == nil {
			t.Fatal("Apply returned nil though the blocks topic had not acknowledged")
		}
		s.ApplyMessages(batch)
		first := s.Log.All
		if got := fmt.Sprint(s.Log.Take()); got != "[written]" {
			t.Fatalf("after the retry: %s", got)
		}
		s.ApplyMessages(batch)
		if got := fmt.Sprint(s.Log.Take()); got != "[]" {
			t.Errorf("a third time, in the same process: %s", got)
		}
		s.Restart()
		s.ApplyMessages(batch)
		if again := s.Log.All; len(again) != 1 || again[0].ID != first[0].ID || again[0].Action != blocklist.ActionWritten {
			t.Errorf("after a restart: %+v, want the decision %s once more", again, first[0].ID)
		}
		length, err := s.Client.XLen(t.Context(), s.Keys.Stream("3")).Result()
		if err != nil || length != 3 {
			t.Errorf("delta stream: %d entries, %v; want one for each attempt that told", length, err)
		}
	})
}

func TestReleaseSticks(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		open := s.Hit()
		early := s.Messages(open)
		s.ApplyMessages(early)
		request := s.Release()
		releasing := s.Messages(request)
		s.ApplyMessages(releasing)
		if b, tomb := s.Stands(); b != nil || tomb == nil || tomb.Hit != open.ID || tomb.Request != request.ID || tomb.By != "ops" {
			t.Fatalf("after the release: block %+v, tombstone %+v", b, tomb)
		}
		if got := s.Log.Take(); fmt.Sprint(got) != "[written released]" {
			t.Errorf("decisions: %v", got)
		}
		if _, err := s.Store.WaitReleased(t.Context(), &request); err != nil {
			t.Error(err)
		}

		s.Restart() // a replay, by a process that remembers nothing
		s.ApplyMessages(early)
		goesOn := open
		goesOn.Phase, goesOn.Last = detectors.PhaseUpdate, s.Clock.Now()
		if got := fmt.Sprint(s.Log.Take(), s.Decide(goesOn), s.Decide(goesOn)); got != "[withheld released] [] []" {
			t.Errorf("replay and later over events of the released episode: %s", got)
		}
		if b, _ := s.Stands(); b != nil {
			t.Fatalf("blocked again: %+v", b)
		}

		next := s.Hit(func(h *detectors.Hit) {
			h.ID, h.First = strings.Repeat("e", 32), s.Clock.Now()
			h.Last = h.First
		})
		if got := fmt.Sprint(s.Decide(next)); got != "[written]" {
			t.Errorf("an episode that opens after the release: %s", got)
		}
		s.ApplyMessages(releasing)
		if b, _ := s.Stands(); b == nil || b.Hit != next.ID {
			t.Errorf("the release again removed a later block: %+v", b)
		}
	})
}

// Records of one key in one batch act in the order of the log.
func TestOrderWithinABatch(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		open, request := s.Hit(), s.Release()
		next := s.Hit(func(h *detectors.Hit) {
			h.ID, h.First = strings.Repeat("e", 32), s.Clock.Now().Add(2*time.Second)
			h.Last = h.First
		})
		if got := fmt.Sprint(s.Decide(open, request, next)); got != "[written released written]" {
			t.Errorf("decisions: %s", got)
		}
		if b, tomb := s.Stands(); b == nil || b.Hit != next.ID || tomb == nil || tomb.Hit != open.ID {
			t.Errorf("block %+v, tombstone %+v", b, tomb)
		}
	})
}

func TestManyKeysInOneBatch(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		var hits []detectors.Hit
		for i := range 1500 {
			hits = append(hits, s.Hit(func(h *detectors.Hit) {
				h.ID, h.BlockSubject = fmt.Sprintf("%032x", i), traffic.Subject(fmt.Sprintf("device=d%d", i))
			}))
		}
		if got := s.Decide(hits...); len(got) != len(hits) || slices.ContainsFunc(got, func(d string) bool { return d != "written" }) {
			t.Fatalf("%d decisions for %d hits", len(got), len(hits))
		}
		listing, err := s.Store.List(t.Context(), s.Clock.Now(), blocklist.Filter{})
		if err != nil || len(listing.Items) != len(hits) || listing.Unreadable != 0 {
			t.Errorf("listing: %d items, %d unreadable, %v", len(listing.Items), listing.Unreadable, err)
		}
		r := newReplica(t, s)
		testbed.Eventually(t, 10*time.Second, func() error { // it is ready without a master that does not answer at once
			if r.Len() != len(hits) {
				return fmt.Errorf("replica holds %d blocks, want %d", r.Len(), len(hits))
			}
			return nil
		})
	})
}

// newReplica follows a Redis at which a reconciler has been.
func newReplica(t testing.TB, s *blocktest.Stage) *replica.Replica {
	t.Helper()
	if err := s.Store.SetMarker(t.Context(), "reconciler"); err != nil {
		t.Fatal(err)
	}
	r, err := replica.New(replica.Options{Store: s.Store, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Follow(t, r)
	return r
}
