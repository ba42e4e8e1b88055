package enforce_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
)

// An outage of the rule store is told of when it begins and seldom while it lasts, and each batch of it is counted: those, too, that go by modes
// which were read a moment before.
func TestAnOutageOfTheRuleStoreIsNotToldOfByEachBatch(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	var text bytes.Buffer
	s.Logger = slog.New(slog.NewTextHandler(&text, nil))
	s.Restart()
	s.Decide(s.Release())
	told := 0
	for outage := 1; outage <= 2; outage++ {
		s.Rules.Answer(errors.New("connection refused"))
		s.Clock.Add(modesAge + time.Second)
		const batches = 20
		for range batches {
			s.Decide(s.Release())
			s.Clock.Add(modesAge / 4)
		}
		// Once, and again at doubling intervals while it lasts: five times would be half a minute.
		before := told
		told = strings.Count(text.String(), "rule store does not answer")
		if got := told - before; got < 1 || got > 5 {
			t.Errorf("%d warnings of %d batches in an outage:\n%s", got, batches, text.String())
		}
		if got := s.Metric("weir_enforce_modes_fallback_total"); got != float64(outage*batches) {
			t.Errorf("%v batches are counted, want %d", got, outage*batches)
		}
		s.Rules.Answer(nil)
		s.Clock.Add(modesAge + time.Second)
		s.Decide(s.Release())
	}
}

// modesAge is how old modes may be when an effect is written.
const modesAge = 2 * time.Second
