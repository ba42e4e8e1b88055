package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Validate checks that r is whole and that its rules are what ParseFiles would have let pass. Errors of rules name the rule.
func (r *Routing) Validate() error {
	var errs []error
	say := func(ok bool, field string, got any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: got %v, allowed %s", field, got, allowed))
		}
	}
	say(r.Stream != "" && reading.Printable(r.Stream), "stream", quoteShort(r.Stream), "the name of a stream")
	say(r.Number >= 1, "number", r.Number, "1 and more")
	say(r.RecordFormat >= 1, "record_format", r.RecordFormat, "1 and more")
	say(r.SecretID != "" && reading.Printable(r.SecretID), "secret_id", quoteShort(r.SecretID), "the id of the deployment's secret")
	formats := format.Names()
	say(slices.Contains(formats, r.Format.Name), "format.name", quoteShort(r.Format.Name), strings.Join(formats, ", "))
	say(len(r.Format.Map) == 0 || format.TakesFieldMap(r.Format.Name), "format.map", "a map for "+quoteShort(r.Format.Name), "a map only for json and gateways' formats")
	say(r.Format.MaxEventBytes >= 1, "format.max_event_bytes", r.Format.MaxEventBytes, "1 and more")
	if err := r.CheckRecordFormat(); err != nil {
		errs = append(errs, err)
	}
	say(len(r.KnownGood) <= MaxWhenBytes, "known_good", fmt.Sprintf("an expression of %d bytes", len(r.KnownGood)), fmt.Sprintf("at most %d bytes", MaxWhenBytes))
	say(len(r.Rules) <= MaxRules, "rules", len(r.Rules), fmt.Sprintf("at most %d, with those that are pending", MaxRules))
	env := Environment{Identity: r.Identity}
	for i := range r.Rules {
		v := &r.Rules[i]
		// Keyed records name rules by index, and Find searches: the order is part of the version's meaning.
		switch {
		case v.Pending:
			r.checkPending(i, say)
		case i > 0:
			say(r.Rules[i-1].ID < v.ID, element("rules", i), quoteShort(v.ID)+" after "+quoteShort(r.Rules[i-1].ID), "rules ascending by id, each once")
		}
		if v.Raised != nil {
			say(!v.Pending && v.Raised.Limit > v.Limit && v.Raised.Limit <= MaxLimit && v.Raised.Until > 0, element("rules", i)+".raised",
				fmt.Sprintf("limit %d", v.Raised.Limit), fmt.Sprintf("for a live version a limit above %d, at most %d, until a time", v.Limit, MaxLimit))
		}
		say(v.Number >= 1, element("rules", i)+".version", v.Number, "1 and more")
		say(v.Lineage >= 1 && v.Lineage <= max(v.Number, 1), element("rules", i)+".lineage", v.Lineage, "1 to the version's number")
		if err := v.Document.Validate(env); err != nil {
			errs = append(errs, fmt.Errorf("rule %s: %w", quoteShort(v.ID), err))
		}
	}
	errs = append(errs, r.checkAllow(env)...)
	errs = append(errs, r.checkResets()...)
	if len(errs) > 0 {
		return fmt.Errorf("routing version %d of stream %s: %w", r.Number, quoteShort(r.Stream), errors.Join(errs...))
	}
	return nil
}

// checkPending checks the place of a pending version, the i-th: what is the rule is the live version before it, and its
// windows are no other version's.
func (r *Routing) checkPending(i int, say func(ok bool, field string, got any, allowed string)) {
	place, v := element("rules", i), &r.Rules[i]
	if i == 0 || r.Rules[i-1].ID != v.ID || r.Rules[i-1].Pending {
		say(false, place, quoteShort(v.ID)+" pending", "a pending version directly after the live one of the same rule, at most one")
		return
	}
	live := &r.Rules[i-1]
	say(v.Number > live.Number, place+".version", v.Number, fmt.Sprintf("above that of the live version, %d", live.Number))
	say(v.Lineage > live.Lineage, place+".lineage", v.Lineage, fmt.Sprintf("above that of the live version, %d", live.Lineage))
}

