// Package acts is the one place through which people change an installation: promote and demote rules, apply and roll
// back documents, raise limits, block and release sources, edit allow lists, reset counts and let partitions go on.
// Pages, API and command line call it alike, so the same question gets the same answer and the same entry in the audit
// trail, whoever asks it and from where.
//
// Each act says who does it (access.Actor) and why, is checked by access.May against the owner of what it changes, and is
// carried out by ports: the rule store, Redis, the hits topic. Where one of them goes away in the middle, the answer says what was
// done and what was not.
package acts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/bounds"
	"github.com/weirhq/weir/traffic"
)

// Acts is what people do to an installation: Service does it here, console/remote asks a server to. All of them check
// the actor and the reason first. Their errors are *access.Forbidden, *BeyondError, *Invalid, *UnknownName,
// *ChangedError, *GapChangedError, *NotStoppedError, *UnfinishedError, what the rule store refuses with, and what is
// away.
type Acts interface {
	// Evidence gathers what a promotion would be judged by. It changes nothing.
	Evidence(ctx context.Context, actor access.Actor, q EvidenceRequest) (EvidenceShown, error)
	// Promote lets a rule, or its pending version, block, or makes it a canary.
	Promote(ctx context.Context, actor access.Actor, r PromoteRequest) (ModeDone, error)
	// SetMode puts a rule into shadow (demote, enable) or off (disable).
	SetMode(ctx context.Context, actor access.Actor, r ModeRequest) (ModeDone, error)
	// SetLimit raises a rule's limit for a time, or ends that.
	SetLimit(ctx context.Context, actor access.Actor, r LimitRequest) (rulestore.LimitSet, error)
	// Apply makes the stored rules and allow lists those of documents.
	Apply(ctx context.Context, actor access.Actor, r ApplyRequest) (ApplyDone, error)
	// Try tells what documents would do, were they applied. It changes nothing.
	Try(ctx context.Context, actor access.Actor, r TryRequest) (Tried, error)
	// Rollback applies an older document of a rule as a new version.
	Rollback(ctx context.Context, actor access.Actor, r RollbackRequest) (ApplyDone, error)
	// Release lifts the block of a source.
	Release(ctx context.Context, actor access.Actor, r ReleaseRequest) (ReleaseDone, error)
	// Block blocks a source for a time, whatever rules say.
	Block(ctx context.Context, actor access.Actor, r BlockRequest) (BlockDone, error)
	// NeverBlockList is who is never blocked. ChangeNeverBlock adds entries to it, and lifts the blocks that they
	// cover, or removes entries.
	NeverBlockList(ctx context.Context, actor access.Actor) ([]NeverListed, error)
	ChangeNeverBlock(ctx context.Context, actor access.Actor, r NeverRequest) (NeverDone, error)
	// ChangeAllow adds entries to an allow list, or removes them.
	ChangeAllow(ctx context.Context, actor access.Actor, r AllowRequest) (AllowDone, error)
	// ResetCount sets what a rule has counted of a source back to nothing.
	ResetCount(ctx context.Context, actor access.Actor, r ResetRequest) (rulestore.CounterResetDone, error)
	// Erase takes a person out of history.
	Erase(ctx context.Context, actor access.Actor, r EraseRequest) (ErasureState, error)
	// Partitions are those of the live stream as the stages last reported them. ResumePartition accepts a gap, so that
	// a partition that stopped goes on.
	Partitions(ctx context.Context, actor access.Actor) ([]Partition, error)
	ResumePartition(ctx context.Context, actor access.Actor, r ResumeRequest) (ResumeDone, error)
}

var _ Acts = (*Service)(nil)

// Rules is what acts change in the rule store, each act in one transaction with its entry of the audit trail.
type Rules interface {
	Lookup
	SetMode(ctx context.Context, c rulestore.ModeChange) (rulestore.ModeSet, error)
	RaiseLimit(ctx context.Context, c rulestore.LimitChange) (rulestore.LimitSet, error)
	Apply(ctx context.Context, docs []rulestore.Document, author, reason string, opts rulestore.ApplyOptions) (rulestore.Plan, error)
	ChangeAllowList(ctx context.Context, id string, by audit.Entry,
		change func(l *rules.AllowList, now traffic.Time) error) (rulestore.AllowChange, error)
	ResetCounter(ctx context.Context, c rulestore.CounterReset) (rulestore.CounterResetDone, error)
	// Overtake numbers what is stored above what others name.
	Overtake(ctx context.Context, named rulestore.Named, by, via, decided string) (rulestore.Overtaken, error)
}

