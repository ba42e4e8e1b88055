package acts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ReleaseRequest asks to lift the block of a source.
type ReleaseRequest struct {
	Rule string `json:"rule"`
	// Subject is the canonical subject of the block: ip=192.0.2.1%2F32&device=tv-7.
	Subject traffic.Subject `json:"subject"`
	// Force releases although no block is seen: no hit from before blocks the source.
	Force bool `json:"force,omitempty"`
	// Wait is how long to wait until ENFORCE has acted; at most MaxReleaseWait. 0: do not wait.
	Wait   time.Duration `json:"wait_ns,omitempty"`
	Reason string        `json:"reason"`
}

// MaxReleaseWait bounds ReleaseRequest.Wait.
const MaxReleaseWait = 10 * time.Minute

// ReleaseDone is what became of a release.
type ReleaseDone struct {
	Rule    string          `json:"rule" mask:"name"`
	Subject traffic.Subject `json:"subject"`
	// id of the record that releases; absent: nothing was released
	Release string `json:"release,omitempty" mask:"-"`
	Done    bool   `json:"done"`    // ENFORCE has acted on it
	Blocked *bool  `json:"blocked"` // whether a block stood; null: it is not known
	Problem string `json:"problem,omitempty" mask:"line"`
	// Offers are the blocks that contain what was named, where that is not one of them. OffersCut: there may be more.
	Offers    []ReleaseOffer `json:"offers"`
	OffersCut bool           `json:"offers_cut,omitempty"`
	// Notes tell what could not be asked.
	Notes []string `json:"notes,omitempty" mask:"line"`
	// Until is when the block would have ended that was seen before.
	Until traffic.Time `json:"until,omitzero"`
}

// ReleaseOffer is a block that could be released instead.
type ReleaseOffer struct {
	Subject traffic.Subject `json:"subject"`
	Until   traffic.Time    `json:"until"`
	InForce bool            `json:"in_force"`
}

// MisshapenError says that a source has not the fields of a rule's blocks; nothing was released.
type MisshapenError struct{ Problem string }

func (e *MisshapenError) Error() string { return e.Problem }

// NotBlockedError says that no block stands for a source; nothing was released.
type NotBlockedError struct {
	Rule    string
	Subject traffic.Subject
}

func (e *NotBlockedError) Error() string {
	return fmt.Sprintf("nothing was blocked: no block of rule %s stands for %s, and nothing was released", e.Rule, e.Subject)
}

// releasing is one release.
type releasing struct {
	*Service
	ReleaseRequest
	actor  access.Actor
	keys   [][]traffic.KeyField // of the rule's blocks
	report ReleaseDone
}

// Release lifts a block: it goes, at every gate, and no hit from before blocks the source again. The release goes to ENFORCE by the
// hits topic, which audits it. Where nothing is released, the error is *MisshapenError or *NotBlockedError, and the blocks that
// contain what was named are offered. *UnfinishedError: it is on its way, and ENFORCE has not acted.
func (s *Service) Release(ctx context.Context, actor access.Actor, r ReleaseRequest) (ReleaseDone, error) {
	if err := CheckReason(r.Reason); err != nil && !(r.Reason == "" && actor.Via == access.ViaLocal) { // the way out is open at the machine itself
		return ReleaseDone{}, err
	}
	if r.Wait < 0 || r.Wait > MaxReleaseWait {
		return ReleaseDone{}, &Invalid{Field: "wait", Got: r.Wait.String(), Allowed: "0 to " + MaxReleaseWait.String()}
	}
	if err := access.MayAny(actor, access.Release); err != nil {
		return ReleaseDone{}, err
	}
	keys, err := s.blockKeys(ctx, actor, r.Rule, r.Subject)
	if err != nil {
		return ReleaseDone{}, err
	}
	if _, err := r.Subject.Values(); err != nil {
		return ReleaseDone{}, &Invalid{Field: "subject", Got: string(r.Subject), Allowed: "a canonical subject like ip=192.0.2.1%2F32&device=tv-7"}
	}
	l := releasing{Service: s, ReleaseRequest: r, actor: actor, keys: keys, report: ReleaseDone{Rule: r.Rule,
		Subject: r.Subject.Stored(), Offers: []ReleaseOffer{}}}
	fits := slices.ContainsFunc(keys, func(key []traffic.KeyField) bool { return SameFields(l.report.Subject, key) })
	err = l.run(ctx, actor, fits)
	if l.report.Release != "" {
		s.log(actor, access.Release, fmt.Sprintf("block %s %s", r.Rule, l.report.Subject))
	}
	return l.report, err
}