// Records, hits and identities that one process of a stream writes for another have a form that all of them know: the record
// format of the routing version. An operator raises it once every process of the installation is of a build that knows it
// (weir migrate --record-format).
const (
	// CountingRecordFormat is the first format that holds what a rule with an algorithm, count, burst or cooldown of its
	// own needs. A process that knows only older ones counts by one algorithm, events only, and would read over the
	// difference.
	CountingRecordFormat = 2
	// UncountedRecordFormat is the first under which hits may tell what rules did not count. Builds before it know no such
	// kind of hits, and would pass over them.
	UncountedRecordFormat = 3
	// EndTimeRecordFormat is the first under which the time of a request is when it was answered, also in the logs that
	// tell when it began. Routers of builds before it date it by its beginning, and one chunk must be dated one way.
	EndTimeRecordFormat = 3
	// ReadingRecordFormat is the first under which paths and identities are read as the gate reads them, however a client
	// spells them. Routers of builds before it take them as they stand, and one chunk must be routed one way.
	ReadingRecordFormat = 4
	// LanguageRecordFormat is the first whose records hold tiers and values beside the identity, and under which rules may
	// have the members that came with them: match by more than method and one path, conditions, keys of any field of an event,
	// near, candidate, tiers, allow. Processes of builds before it refuse documents with such members as a whole.
	LanguageRecordFormat = 5
	// PromotionRecordFormat is the first under which rules may have the members promote and canary. They change no record; processes of
	// builds before it refuse documents with them as a whole.
	PromotionRecordFormat = 6
	// EvidenceRecordFormat is the first whose records say which blocks would refuse a request that their rules do not count, and
	// whether the deployment knows its source to be good (Routing.KnownGood). Such a record may name no rule that counts the event;
	// processes of builds before it know none like that.
	EvidenceRecordFormat = 6
	// RefusalRecordFormat is the first under which requests that a gate refused are in the keyed log, and hits tell of
	// them. Processes of builds before it know no such records.
	RefusalRecordFormat = 7
	// BudgetRecordFormat is the first under which conditions have a budget together (condition.MaxEventCost). It
	// changes no record; routers of builds before it judge all conditions, and one chunk must be routed one way.
	BudgetRecordFormat = 8
)

// Reset sets what one key of a rule has counted back to nothing: in every window of the rule, whatever its lineage, before the first
// event that a keyed partition folds under version Since or a later one. It names all that this takes, so that it means the same after
// an edit of the rule.
type Reset struct {
	Rule    string             `json:"rule"`
	Key     []traffic.KeyField `json:"key"`     // of the rule
	Subject traffic.Subject    `json:"subject"` // of the key, with its values as they are counted
	Since   int64              `json:"since"`   // the routing version that brought it
	At      traffic.Time       `json:"at"`      // when it was stored
}

const (
	// MaxResets bounds the resets that a routing version names.
	MaxResets = 1000
	// ResetKept is how long routing versions name a reset. A partition applies it at its first event since then: one that has had
	// none for so long has no window left in which the key could have been counted before (MaxWindow), and no record of before that
	// is still to be folded (the keyed topic keeps less).
	ResetKept = 62 * 24 * time.Hour
)

// KeepResets drops the resets that no partition needs any more at now.
func (r *Routing) KeepResets(now traffic.Time) {
	r.Resets = slices.DeleteFunc(slices.Clone(r.Resets), func(x Reset) bool { return now.Std().Sub(x.At.Std()) > ResetKept })
	if len(r.Resets) == 0 {
		r.Resets = nil
	}
}

// Reset adds a reset, in the place of an earlier one of the same key: who applies this one needs that one no more.
func (r *Routing) Reset(x Reset) {
	same := func(o Reset) bool { return o.Rule == x.Rule && o.Subject == x.Subject && slices.Equal(o.Key, x.Key) }
	r.Resets = append(slices.DeleteFunc(slices.Clone(r.Resets), same), x)
}

// checkResets returns what is wrong with the resets of r.
func (r *Routing) checkResets() (errs []error) {
	if len(r.Resets) > MaxResets {
		errs = append(errs, fmt.Errorf("resets: got %d, allowed %d", len(r.Resets), MaxResets))
	}
	for i := range r.Resets {
		x, place := &r.Resets[i], element("resets", i)
		if x.Rule == "" || !reading.Printable(x.Rule) || len(x.Key) > traffic.MaxKeyFields {
			errs = append(errs, fmt.Errorf("%s: got rule %s with a key of %d fields, allowed the name of a rule and up to %d", place, quoteShort(x.Rule), len(x.Key), traffic.MaxKeyFields))
		}
		if _, err := x.Subject.Named(x.Key); err != nil {
			errs = append(errs, fmt.Errorf("%s.subject: %w", place, err))
		}
		if x.Since < 1 || x.Since > r.Number || i > 0 && r.Resets[i-1].Since > x.Since {
			errs = append(errs, fmt.Errorf("%s.since: got %d, allowed 1 to the version's number, %d, ascending", place, x.Since, r.Number))
		}
	}
	return errs
}