// Lookup is what acts look up before they change it.
type Lookup interface {
	// Find returns a rule with its versions, also a removed one; postgres.ErrNotFound is wrapped for an unknown one.
	Find(ctx context.Context, id string) (rulestore.Rule, error)
	// List returns all rules that have not been removed.
	List(ctx context.Context) ([]rulestore.Rule, error)
	// Names are the ids of the rules that a stream has or had.
	Names(ctx context.Context, stream string) ([]string, error)
	// Modes are what gates are to know.
	Modes(ctx context.Context) ([]rules.ModeState, error)
	// AllowLists returns all allow lists that have not been removed.
	AllowLists(ctx context.Context) ([]rulestore.AllowList, error)
}

var _ Rules = (*rulestore.Store)(nil)

// Gates is how gates hear of modes.
type Gates interface {
	// Publish makes modes known to all gates. news counts those that they did not know yet; at is where it was told.
	Publish(ctx context.Context, modes []rules.ModeState) (news int, at string, err error)
}

// Blocks is what acts ask of Redis.
type Blocks interface {
	// Ready waits a while for Redis, and returns why it does not answer: a *blocklist.ForeignError where it is another
	// installation's, whose blocks are nobody's to release here.
	Ready(ctx context.Context) error
	Get(ctx context.Context, subject traffic.Subject, rule string) (*blocklist.Block, *blocklist.Tombstone, error)
	Containing(ctx context.Context, now traffic.Time, q blocklist.Containing) (blocklist.Listing, error)
	// Each visits the blocks that are wanted until take returns false. It may visit one twice.
	Each(ctx context.Context, now traffic.Time, wanted blocklist.Wanted,
		take func(blocklist.Listed) (more bool)) (unreadable int, err error)
	WaitReleased(ctx context.Context, request *detectors.Hit) (blocklist.Tombstone, error)
}

// Releases takes releases to ENFORCE, in order with the hits that they answer.
type Releases interface {
	Append(ctx context.Context, release *detectors.Hit) error
}

// Documents reads rule documents as this installation judges them.
type Documents interface {
	// Read parses files. lists are the ids of the allow lists that rules may name beside those of the files; warnings tell what is
	// probably not meant. What is wrong is rules.Problems.
	Read(files []File, lists []string) (set *rules.Set, warnings []rules.Problem, err error)
}

// Options are the ports of a Service. All are required, but for Erasing, NeverBlock and Trials.
type Options struct {
	Erasing   Erasing
	Rules     Rules
	Gates     Gates
	Blocks    Blocks
	Releases  Releases
	Documents Documents
	Dossiers  Dossiers
	Orders    Orders
	Knows     Knows
	Trials    Trials // nil: nothing is tried
	// Bounds are what the rules of owners may reach; nil: nobody is bound.
	Bounds bounds.Bounds
	// Masking says who is shown pseudonyms; its zero value: nobody.
	Masking Masking
	// Partitions has what stages report of partitions.
	Partitions PartitionStore
	// NeverBlock are the addresses that are never blocked; its zero value is an empty list.
	NeverBlock blocklist.NeverBlock
	Clock      func() traffic.Time
	Logger     *slog.Logger
}

// Service carries acts out. It is safe for concurrent use.
type Service struct {
	o        Options
	erasures erasures
	gaps     // Partitions and ResumePartition
}

// New makes a Service.
func New(o Options) (*Service, error) {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Rules", o.Rules != nil}, {"Gates", o.Gates != nil}, {"Blocks", o.Blocks != nil}, {"Releases", o.Releases != nil},
		{"Documents", o.Documents != nil}, {"Dossiers", o.Dossiers != nil}, {"Orders", o.Orders != nil},
		{"Knows", o.Knows != nil}, {"Partitions", o.Partitions != nil},
		{"Clock", o.Clock != nil}, {"Logger", o.Logger != nil},
	} {
		if !p.given {
			return nil, fmt.Errorf("acts: %s is missing", p.name)
		}
	}
	s := &Service{o: o}
	s.gaps = gaps{o.Partitions, s.log}
	return s, nil
}

