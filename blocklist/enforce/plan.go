package enforce

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

// hitRecord is one record of the hits topic.
type hitRecord struct {
	hit     detectors.Hit
	message traffic.Message
}

// Reasons of records without effect.
const (
	ignoredKind      = "kind"       // neither hit nor release
	ignoredPhase     = "phase"      // merged: no offence
	ignoredGrouped   = "grouped"    // a field of the key is missing
	ignoredNoSubject = "no_subject" // nobody to block
	ignoredMode      = "mode"       // the rule does not block
	ignoredClosed    = "closed"     // a closing hit that has nothing to raise
	ignoredExpired   = "expired"    // the block or tombstone is over already
	ignoredUnchanged = "unchanged"  // what stands lasts as long or longer
	ignoredRepeated  = "repeated"   // decided before, and told
)

func ignoredReasons() []string {
	return []string{
		ignoredKind, ignoredPhase, ignoredGrouped, ignoredNoSubject, ignoredMode, ignoredClosed, ignoredExpired, ignoredUnchanged, ignoredRepeated,
	}
}

// Stage is the name of ENFORCE in dead letters. It is ingest.StageEnforce, of a package that users of the blocklist need not build.
const Stage = "enforce"

// reasonMalformed is why a record is a dead letter: it does not decode.
const reasonMalformed = "malformed"

// DeadReasons are all reasons of dead letters of ENFORCE.
func DeadReasons() []string { return []string{reasonMalformed} }

// read decodes the batch; a record that is no hit becomes a dead letter. A hit that a newer build wrote ends the reading: newer
// is its error, and the hits before it are to take effect.
func (e *Enforcer) read(s *batchState, batch []traffic.Message) (records []*hitRecord, newer error) {
	records = make([]*hitRecord, 0, len(batch))
	for _, m := range batch {
		hit, err := detectors.DecodeHit(m.Value)
		if unknown := (*detectors.UnknownFormatError)(nil); errors.As(err, &unknown) {
			return records, fmt.Errorf("%s partition %d offset %d: %w", e.o.Topic, m.Partition, m.Offset, err)
		}
		if err != nil {
			e.refuse(s, m, err)
			continue
		}
		records = append(records, &hitRecord{hit: hit, message: m})
	}
	return records, nil
}

func (e *Enforcer) refuse(s *batchState, m traffic.Message, err error) {
	detail := strings.ToValidUTF8(err.Error(), "\uFFFD")
	s.letters = append(s.letters, traffic.NewDeadLetter(Stage, reasonMalformed, detail, e.o.Topic, m))
}

// planAll plans the records in their order. The waits for the rule store, of all records together, last at most
// versionsTimeout: there may be releases among the records.
func (e *Enforcer) planAll(ctx context.Context, s *batchState, records []*hitRecord, modes map[string]rules.ModeState) error {
	learning, cancel := context.WithTimeout(ctx, versionsTimeout)
	defer cancel()
	for _, r := range records {
		e.plan(learning, s, r, modes)
		if err := ctx.Err(); err != nil {
			return err // what could not be learned because the process ends is nobody's decision
		}
	}
	return nil
}

// plan decides what a record should do, without looking at Redis.
func (e *Enforcer) plan(ctx context.Context, s *batchState, r *hitRecord, modes map[string]rules.ModeState) {
	s.kind(r.hit.Kind)
	switch r.hit.Kind {
	case detectors.KindHit:
		e.planHit(ctx, s, r, modes)
	case detectors.KindRelease:
		e.planRelease(s, r, modes)
	default:
		s.ignore(ignoredKind)
	}
}

func (e *Enforcer) planHit(ctx context.Context, s *batchState, r *hitRecord, modes map[string]rules.ModeState) {
	h := &r.hit
	mode, known := modes[h.Rule]
	known = known || e.modes.complete()
	switch {
	case h.Phase != detectors.PhaseOpen && h.Phase != detectors.PhaseUpdate && h.Phase != detectors.PhaseClosed:
		s.ignore(ignoredPhase)
		return
	case h.Grouped:
		s.ignore(ignoredGrouped)
		return
	case h.BlockSubject == "":
		s.ignore(ignoredNoSubject)
		return
	case known && !mode.Mode.Blocks():
		// The rule's document names a block, but only a promotion gives it effect.
		s.ignore(ignoredMode)
		if mode.Mode == rules.ModeShadow {
			e.planShadow(s, r, &mode)
		}
		return
	}
	if err := checkHit(blocklist.Name{Subject: h.BlockSubject, Rule: h.Rule}, h); err != nil {
		e.refuse(s, r.message, err)
		return
	}
	f := newEffect(r)
	if !known {
		s.withhold(f, blocklist.ReasonUnlearned)
		return
	}
	terms, reason := e.versions.allows(ctx, h, &mode)
	f.block = blocklist.NewBlock(h.Rule, mode.Generation, h.ID, h.First, terms.Until(h.First, h.Last))
	if reason != "" {
		s.withhold(f, reason)
		return
	}
	if !blocklist.Storable(f.block.Until) {
		e.refuse(s, r.message, fmt.Errorf("hit %s: its block would last until %s", h.ID, f.block.Until))
		return
	}
	if !e.within(&mode, f.Name) {
		e.planOutside(s, f, &terms)
		return
	}
	e.planRaise(s, f, &terms)
}