// ResetMayBlockMore gives the reasons why a reset of a count could make a rule of this document block a source that it would not block
// otherwise, or for longer. None means that it cannot: what is over after a reset would have been over without it.
func ResetMayBlockMore(d *Document) (reasons []string) {
	if d.Block == nil {
		return nil
	}
	if !d.monotone() {
		reasons = append(reasons, fmt.Sprintf("algorithm %s, count %s: without the events before it, one may be over that was not", d.Counting(), d.Count))
	}
	if d.Block.Extend == ExtendNever {
		reasons = append(reasons, "extend never: one episode may become several, and each opening blocks")
	}
	return reasons
}

// CheckRecordFormat refuses rules that count, or read paths, in a way that the version's record format cannot hold, and
// identities that are read in a way that builds of it do not know.
func (r *Routing) CheckRecordFormat() error {
	if err := r.checkIdentityFormat(); err != nil {
		return err
	}
	if len(r.Resets) > 0 && r.RecordFormat < LanguageRecordFormat {
		return fmt.Errorf("resets: got %d in record format %d, allowed from record format %d on: weir migrate --record-format %[3]d raises it, once every process knows it",
			len(r.Resets), r.RecordFormat, LanguageRecordFormat)
	}
	if r.KnownGood != "" && r.RecordFormat < EvidenceRecordFormat {
		return fmt.Errorf("known_good: got %s in record format %d, allowed from record format %d on: weir migrate --record-format %[3]d raises it, once every process knows it",
			quoteShort(r.KnownGood), r.RecordFormat, EvidenceRecordFormat)
	}
	for i := range r.Rules {
		d := r.Rules[i].normal()
		refuse := func(got string, from int) error {
			return fmt.Errorf("rule %s: got %s in record format %d, allowed from record format %d on: weir migrate --record-format %[4]d raises it, once every process knows it",
				quoteShort(d.ID), got, r.RecordFormat, from)
		}
		if r.RecordFormat < CountingRecordFormat && (d.Algorithm != "" || d.Count.Kind() != CountEvents || d.Burst != 0 || d.Cooldown != 0) {
			return refuse(fmt.Sprintf("algorithm %s, count %s, burst %d, cooldown %s",
				d.Counting(), d.Count, d.Capacity(), duration.Format(d.UpdateEvery())), CountingRecordFormat)
		}
		if r.RecordFormat < ReadingRecordFormat && (d.Match.PathAs != "" || d.Match.PathCase != "") {
			return refuse("match "+describeMatch(d.Match), ReadingRecordFormat)
		}
		if r.RecordFormat < LanguageRecordFormat && len(d.Tiers) > 0 {
			return refuse("tiers "+describeTiers(d.Tiers), LanguageRecordFormat)
		}
		if r.RecordFormat < LanguageRecordFormat && (!traffic.IdentityKey(d.countedBy()) || len(d.Count.Tuple) > 0 || d.Count.Sum == SumBytes || d.Count.Sum == SumLatency) {
			return refuse(fmt.Sprintf("key %s, count %s", describeKey(d.Key), d.Count), LanguageRecordFormat)
		}
		if r.RecordFormat < LanguageRecordFormat && d.Match.usesLanguage() {
			return refuse("match "+describeMatch(d.Match), LanguageRecordFormat)
		}
		if r.RecordFormat < LanguageRecordFormat && d.Block != nil && d.Block.Match != nil {
			return refuse("block.match "+describeMatch(*d.Block.Match), LanguageRecordFormat)
		}
		if r.RecordFormat < LanguageRecordFormat && len(d.Allow) > 0 {
			return refuse("allow "+describeAllow(d.Allow), LanguageRecordFormat)
		}
		if r.RecordFormat < PromotionRecordFormat && d.Promote != nil {
			return refuse("promote "+describePromote(d.Promote), PromotionRecordFormat)
		}
		if r.RecordFormat < PromotionRecordFormat && d.Canary != nil {
			return refuse("canary "+describeCanary(d.Canary), PromotionRecordFormat)
		}
		if got := r.Rules[i].beside(); got != "" && r.RecordFormat < LanguageRecordFormat {
			return refuse(got, LanguageRecordFormat)
		}
	}
	return nil
}

