package evidence

import (
	"testing"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Of the sources that could be judged the known-good ones are known, whoever else could not be: the gate on them can be passed.
func TestKnownGoodOfTheJudged(t *testing.T) {
	unjudged := atLeast(1, "2 of 5 sources could not be judged")
	for name, c := range map[string]struct {
		good, held Count
		passes     bool
	}{
		"all judged":     {measured(1), measured(5), true},
		"some judged":    {unjudged, measured(5), true},
		"a narrow block": {unjudged, atMost(5, "fewer"), true},
		"a lost log":     {unjudged, atLeast(5, "lost"), false},
		"shared out":     {atLeast(1, apart), measured(5), false},
		"none judged":    {unknown("none"), measured(5), false},
	} {
		d := Dossier{Held: Held{Sources: c.held}, KnownGood: KnownGood{Sources: c.good, Coverage: Share{State: Measured, Part: 3, Whole: 5}}}
		if got := d.figures().Good; (got != nil) != c.passes || got != nil && (got.Some != 1 || got.All != 3) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Requests are shared out by the first field of the rule's key: where the block's has it not, no partition sees all of a subject.
func TestPartedSubjects(t *testing.T) {
	ip, wide := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldIP, V4: 24, V6: 48}
	device := traffic.KeyField{Field: traffic.FieldDevice}
	path := traffic.KeyField{Field: traffic.FieldParam, Name: "id"}
	for _, c := range []struct {
		key, block []traffic.KeyField
		parted     bool
	}{
		{[]traffic.KeyField{ip}, []traffic.KeyField{ip}, false},
		{[]traffic.KeyField{ip, device}, []traffic.KeyField{ip}, false},
		{[]traffic.KeyField{ip}, []traffic.KeyField{device, ip}, false},
		{[]traffic.KeyField{wide}, []traffic.KeyField{ip}, false},
		{[]traffic.KeyField{ip}, []traffic.KeyField{wide}, true},
		{[]traffic.KeyField{device, ip}, []traffic.KeyField{ip}, true},
		{[]traffic.KeyField{path, ip}, []traffic.KeyField{ip}, true},
	} {
		b := &builder{asked: &asked{version: rules.Version{Document: rules.Document{Key: c.key, Block: &rules.Block{Key: c.block}}}}}
		if got := b.parted(); got != c.parted {
			t.Errorf("key %v, block %v: %t", c.key, c.block, got)
		}
		if got := b.ofSubjects(7); (got.Side == AtLeast) != c.parted || got.Value != 7 {
			t.Errorf("key %v, block %v: %+v", c.key, c.block, got)
		}
	}
}
