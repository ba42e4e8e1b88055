package detectors_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
)

// What stands behind the extra values of a record of format 6 says one thing in one way; all else is refused.
func TestEvidenceOfRecordsIsChecked(t *testing.T) {
	// The numbers of an event of source partition 0 at offset 0, without progress, of version 1.
	head := []byte{6, 1, 1, 0, 0, 0, 0, 0, 1}
	oneRule, noRule := []byte{1, 2, 0, 0, 0}, []byte{0, 0, 0, 0}
	end := []byte{0, 0} // no identity, no sample
	for name, c := range map[string]struct {
		rules, said []byte
		want        string // of the error; empty for none
	}{
		"good":                          {oneRule, []byte{2}, ""},
		"none reached":                  {oneRule, []byte{0}, ""},
		"reached":                       {oneRule, []byte{4, 2, 0, 1}, ""},
		"reached on both sides":         {oneRule, []byte{6, 2, 1, 2}, ""},
		"beyond":                        {oneRule, []byte{8, 1, 2}, ""},
		"reached and beyond":            {oneRule, []byte{13, 1, 0, 1, 2}, ""},
		"beyond and not counted":        {oneRule, []byte{8, 1, 3}, "rule index 3, allowed: ascending"},
		"beyond twice":                  {oneRule, []byte{8, 2, 2, 0}, "rule index 2, allowed: ascending"},
		"beyond, and then none":         {oneRule, []byte{8, 0}, "a list of 0 rules"},
		"beyond without rules":          {noRule, []byte{10, 1, 0}, "rule index 0, allowed: ascending"},
		"nothing but good":              {noRule, []byte{2}, ""},
		"nothing but reached":           {noRule, []byte{5, 1, 7}, ""},
		"good is out of range":          {oneRule, []byte{3}, "good 3, allowed: up to 2"},
		"good is far out":               {oneRule, []byte{15}, "good 15, allowed: up to 14"},
		"nothing at all":                {noRule, []byte{0}, "good 0 in a record without rules"},
		"nothing but not good":          {noRule, []byte{1}, "good 1 in a record without rules"},
		"reached, and then none":        {oneRule, []byte{4, 0}, "a list of 0 rules"},
		"reached twice":                 {oneRule, []byte{4, 2, 5, 0}, "rule index 5, allowed: ascending"},
		"reached and counted":           {oneRule, []byte{4, 1, 2}, "rule index 2, allowed: ascending"},
		"reached and counted, later":    {oneRule, []byte{4, 2, 0, 2}, "rule index 2, allowed: ascending"},
		"more reached than rules exist": {oneRule, []byte{4, 0x81, 0x80, 0x04, 0}, "number of rules 65537, allowed: up to"},
	} {
		t.Run(name, func(t *testing.T) {
			var k detectors.Keyed
			err := detectors.DecodeKeyed(slices.Concat(head, c.rules, c.said, end), &k)
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, detectors.ErrRecord) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A record that tells of a good source alone moves time and nothing else, however often it comes and whatever came before it; the
// chain of those that are counted goes on past it.
func TestHintsPassByTheFence(t *testing.T) {
	b := newBench(t, 1, rule(1, 10*time.Second, time.Second))
	hint := b.event(0, origin+5*second, "192.0.2.1", 1)
	b.prev[0], b.next[0] = detectors.NoOffset, 0 // of its partition it is no link
	hint.Rules, hint.Good, hint.Prev = nil, detectors.KnownGood, detectors.NoOffset
	fold := func(k detectors.Keyed) {
		t.Helper()
		if hits, err := b.p.Fold(b.now, &k, nil); err != nil || len(hits) > 0 {
			t.Fatal(hits, err)
		}
	}
	fold(hint)
	b.must(b.event(0, origin+10*second, "192.0.2.1", 1))
	for _, offset := range []int64{0, 1, 2, 99, 2} {
		hint.Offset = offset
		fold(hint)
	}
	hint.Progress = origin + 20*second
	fold(hint)
	if got := b.p.Watermark(); got != origin+20*second {
		t.Errorf("watermark %v, want the progress that a hint has shown", got)
	}
	b.must(b.event(0, origin+20*second, "192.0.2.1", 1))
	if got := b.p.Counts(); got.Counted != 2 || got.Duplicates != 0 {
		t.Errorf("counts %+v, want two events counted and no duplicate", got)
	}
}

// An event that no rule counts and a block reaches is a link of the chain like any other: it counts once, and must not be missing.
func TestReachedEventsPassTheFence(t *testing.T) {
	b := newBench(t, 1, rule(1, 10*time.Second, time.Second))
	b.must(b.event(0, origin, "192.0.2.1", 1))
	reached := b.event(0, origin+20*second, "192.0.2.1", 1)
	reached.Rules, reached.Reached = nil, []int{0}
	b.must(reached)
	b.must(reached)
	if got := b.p.Counts(); got.Counted != 1 || got.Events != 2 || got.Duplicates != 1 {
		t.Errorf("counts %+v, want one event counted of two, and a duplicate", got)
	}
	hole := reached
	hole.Offset, hole.Prev = reached.Offset+5, reached.Offset+1
	if _, err := b.p.Fold(b.now, &hole, nil); !errors.As(err, new(*detectors.HoleError)) {
		t.Errorf("a hole before it: %v", err)
	}
	unknown := reached
	unknown.Offset, unknown.Prev, unknown.Reached = reached.Offset+1, reached.Offset, []int{1}
	if _, err := b.p.Fold(b.now, &unknown, nil); !errors.Is(err, detectors.ErrRecord) || !strings.Contains(err.Error(), "reached rule 1 of routing version 1, which has 1") {
		t.Errorf("a rule that the version has not is reached: %v", err)
	}
}

// Formats before 6 have no place for what is known of blocks.
func TestEvidenceIsOfFormatSix(t *testing.T) {
	for format := detectors.OldestRecordFormat; format <= detectors.RecordFormat; format++ {
		k := detectors.Keyed{Format: format, Kind: detectors.KeyedEvent, Prev: detectors.NoOffset, Rules: []int{1}, Reached: []int{0}, Beyond: []int{1}, Good: detectors.KnownGood}
		var got detectors.Keyed
		if err := detectors.DecodeKeyed(detectors.AppendKeyed(nil, &k), &got); err != nil {
			t.Fatal(err)
		}
		if has := len(got.Reached) == 1 && len(got.Beyond) == 1 && got.Good == detectors.KnownGood; has != (format >= rules.EvidenceRecordFormat) || !has && int(got.Good)+len(got.Reached)+len(got.Beyond) != 0 {
			t.Errorf("format %d has reached %v, beyond %v, good %d", format, got.Reached, got.Beyond, got.Good)
		}
	}
}
