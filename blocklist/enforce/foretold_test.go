package enforce_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// The blocks that weir rules test foretells are those that ENFORCE writes for the same hits: until the same instant in
// their values, and as their keys expire.
func TestWhatIsForetoldIsWritten(t *testing.T) {
	name := filepath.Join("..", "..", "internal", "story", "testdata", "closing-of-tuples.yaml")
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	conditions, err := condition.New()
	if err != nil {
		t.Fatal(err)
	}
	var test story.Test
	env := rules.Environment{Identity: traffic.DefaultIdentityMap(), Conditions: conditions, Tests: &story.Tests{Keep: func(x story.Test) { test = x }}}
	if _, err := rules.ParseSet([]rules.File{{Name: name, Src: src}}, env); err != nil {
		t.Fatal(err)
	}
	foretold, err := story.Fold(test.Story)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, l := range foretold.Blocks {
		want = append(want, l.String())
	}
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		v := test.Rules[0]
		s.Rules.Set(v.ID, rules.ModeBlock)
		s.Rules.Block[v.ID] = v.Block
		s.Rules.Edit = func(to *rules.Version) { to.Document = v.Document }
		s.Clock.Stop()
		s.Clock.Add(time.Second) // Redis' own clock goes on
		begin := s.Clock.Now().Sub(story.Begin)
		subjects := map[traffic.Subject]bool{}
		at := story.Begin
		err := story.Play(test.Story, story.Listener{Hit: func(h *detectors.Hit, now traffic.Time) {
			s.Clock.Add(now.Sub(at))
			at = now
			moved := *h
			moved.First, moved.Last, moved.Seen = h.First.Add(begin), h.Last.Add(begin), h.Seen.Add(begin)
			s.Decide(moved)
			if h.BlockSubject != "" {
				subjects[h.BlockSubject] = true
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for subject := range subjects {
			b, _, err := s.Store.Get(t.Context(), subject, v.ID)
			if err != nil || b == nil {
				t.Fatalf("%s: block %v, %v", subject, b, err)
			}
			expires, err := s.Client.PExpireTime(t.Context(), s.Keys.Block(subject, v.ID)).Result()
			embedded := os.Getenv("WEIR_TEST_REDIS") == "" // has no times of expiry, only durations
			if end := time.UnixMilli(expires.Milliseconds()); err != nil || !embedded && end.UnixMilli() != (int64(b.Until)+999)/1000 {
				t.Errorf("%s: its key expires at %s, its value says %s, %v", subject, end, b.Until, err)
			}
			got = append(got, story.BlockLine(subject, v.ID, b.Until.Add(-begin), false).String())
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || len(want) != 2 {
			t.Errorf("ENFORCE writes\n%v, foretold are\n%v", got, want)
		}
		t.Log(got)
	})
}
