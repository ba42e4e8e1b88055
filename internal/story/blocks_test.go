package story_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

var address = netip.MustParseAddr("192.0.2.7")

// drawn is a story of one address with two devices, in a busy stream or one that falls idle, with an operator's acts.
func drawn(t *rapid.T) *story.Story {
	ip, device := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldDevice}
	keys := rapid.SampledFrom([][2][]traffic.KeyField{{{ip}, {ip}}, {{ip}, {ip, device}}, {{ip, device}, {ip}}}).Draw(t, "keys")
	seconds := func(name string, of ...time.Duration) time.Duration {
		return rapid.SampledFrom(of).Draw(t, name) * time.Second
	}
	v := rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
		ID: "drawn", Owner: "tests", Match: rules.Match{Path: "/a"}, Key: keys[0], Missing: rules.MissingSkip, Limit: 1,
		Window: seconds("window", 5, 20), Lateness: seconds("lateness", 0, 10), Cooldown: seconds("cooldown", 1, 60), MaxLag: seconds("max_lag", 5, 30, 60, 100),
		Block: &rules.Block{Key: keys[1], TTL: seconds("ttl", 5, 90, 600), Extend: rapid.SampledFrom([]rules.Extend{rules.ExtendNever, rules.ExtendOnHit}).Draw(t, "extend")},
	}}
	s := &story.Story{Name: "drawn", Rules: []rules.Version{v}, Partitions: 1, Blocking: true}
	busy, at := rapid.Bool().Draw(t, "busy"), time.Duration(0)
	event := func(ip, device string) {
		s.Steps = append(s.Steps, story.Step{At: at, Do: story.ActEvent, Request: traffic.Request{
			Time: story.Begin.Add(at), Method: "GET", Path: "/a", IP: ip, Device: device, Status: 200,
		}})
	}
	for range rapid.IntRange(2, 30).Draw(t, "steps") {
		for range rapid.SampledFrom([]int{0, 1, 1, 3, 15, 40, 130}).Draw(t, "after") {
			if at += time.Second; busy {
				event(fmt.Sprintf("198.51.100.%d", at/time.Second%250), "other")
			}
		}
		device := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "device")
		switch act := rapid.IntRange(0, 19).Draw(t, "act"); act {
		case 0, 1:
			subject, _ := traffic.MakeSubject(&traffic.Identity{IP: address, Device: device}, keys[1])
			s.Steps = append(s.Steps, story.Step{At: at, Do: story.ActRelease, Rule: v.ID, Subject: subject})
		case 2:
			s.Steps = append(s.Steps, story.Step{At: at, Do: story.ActDemote, Rule: v.ID})
		case 3:
			s.Steps = append(s.Steps, story.Step{At: at, Do: story.ActPromote, Rule: v.ID})
		default:
			event("192.0.2.7", device)
		}
	}
	return s
}

// told are the blocks that ENFORCE is to write for what comes of a story, by the oracle.
func told(t *rapid.T, s *story.Story) []string {
	v, blocks, shadow := &s.Rules[0], map[traffic.Subject]*oracle.Blocks{}, false
	of := func(subject traffic.Subject) *oracle.Blocks {
		if blocks[subject] == nil {
			blocks[subject] = &oracle.Blocks{Shadow: shadow}
		}
		return blocks[subject]
	}
	terms := oracle.BlockRule{
		TTL: v.Block.TTL.Microseconds(), MaxLag: v.MaxLag.Microseconds(), OnHit: v.Block.Extend == rules.ExtendOnHit, Window: v.Window.Microseconds(),
		Lateness: v.Lateness.Microseconds(), Cooldown: v.Cooldown.Microseconds(), Tuples: len(v.Block.Key) > len(v.Key),
	}
	err := story.Play(s, story.Listener{
		Act: func(x *story.Step) {
			at := int64(story.Begin.Add(x.At))
			if x.Do == story.ActRelease {
				of(x.Subject).Take(oracle.BlockRecord{At: at, What: "release", Kept: (7 * 24 * time.Hour).Microseconds()})
				return
			}
			shadow = x.Do == story.ActDemote
			for _, b := range blocks {
				b.Take(oracle.BlockRecord{At: at, What: map[bool]string{true: "shadow", false: "block"}[shadow]})
			}
		},
		Hit: func(h *detectors.Hit, now traffic.Time) {
			if h.Kind == detectors.KindHit && h.Phase != detectors.PhaseMerged && h.BlockSubject != "" {
				of(h.BlockSubject).Take(oracle.BlockRecord{At: int64(now), What: string(h.Phase), Hit: h.ID, First: int64(h.First), Last: int64(h.Last), Rule: terms})
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for subject, b := range blocks { // a line is all of a client's blocks up to a release
		for until, i := int64(0), 0; i < len(b.Spans); i++ {
			x := &b.Spans[i]
			if until = max(until, x.Until); i+1 == len(b.Spans) || x.Parted {
				out = append(out, story.BlockLine(subject, v.ID, traffic.Time(until), x.Parted).String())
				until = 0
			}
		}
	}
	slices.Sort(out)
	return out
}

// The blocks that a story foretells are those that ENFORCE is to write.
func TestBlocksAreThoseOfENFORCE(t *testing.T) {
	released := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		got, err := story.Fold(s)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, l := range got.Blocks {
			lines = append(lines, l.String())
			if slices.Contains(l.Facts, story.Fact{Name: "released", Text: "true"}) {
				released++
			}
		}
		slices.Sort(lines)
		if want := told(t, s); !slices.Equal(lines, want) {
			t.Fatalf("foretold are\n%v, ENFORCE is to write\n%v", lines, want)
		}
	})
	if released == 0 {
		t.Error("nobody was released")
	}
}
