package simulation

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// stories are those that users find.
const stories = "../../examples/stories/"

// toldWith is with how many seeds each story is told: the calls of its processes take another time with each.
func toldWith() uint64 {
	if raceDetector {
		return 1
	}
	return 5
}

// TestStories plays the stories of examples/stories through all stages, with their kills, freezes and silences. Their hits
// must be those that they have without (internal/story plays them so), and their blocks as they say.
func TestStories(t *testing.T) {
	alone(t)
	l := newLab(bugs{})
	defer l.close()
	files, err := filepath.Glob(stories + "*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d stories, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := readStory(t, file)
			for seed := range toldWith() {
				if diff := tell(t, s, seed, l); diff != "" {
					t.Fatalf("%s\n%s, seed %d:\n%s", s.Name, file, seed, diff)
				}
			}
		})
	}
}

// A story about a failure is not as it says without what it teaches.
func TestStoriesFail(t *testing.T) {
	alone(t)
	for _, tt := range []struct {
		file string
		bugs bugs
	}{
		{"router-killed.yaml", bugs{noFence: true}},
		{"router-frozen.yaml", bugs{noFence: true}},
		{"released.yaml", mutated(t, "no tombstone").bugs},
	} {
		t.Run(tt.file, func(t *testing.T) {
			l := newLab(tt.bugs)
			defer l.close()
			s := readStory(t, stories+tt.file)
			for seed := range toldWith() {
				if diff := tell(t, s, seed, l); diff != "" {
					t.Logf("seed %d:\n%s", seed, diff)
					return
				}
			}
			t.Error("it is told as ever")
		})
	}
}

// mutated finds a mutation by its name.
func mutated(t *testing.T, name string) mutation {
	t.Helper()
	for _, m := range mutations() {
		if m.name == name {
			return m
		}
	}
	t.Fatalf("there is no mutation %q", name)
	return mutation{}
}

func readStory(t *testing.T, file string) *story.Story {
	t.Helper()
	s, err := story.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tell plays a story in a bubble of virtual time, and says what is not as it expects.
func tell(t *testing.T, s *story.Story, seed uint64, l *lab) (diff string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := storyWorld(s, seed, l)
		w.run()
		got := w.told()
		diff = s.Diff(&got)
		for _, step := range w.script.armed {
			diff += fmt.Sprintf("line %d: no %s process came to the moment of the %s (%s)\n", step.Line, step.Stage, step.Do, step.When)
		}
		for _, wrong := range w.wrong[:min(len(w.wrong), 3)] {
			diff += fmt.Sprintf("%.300s\n", wrong)
		}
	})
	return diff
}

// storyWorld is a world in which only that happens which a story says.
func storyWorld(s *story.Story, seed uint64, l *lab) *world {
	w := &world{
		seed: seed, bugs: l.bugs, lab: l, begin: story.Begin, end: story.Begin.Add(s.End()), stall: detectors.DefaultStall, script: newScript(s),
		states: map[int]ingest.PartitionStatus{}, halted: map[int]string{}, letters: map[[2]int64]bool{}, tables: map[string]map[string]row{},
		decided: map[string]int{}, releases: map[string]int{}, shown: map[[2]int]*shown{}, owned: make([]ownership, 3), published: map[string]int64{},
		seen: seen{folded: map[int]int64{}}, routings: []*rules.Routing{s.Routing()}, released: []traffic.Time{story.Begin},
	}
	w.calm.Store(true)
	w.requests, w.keyed, w.hits = newTopic(w, s.Partitions), newTopic(w, len(w.owned)), newTopic(w, 2)
	w.routers, w.detectors = newGroup(w, ingest.StageRoute, s.Partitions, 1), newGroup(w, ingest.StageDetect, len(w.owned), 2)
	w.recorders, w.keepers = newGroup(w, ingest.StageRecord, 2, 3), newGroup(w, ingest.StageEnforce, 2, 4)
	w.redis = newKeyspace(w)
	w.events = make([][]judge.Event, s.Partitions)
	for p := range s.Partitions {
		w.routers.commits[p] = ingest.InitialCommit(generation, 0, 0, len(w.owned))
	}
	modes := map[string]int64{}
	for i := range s.Rules {
		modes[s.Rules[i].ID] = 1
		w.modes = append(w.modes, judge.Mode{Rule: s.Rules[i].ID, Generation: 1})
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		at := w.begin.Add(step.At)
		switch step.Do {
		case story.ActEvent:
			value := format.AppendEvent(nil, &step.Request)
			part := &w.requests.parts[step.Partition]
			part.records = append(part.records, entry{at: at, value: value, shown: value})
		case story.ActSilent:
			w.outages = append(w.outages, outage{step.Partition, at, at.Add(step.For)})
		case story.ActPromote, story.ActDemote:
			modes[step.Rule]++
			w.modes = append(w.modes, judge.Mode{
				From: int64(at), Rule: step.Rule, Generation: modes[step.Rule], Blocks: step.Do == story.ActPromote,
			})
		case story.ActRelease:
			w.releases[judge.Name(string(step.Subject), step.Rule)]++
		}
	}
	return w
}

// told is what came of a story. What the judges find that know no story is in w.wrong.
func (w *world) told() (o story.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range w.letters {
		w.say("event %d/%d is a dead letter", at[0], at[1])
	}
	for q, why := range w.halted {
		w.say("keyed partition %d has stopped: %s", q, why)
	}
	records := w.judgeHits()
	w.wrong = append(w.wrong, w.enforcement(records).Blocks().Wrong...)
	once := map[string]bool{}
	var hits []detectors.Hit
	for p := range w.hits.parts {
		for _, r := range w.hits.parts[p].records {
			if h, err := detectors.DecodeHit(r.value); err == nil && !once[string(r.value)] {
				hits = append(hits, h)
			}
			once[string(r.value)] = true
		}
	}
	o.Expect = story.Tell(hits)
	o.Blocks, o.Enforced = w.blocks(), true
	return o
}

// blocks are all that ever stood: a block that was set after a release of the one before it is another one.
func (w *world) blocks() (out []story.Line) {
	type block struct {
		rule, subject string
		until         int64
		since         int64
		released      bool
	}
	var list []*block
	newest := map[string]*block{}
	for i := range w.changes {
		c := &w.changes[i]
		name := judge.Name(c.Subject, c.Rule)
		b := newest[name]
		switch {
		case c.Tombstone && b != nil && c.Since >= b.since:
			b.released = true
		case c.Tombstone || c.Removed:
		case b == nil || b.released:
			newest[name] = &block{rule: c.Rule, subject: c.Subject, until: c.Until, since: c.Since}
			list = append(list, newest[name])
		default:
			b.until = max(b.until, c.Until)
		}
	}
	for _, b := range list {
		out = append(out, story.BlockLine(traffic.Subject(b.subject), b.rule, traffic.Time(b.until), b.released))
	}
	return out
}