// blockKeys are the keys of the blocks of a rule that actor may release. Blocks by hand may have any.
func (s *Service) blockKeys(ctx context.Context, actor access.Actor, id string,
	source traffic.Subject) ([][]traffic.KeyField, error) {
	if rules.IsByHand(id) {
		return [][]traffic.KeyField{keyOf(source)}, access.May(actor, access.Release, "")
	}
	rule, err := s.named(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := access.May(actor, access.Release, rule.Newest.Version.Owner); err != nil {
		return nil, err
	}
	keys := BlockKeys(&rule)
	if len(keys) == 0 {
		return nil, fmt.Errorf("rule %s has no block in any version, so it blocks nobody", id)
	}
	return keys, nil
}

// keyOf is the key that a source has the fields of.
func keyOf(source traffic.Subject) []traffic.KeyField {
	key := []traffic.KeyField{}
	values, err := source.Values()
	if err != nil {
		return key
	}
	for _, v := range values {
		if f, known := traffic.ParseField(v.Field); known {
			key = append(key, traffic.KeyField{Field: f})
		}
	}
	return key
}

// BlockKeys are the keys of a rule's blocks, of the newest version first: blocks of older ones may still stand.
func BlockKeys(rule *rulestore.Rule) [][]traffic.KeyField {
	var keys [][]traffic.KeyField
	for i := range rule.Versions {
		if b := rule.Versions[i].Version.Block; b != nil {
			keys = append(keys, b.Key)
		}
	}
	return keys
}

// SameFields reports whether a source has exactly the fields of a key.
func SameFields(source traffic.Subject, key []traffic.KeyField) bool {
	values, err := source.Values()
	if err != nil || len(values) != len(key) {
		return false
	}
	for _, v := range values {
		if !slices.ContainsFunc(key, func(k traffic.KeyField) bool { return k.Field.String() == v.Field }) {
			return false
		}
	}
	return true
}

func (l *releasing) run(ctx context.Context, actor access.Actor, fits bool) error {
	away := l.o.Blocks.Ready(ctx)
	if foreign := (*blocklist.ForeignError)(nil); errors.As(away, &foreign) {
		return foreign
	}
	if !fits {
		return l.misshapen(ctx, away)
	}
	block, err := l.look(ctx, away)
	switch {
	case err != nil: // the way out stays open while Redis cannot be asked
		l.note("%s; whether a block stands is not known, and the release is written all the same", l.cause(err))
	case block == nil && !l.Force:
		missing := &NotBlockedError{Rule: l.Rule, Subject: l.report.Subject}
		l.report.Problem = missing.Error()
		return missing
	}
	l.report.Offers, l.report.OffersCut = []ReleaseOffer{}, false // it is released, whatever else is blocked
	if block != nil {
		l.report.Until = block.Until
	}
	h, err := blocklist.NewRelease(l.report.Subject, l.Rule, actor.Name, l.Reason, l.o.Clock())
	if err != nil {
		return err
	}
	h.Via, h.Found = actor.Via, l.found()
	if err := l.o.Releases.Append(ctx, &h); err != nil {
		return &AwayError{Store: "Kafka", Consequence: "whether the release was written is not known; a second one does no harm", Cause: err}
	}
	l.report.Release = h.ID
	if away != nil || l.Wait <= 0 {
		return nil
	}
	return l.await(ctx, &h, block)
}

// found says for the audit trail what stood before.
func (l *releasing) found() string {
	switch {
	case l.report.Blocked == nil:
		return "not known whether a block stood"
	case !*l.report.Blocked:
		return "no block"
	}
	return "block until " + l.report.Until.Std().UTC().Format(time.RFC3339)
}

// await waits until ENFORCE has acted.
func (l *releasing) await(ctx context.Context, h *detectors.Hit, block *blocklist.Block) error {
	bounded, cancel := context.WithTimeout(ctx, l.Wait)
	defer cancel()
	tombstone, err := l.o.Blocks.WaitReleased(bounded, h)
	if err != nil {
		unfinished := &UnfinishedError{Done: "the release is in Kafka and will take effect", Undone: "whether ENFORCE has acted is not known", Cause: err}
		if errors.Is(err, context.DeadlineExceeded) {
			unfinished.Undone = fmt.Sprintf("ENFORCE has not acted within %s: is weir run --stages enforce running?", l.Wait)
		}
		l.report.Problem = Words(nil, l.actor, unfinished)
		return unfinished
	}
	stood := tombstone.Stood()
	l.report.Done, l.report.Blocked = true, &stood
	if block != nil && !stood { // it ended between the look and the release
		l.report.Problem = "nothing was blocked any more: the block had ended by itself"
	}
	return nil
}

// cause is why Redis was not asked, without its address for who is no admin.
func (l *releasing) cause(err error) string {
	if l.actor.Role >= access.Admin {
		return err.Error()
	}
	l.o.Logger.Warn("of a release something could not be asked", "rule", l.Rule, "error", err)
	return "Redis does not answer"
}

func (l *releasing) note(format string, args ...any) {
	l.report.Notes = append(l.report.Notes, fmt.Sprintf(format, args...))
}

// look finds the block of the named source, as it was named or as gates read that, or else the blocks that contain it.
// Blocks of an older weir, which has written long values whole, are found in the second way.
func (l *releasing) look(ctx context.Context, away error) (*blocklist.Block, error) {
	keyed := keyedSubject(l.Subject).Stored()
	if away != nil {
		l.report.Subject = keyed
		return nil, away
	}
	block, _, err := l.o.Blocks.Get(ctx, l.report.Subject, l.Rule)
	if err != nil {
		return nil, err
	}
	if block == nil && keyed != l.report.Subject {
		l.report.Subject = keyed
		if block, _, err = l.o.Blocks.Get(ctx, keyed, l.Rule); err != nil {
			return nil, err
		}
	}
	if block == nil {
		block = l.offer(ctx, l.report.Subject)
	}
	if address := withFields(l.report.Subject, []traffic.KeyField{{Field: traffic.FieldIP}}); block == nil && len(l.report.Offers) == 0 &&
		address != l.report.Subject {
		l.offer(ctx, address)
	}
	stands := block != nil
	l.report.Blocked = &stands
	return block, nil
}

// misshapen refuses a source whose fields are not those of the rule's blocks.
func (l *releasing) misshapen(ctx context.Context, away error) error {
	var allowed []string
	for _, k := range l.keys {
		if text := fieldsOf(k); !slices.Contains(allowed, text) {
			allowed = append(allowed, text)
		}
	}
	values, err := l.report.Subject.Values()
	if err != nil {
		return err
	}
	got := make([]string, len(values))
	for i, v := range values {
		got[i] = v.Field
	}
	l.report.Problem = fmt.Sprintf("SOURCE: got %s; allowed: %s, as the blocks of rule %s are keyed; nothing was released", strings.Join(got, ", "),
		strings.Join(allowed, " or "), l.Rule)
	if away == nil {
		l.offer(ctx, withFields(l.report.Subject, l.keys[0]))
	}
	return &MisshapenError{l.report.Problem}
}

// fieldsOf writes a key: ip, device.
func fieldsOf(key []traffic.KeyField) string {
	names := make([]string, len(key))
	for i, k := range key {
		names[i] = k.Field.String()
	}
	return strings.Join(names, ", ")
}

// withFields is the subject of those values of source whose fields key has; empty where there is none.
func withFields(source traffic.Subject, key []traffic.KeyField) traffic.Subject {
	var kept []string
	for value := range strings.SplitSeq(string(source), "&") {
		field, _, _ := strings.Cut(value, "=")
		if slices.ContainsFunc(key, func(k traffic.KeyField) bool { return k.Field.String() == field }) {
			kept = append(kept, value)
		}
	}
	return traffic.Subject(strings.Join(kept, "&"))
}

// offerTimeout is how long blocks are looked for that contain what was named.
const offerTimeout = 5 * time.Second

// offer gathers the blocks of the rule that contain source. One of source alone is given back, and is no offer.
func (l *releasing) offer(ctx context.Context, source traffic.Subject) *blocklist.Block {
	if source == "" {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	found, err := l.o.Blocks.Containing(bounded, l.o.Clock(), blocklist.Containing{Rule: l.Rule, Subject: source})
	if err != nil {
		l.note("blocks that contain %s: %s", source, l.cause(err))
		return nil
	}
	l.report.OffersCut = found.Cut
	for _, item := range found.Items {
		if item.Subject.Stored() == l.report.Subject {
			l.report.Offers, l.report.OffersCut = []ReleaseOffer{}, false
			return item.Block
		}
		l.report.Offers = append(l.report.Offers, ReleaseOffer{Subject: item.Subject, Until: item.Block.Until, InForce: item.InForce})
	}
	return nil
}
