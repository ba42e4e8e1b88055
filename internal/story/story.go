// Package story reads stories: YAML files that say which events come when, what fails meanwhile, and which hits and blocks
// must come of it. docs/stories.md describes them.
//
// A story is played by whoever has a stream: Fold plays its events through the windows alone, internal/simulation through
// all stages, with its kills and freezes. Both give an Outcome, and Diff says where that is not what the story expects.
package story

import (
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Begin is the time that a story's offsets count from: midnight, so that windows of the clock begin with it.
const Begin = traffic.Time(946_684_800_000_000) // 2000-01-01T00:00:00Z

// Story is one story.
type Story struct {
	Name       string // what the story says, in one sentence
	Teaches    string // why it is so; may be empty
	Rules      []rules.Version
	Allow      []rules.AllowList
	Partitions int    // source partitions of the requests topic
	Steps      []Step // in the order of At
	Expect     Expect
	Blocking   bool // every rule blocks from the beginning, as in the tests of a document; else it is in shadow
}

// Step is one thing that happens.
type Step struct {
	Line int           // in the file
	At   time.Duration // since the beginning; of an event: when it comes
	Do   Act

	Partition int             // ActEvent, ActSilent: the source partition
	Request   traffic.Request // ActEvent
	Stage     string          // ActKill, ActFreeze, ActRewind: by the names of ingest
	When      Moment          // ActKill
	For       time.Duration   // ActFreeze, ActSilent
	Rule      string          // ActPromote, ActDemote, ActRelease
	Subject   traffic.Subject // ActRelease: whom the block held
}

// Act is a kind of step.
type Act string

// The acts, by the field that a step names them with; an event has none.
const (
	ActEvent   Act = "event"
	ActKill    Act = "kill"    // the processes of a stage die
	ActFreeze  Act = "freeze"  // the one that is next to write stands still for a while, and then writes what it has in hand
	ActSilent  Act = "silent"  // nothing is heard of a source partition for a while
	ActPromote Act = "promote" // a rule begins to block
	ActDemote  Act = "demote"  // it returns to shadow
	ActRelease Act = "release" // an operator releases a block
	ActRewind  Act = "rewind"  // a stage begins to read again at the beginning
)

// Moment is when a kill happens.
type Moment string

// The moments.
const (
	Now            Moment = "now"             // of all processes of the stage, at the step's time
	MidChunk       Moment = "mid-chunk"       // of the router that next writes a chunk, behind its first batch
	BeforeSnapshot Moment = "before-snapshot" // of the detector that next has hits acknowledged, before its next snapshot
	BeforeCommit   Moment = "before-commit"   // of the process that is next to commit what it has applied
)

// rule finds a rule of the story; nil where it has none of that id.
func (s *Story) rule(id string) *rules.Version {
	for i := range s.Rules {
		if s.Rules[i].ID == id {
			return &s.Rules[i]
		}
	}
	return nil
}

// Routing is the routing version under which the story's events are routed.
func (s *Story) Routing() *rules.Routing {
	r := &rules.Routing{
		Stream: string(ingest.Live), Number: 1, RecordFormat: detectors.RecordFormat, SecretID: "s", Rules: s.Rules,
		Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: format.Weir, MaxEventBytes: format.DefaultMaxEventBytes},
	}
	r.WithAllow(s.Allow)
	return r
}

// End is when the last step is over.
func (s *Story) End() time.Duration {
	end := time.Duration(0)
	for i := range s.Steps {
		end = max(end, s.Steps[i].At+s.Steps[i].For)
	}
	return end
}