// within reports whether a block may be written under a mode: all of a rule that blocks, of a canary those within its share.
func (e *Enforcer) within(mode *rules.ModeState, key blocklist.Name) bool {
	return mode.Holds(func() promotion.Share { return promotion.Side(e.o.Secret, key.Rule, string(key.Subject)) })
}

// planOutside withholds what only the rest of a canary would block, and counts that as what would be. What stands against the block
// anyway is the reason that is told.
func (e *Enforcer) planOutside(s *batchState, f *effect, terms *holding.Terms) {
	switch withheld, ignored := e.judge(s.now, f, terms); {
	case ignored != "":
		s.ignore(ignored)
		return
	case withheld != "":
		s.withhold(f, withheld)
		return
	case f.extendOnly:
		s.ignore(ignoredClosed)
	default:
		s.withhold(f, blocklist.ReasonCanary)
	}
	s.would = append(s.would, wouldBe{f, ""})
}

// planRaise asks for the block of f unless something stands against it.
func (e *Enforcer) planRaise(s *batchState, f *effect, terms *holding.Terms) {
	switch withheld, ignored := e.judge(s.now, f, terms); {
	case ignored != "":
		s.ignore(ignored)
	case withheld != "":
		s.withhold(f, withheld)
	default:
		s.add(f)
	}
}

// judge says whether lag, the never-block list or time itself stand against the block of f: why it is withheld, or why the hit has
// no effect at all. It sets whether f may only extend a block.
func (e *Enforcer) judge(now traffic.Time, f *effect, terms *holding.Terms) (withheld, ignored string) {
	h := f.record.hit.Holding(f.block.Generation)
	f.extendOnly = h.Phase == holding.Closing
	if e.never.Now().Holds(f.Subject) {
		if f.extendOnly {
			return "", ignoredClosed
		}
		return blocklist.ReasonNeverBlock, ""
	}
	switch terms.Claim(&h, now) {
	case holding.TooOld:
		return blocklist.ReasonMaxLag, ""
	case holding.Over:
		return blocklist.ReasonExpired, ""
	case holding.RunOut:
		return "", ignoredExpired
	case holding.Nothing:
		return "", ignoredClosed
	}
	return "", ""
}

// planRelease asks for a tombstone. Its time is the log's, so that a replay finds the tombstone that it made.
func (e *Enforcer) planRelease(s *batchState, r *hitRecord, modes map[string]rules.ModeState) {
	h := &r.hit
	at := r.message.Appended
	if at <= 0 {
		at = h.Seen
	}
	err := errors.Join(blocklist.Name{Subject: h.BlockSubject, Rule: h.Rule}.Check(), checkID(h.ID))
	if until := at.Add(e.o.TombstoneTTL); err == nil && (!blocklist.Storable(at) || !blocklist.Storable(until)) {
		err = fmt.Errorf("release %s: time %s", h.ID, at)
	}
	if err != nil {
		e.refuse(s, r.message, err)
		return
	}
	f := newEffect(r)
	f.release, f.generation = true, modes[h.Rule].Generation
	f.tombstone = blocklist.NewTombstone(h.Rule, h.By, at, at.Add(e.o.TombstoneTTL))
	f.tombstone.Request = h.ID
	if f.tombstone.Until <= s.now {
		s.ignore(ignoredExpired)
		return
	}
	s.add(f)
}

// checkHit says what makes a hit unfit to block anybody.
func checkHit(key blocklist.Name, h *detectors.Hit) error {
	if err := errors.Join(key.Check(), checkID(h.ID)); err != nil {
		return fmt.Errorf("hit %q: %w", h.ID, err)
	}
	if !blocklist.Storable(h.First) || !blocklist.Storable(h.Last) || h.First > h.Last {
		return fmt.Errorf("hit %s: first over event at %s, last at %s", h.ID, h.First, h.Last)
	}
	return nil
}

// maxIDBytes bounds ids; those of detectors have 32.
const maxIDBytes = 64

// checkID says what makes an id unfit for a block value, a header and a log line.
func checkID(id string) error {
	if id == "" || len(id) > maxIDBytes {
		return fmt.Errorf("id: got %d bytes, allowed: 1 to %d", len(id), maxIDBytes)
	}
	for i := 0; i < len(id); i++ {
		if c := id[i]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
			return fmt.Errorf("id: got byte %q, allowed: letters, digits and '-'", c)
		}
	}
	return nil
}