// maxReason bounds a reason, in bytes: it is shown in one line of a list.
const maxReason = 2000

// CheckReason refuses what says nothing. The … of a command that was pasted is none.
func CheckReason(reason string) error {
	if !strings.ContainsFunc(reason, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
		return &Invalid{Field: "reason", Got: reason, Allowed: "words that say why, for the audit trail"}
	}
	if len(reason) > maxReason {
		return &Invalid{Field: "reason", Got: fmt.Sprintf("%d bytes", len(reason)), Allowed: fmt.Sprintf("%d bytes", maxReason)}
	}
	return nil
}

// named finds a rule, also one that was removed. The error about a name that no rule has knows the others.
func (s *Service) named(ctx context.Context, rule string) (rulestore.Rule, error) {
	r, err := s.o.Rules.Find(ctx, rule)
	return r, s.misnamed(ctx, rule, err)
}

// misnamed says of what failed because no rule has the name which there are; any other error stays.
func (s *Service) misnamed(ctx context.Context, rule string, err error) error {
	if !errors.Is(err, postgres.ErrNotFound) {
		return err
	}
	names, nerr := s.o.Rules.Names(ctx, liveStream)
	switch {
	case nerr != nil:
		return errors.Join(err, nerr)
	case slices.Contains(names, rule): // it was removed: the store says when
		return err
	}
	return &UnknownName{Thing: "rule", Name: rule, Known: names}
}

// liveStream is the stream whose rules people decide about.
const liveStream = "live"

// log tells what was done: the audit trail has the act itself, and this where it came from.
func (s *Service) log(actor access.Actor, act access.Act, object string) {
	s.o.Logger.Info("done", "act", string(act), "object", object, "by", actor.Name, "role", actor.Role.String(), "via", actor.Via)
}

// Publication is whether gates have been told of the modes that an act has left in the rule store.
type Publication struct {
	Published   bool   `json:"published"`
	Unpublished string `json:"unpublished,omitempty" mask:"line"` // why not

	// Overtaken says of which rules Redis knew later modes than the rule store, and what became of them.
	Overtaken []string `json:"overtaken,omitempty" mask:"lines"`

	overtaken []rulestore.OvertakenOne

	News int    `json:"-"`          // modes that Redis did not know yet
	At   string `json:"-" mask:"-"` // where they were told; empty where that is not this process's to say
}

// publishTimeout bounds how long an act that has changed a rule waits for Redis to take it. The change is stored by then, and weir
// run publishes what nobody else could.
const publishTimeout = 5 * time.Second

// publish makes the stored modes known to all gates, so that a promotion or demotion takes effect without any other process. A
// Redis that does not take them is no failure of the act. Whoever has asked may be gone by now: what is stored is told all the same.
// Where Redis has later modes, what is stored is numbered above them, and told again; decided is the rule whose mode
// was just set.
func (s *Service) publish(ctx context.Context, actor access.Actor, decided string) Publication {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	p := Publication{}
	err := tellGates(ctx, &s.o, &p)
	if ahead := (*blocklist.ModesAheadError)(nil); errors.As(err, &ahead) {
		done, oerr := s.o.Rules.Overtake(ctx, rulestore.Named{Modes: ahead.Modes}, actor.Name, actor.Via, decided)
		p.Overtaken, p.overtaken = done.Lines(), done.Rules
		err = errors.Join(oerr, tellGates(ctx, &s.o, &p)) // a rule that cannot be overtaken keeps no other one back
	}
	p.Published = err == nil
	if err != nil {
		p.Unpublished = err.Error()
	}
	return p
}

func tellGates(ctx context.Context, o *Options, p *Publication) error {
	modes, err := o.Rules.Modes(ctx)
	if err == nil {
		p.News, p.At, err = o.Gates.Publish(ctx, modes)
	}
	return err
}