// checkAllow returns what is wrong with the allow lists of r, and the names in rules that no list of r has: to read over one
// would be to count whom the owner lets pass.
func (r *Routing) checkAllow(env Environment) (errs []error) {
	if r.RecordFormat < LanguageRecordFormat && len(r.Allow) > 0 {
		errs = append(errs, fmt.Errorf("allow: got %d lists in record format %d, allowed from record format %d on", len(r.Allow), r.RecordFormat, LanguageRecordFormat))
	}
	entries := 0
	for i := range r.Allow {
		l := &r.Allow[i]
		entries += len(l.Entries)
		if i > 0 && r.Allow[i-1].ID >= l.ID {
			errs = append(errs, fmt.Errorf("%s: got %s after %s, allowed lists ascending by id, each once", element("allow", i), quoteShort(l.ID), quoteShort(r.Allow[i-1].ID)))
		}
		if err := l.Validate(env); err != nil {
			errs = append(errs, fmt.Errorf("allow list %s: %w", quoteShort(l.ID), err))
		}
	}
	if entries > MaxRoutingAllow {
		errs = append(errs, fmt.Errorf("allow: got %d entries in all lists that rules name, allowed %d", entries, MaxRoutingAllow))
	}
	known := allowIDs(r.Allow)
	for i := range r.Rules {
		if missing := missingAllow(&r.Rules[i].Document, known); len(missing) > 0 {
			errs = append(errs, fmt.Errorf("rule %s: allow: got %s, which no allow list of the version has as its id", quoteShort(r.Rules[i].ID), strings.Join(missing, ", ")))
		}
	}
	return errs
}

// WithAllow gives r those of lists that its rules name, ascending by id and in normal form. A name that none of them has is left
// to Validate.
func (r *Routing) WithAllow(lists []AllowList) {
	r.Allow = nil
	named := map[string]bool{}
	for i := range r.Rules {
		for _, id := range r.Rules[i].Allow {
			named[id] = true
		}
	}
	for i := range lists {
		if named[lists[i].ID] {
			r.Allow = append(r.Allow, lists[i].Normal())
		}
	}
	slices.SortFunc(r.Allow, func(a, b AllowList) int { return strings.Compare(a.ID, b.ID) })
}

// checkIdentityFormat refuses what an identity map could not say before ReadingRecordFormat.
func (r *Routing) checkIdentityFormat() error {
	const sentence = "identity.%s: got %s in record format %d, allowed from record format %d on: weir migrate --record-format %[4]d raises it, once every process knows it"
	if header := r.Identity.IP.Header; header != "" && r.RecordFormat < LanguageRecordFormat {
		return fmt.Errorf(sentence, "ip.header", quoteShort(header), r.RecordFormat, LanguageRecordFormat)
	}
	if r.RecordFormat >= ReadingRecordFormat {
		return nil
	}
	if p := r.Identity.IP.TrustedProxies; len(p.Prefixes) > 0 {
		return fmt.Errorf(sentence, "ip.trusted_proxies", p, r.RecordFormat, ReadingRecordFormat)
	}
	for i, src := range []traffic.FieldSource{r.Identity.Device, r.Identity.User, r.Identity.APIKey, r.Identity.Session} {
		if src.Commas {
			return fmt.Errorf(sentence, (traffic.FieldDevice+traffic.Field(i)).String()+".commas", "true", r.RecordFormat, ReadingRecordFormat)
		}
	}
	return nil
}

// Find gives the live version of the rule with this id, nil when the routing version has none.
func (r *Routing) Find(id string) *Version {
	i, found := slices.BinarySearchFunc(r.Rules, id, func(v Version, id string) int { return strings.Compare(v.ID, id) })
	if !found {
		return nil
	}
	return &r.Rules[i]
}

// Encode writes r as JSON, the same bytes for the same contents. An r that Validate refuses is not written.
func (r *Routing) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("routing version %d of stream %s: %w", r.Number, quoteShort(r.Stream), err)
	}
	return b, nil
}

// ErrRouting is wrapped by every error of DecodeRouting: reading the document again cannot help.
var ErrRouting = errors.New("routing version that this build cannot read")

// DecodeRouting reads what Encode wrote. A member that this build does not know is an error: the document was written
// by a newer one, and to read over a part of it would be to route its records in another way than their other readers.
func DecodeRouting(b []byte) (*Routing, error) {
	var r Routing
	if err := decodeStrictly(b, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRouting, err)
	}
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRouting, err)
	}
	return &r, nil
}

// DecodeDocument reads a rule's document from the JSON that the rule store keeps. As with a routing version, a member that
// this build does not know is an error: a match without one of its conditions would count, and block, other requests.
// What ParseFiles would refuse today may have been applied before, and is read.
func DecodeDocument(b []byte) (Document, error) {
	var d Document
	if err := decodeStrictly(b, &d); err != nil {
		return Document{}, fmt.Errorf("rule document that this build cannot read: %w", err)
	}
	return d, nil
}

// decodeStrictly reads one JSON document without a member that v does not have.
func decodeStrictly(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("got more after the JSON document, allowed one document")
	}
	return nil
}
