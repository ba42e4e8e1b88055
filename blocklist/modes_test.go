package blocklist

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// An outage of the rule store is told of once, when it begins, and each batch of it is counted: those, too, that go by modes
// which were read a moment before.
func TestAnOutageOfTheRuleStoreIsToldOfOnce(t *testing.T) {
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	var text bytes.Buffer
	s.logger = slog.New(slog.NewTextHandler(&text, nil))
	s.restart()
	s.apply(s.release())
	for outage := 1; outage <= 2; outage++ {
		s.rules.answer(errors.New("connection refused"))
		s.clock.add(modesAge + time.Second)
		const batches = 20
		for range batches {
			s.apply(s.release())
			s.clock.add(modesAge / 4)
		}
		if got := strings.Count(text.String(), "rule store does not answer"); got != outage {
			t.Errorf("%d warnings of %d outages:\n%s", got, outage, text.String())
		}
		if got := s.metric("weir_enforce_modes_fallback_total"); got != float64(outage*batches) {
			t.Errorf("%v batches are counted, want %d", got, outage*batches)
		}
		s.rules.answer(nil)
		s.clock.add(modesAge + time.Second)
		s.apply(s.release())
	}
}

// modesAge is how old modes may be when an effect is written.
const modesAge = 2 * time.Second
