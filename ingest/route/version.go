package route

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// routingVersion is one routing version, compiled.
type routingVersion struct {
	number     int64
	lost       bool // the rule store does not have it any more
	format     int  // of the keyed records
	decoder    format.Decoder
	identifier *traffic.Identifier
	index      *rules.Index
	rules      []routedRule
	conditions map[string]*condition.Condition // of rules, by their text
	owners     int                             // how many own rules with conditions
	weight     condition.Cost                  // of all conditions of all rules
	dimensions []dimension                     // distinct, in the order in which rules use them first
	extras     []rules.ExtraField
	allow      []*allowIndex // ascending by id
	evidence   *evidence     // nil before rules.EvidenceRecordFormat
}

// routedRule is what routing needs of a rule.
type routedRule struct {
	id        string
	key       []traffic.KeyField
	extra     []rules.ExtraUse // what key and count need beside the identity
	dimension int              // index into version.dimensions, or ruleDimension
	target    int              // with ruleDimension: its keyed partition
	skip      bool
	amount    amount
	lateness  time.Duration
	allow     []int                // indexes into version.allow
	when      *condition.Condition // nil: it has none
	tiers     []*condition.Condition
	owner     int // from 0 to version.owners, of a rule with conditions
	document  *rules.Document
	block     []traffic.KeyField // the key of its block
	scope     blockScope
	pending   bool // counted beside the live version of the same rule, which alone is told of
}

// ruleDimension marks a rule without a key: it is its own dimension.
const ruleDimension = -1

// unfitError says that a routing version exists, and that this process cannot route by it.
type unfitError struct {
	number int64
	why    error
}

func (e *unfitError) Error() string {
	return fmt.Sprintf("routing version %d cannot be used by this process: %v", e.number, e.why)
}

func (e *unfitError) Unwrap() error { return e.why }

// compile makes a version ready for routing. Whatever this process does not know for certain is an *unfitError: a
// guess would put records where no other process would.
func compile(r *rules.Routing, opt *Options) (*routingVersion, error) {
	return compileAfter(nil, r, opt)
}

// compileAfter is compile where another version, before, is known: what both have is not compiled again, since of thousands of
// rules one is edited. before may be nil.
func compileAfter(before *routingVersion, r *rules.Routing, opt *Options) (*routingVersion, error) {
	unfit := func(format string, args ...any) error { return &unfitError{r.Number, fmt.Errorf(format, args...)} }
	switch {
	case !detectors.KnowsRecordFormat(r.RecordFormat):
		return nil, unfit("its record format is %d, this build writes %s", r.RecordFormat, detectors.KnownRecordFormats())
	case r.CheckRecordFormat() != nil:
		return nil, unfit("%w", r.CheckRecordFormat())
	case r.SecretID != opt.SecretID:
		return nil, unfit("it was made under the secret %q, this process has %q", r.SecretID, opt.SecretID)
	case len(r.Rules) > detectors.MaxRulesPerRecord:
		return nil, unfit("it has %d rules, allowed: %d", len(r.Rules), detectors.MaxRulesPerRecord)
	}
	var how []format.DecoderOption
	if !opt.Live {
		how = append(how, format.AllowControl())
	}
	if r.RecordFormat < rules.EndTimeRecordFormat {
		how = append(how, format.TimesAsTold())
	}
	if r.RecordFormat < rules.ReadingRecordFormat {
		how = append(how, format.URLsAsIs())
	}
	decoder, err := format.NewDecoder(r.Format.Name, r.Format.Map, r.Format.MaxEventBytes, how...)
	if err != nil {
		return nil, unfit("%w", err)
	}
	identifier, err := Identifier(r)
	if err != nil {
		return nil, unfit("identity map: %w", err)
	}
	v := &routingVersion{
		number: r.Number, lost: r.Lost, format: r.RecordFormat, decoder: decoder, identifier: identifier,
	}
	extras := r.Extras()
	v.extras = extras.Fields
	targets := newTargeter(opt.Secret, opt.KeyedPartitions)
	dimensions := map[dimensionKey]int{}
	for i := range r.Rules {
		rule := &r.Rules[i]
		amount, err := compileAmount(rule.Count)
		if err != nil {
			return nil, unfit("rule %s: %w", rule.ID, err)
		}
		v.rules = append(v.rules, routedRule{
			id: rule.ID, document: &rule.Document, key: rule.Key, extra: extras.ByRule[i], skip: rule.Missing != rules.MissingGroup, amount: amount, lateness: rule.Lateness, pending: rule.Pending,
			dimension: v.dimension(dimensions, rule.Key, extras.ByRule[i]), target: targets.ofRule(rule.ID),
		})
	}
	if err := v.compileAllow(r); err != nil {
		return nil, unfit("%w", err)
	}
	if err := v.compileConditions(before, r.Rules); err != nil {
		return nil, unfit("%w", err)
	}
	if err := v.compileEvidence(before, r); err != nil {
		return nil, unfit("%w", err)
	}
	return v, nil
}

// dimension is the index of the dimension of a key into v.dimensions; known are those that stand there.
func (v *routingVersion) dimension(known map[dimensionKey]int, key []traffic.KeyField, uses []rules.ExtraUse) int {
	if len(key) == 0 {
		return ruleDimension
	}
	d := dimensionOf(key[0], uses)
	at, found := known[d.key()]
	if !found {
		at = len(v.dimensions)
		known[d.key()] = at
		v.dimensions = append(v.dimensions, d)
	}
	return at
}

// versionShelf loads versions and keeps the newest ones that were asked for. Versions are immutable, so that one which
// was read once is good while the store is away.
type versionShelf struct {
	opt *Options

	mu   sync.Mutex
	kept map[int64]*routingVersion
	top  *routingVersion
}

const keptVersions = 16

func newVersionShelf(opt *Options) *versionShelf {
	return &versionShelf{opt: opt, kept: map[int64]*routingVersion{}}
}

// get returns a version, from the store if need be.
func (s *versionShelf) get(ctx context.Context, number int64) (*routingVersion, error) {
	s.mu.Lock()
	v := s.kept[number]
	s.mu.Unlock()
	if v != nil {
		return v, nil
	}
	r, err := s.opt.Routings.Routing(ctx, s.opt.Stream, number)
	if errors.Is(err, rules.ErrRouting) {
		return nil, &unfitError{number, err}
	}
	if err != nil {
		return nil, fmt.Errorf("routing version %d of stream %s: %w", number, s.opt.Stream, err)
	}
	if v, err = compileAfter(s.newest(), r, s.opt); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[number] = v
	for len(s.kept) > keptVersions {
		oldest := number
		for n := range s.kept {
			oldest = min(oldest, n)
		}
		delete(s.kept, oldest)
	}
	return v, nil
}

// newest is the newest version of the stream that is known here, nil before there is one. New chunks are announced
// under it.
func (s *versionShelf) newest() *routingVersion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.top
}

// advance makes v the newest version, unless a newer one is known.
func (s *versionShelf) advance(v *routingVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.top == nil || v.number > s.top.number {
		s.top = v
	}
}

// after is the version under which the chunk behind one of version v is announced now: versions only go forward. v may be
// nil.
func (s *versionShelf) after(v *routingVersion) *routingVersion {
	newest := s.newest()
	if newest == nil || v != nil && v.number > newest.number {
		return v
	}
	return newest
}

// format is the record format of ticks and loss records for a source that is routed by v, or by nothing yet: nil. All
// readers of the source's events know it; a reader that does not know a tick's format would leave the group.
func (s *versionShelf) format(v *routingVersion) int {
	if v == nil {
		v = s.newest()
	}
	if v == nil {
		return detectors.OldestRecordFormat
	}
	return v.format
}

// uncounted says why an event that has a rule's key is not counted by it. The first ones are traffic.UnitsFault.
type uncounted uint8

const (
	counted         = uncounted(format.UnitsFine)
	distinctMissing = uncounted(format.NumUnitsFaults) // no value of a field whose distinct values are counted
	numUncounted    = distinctMissing + 1
)

// String is the reason as a counter's label.
func (u uncounted) String() string {
	if u == distinctMissing {
		return "distinct_missing"
	}
	return format.UnitsFault(u).String()
}

// amount is what routing needs of a rule's count.
type amount struct {
	distinct []traffic.KeyField // the fields whose values, or combinations, are counted
	sum      bool
	summand  rules.Summand // with sum
}

func compileAmount(c rules.Count) (amount, error) {
	switch {
	case c.Distinct != nil:
		return amount{distinct: []traffic.KeyField{*c.Distinct}}, nil
	case c.Kind() == rules.CountDistinct:
		return amount{distinct: c.Tuple}, nil
	case c.Kind() == rules.CountSum:
		s, err := c.Summand()
		return amount{sum: true, summand: s}, err
	}
	return amount{}, nil
}

// lacks reports whether an event may be left out of the rule for this reason.
func (a *amount) lacks(why uncounted) bool {
	switch {
	case len(a.distinct) > 0:
		return why == distinctMissing
	case a.sum && a.summand.OfAttrs():
		return why != counted && why != distinctMissing
	case a.sum:
		return why == uncounted(format.UnitsAbsent) || why == uncounted(format.UnitsNegative)
	}
	return false
}

// amount is the event's units for a rule's windows, or the reason why it is not counted. For a distinct count it only checks
// that there is a value: DETECT reads the value itself from the record.
func (r *eventRouter) amount(a *amount) (units int64, why uncounted) {
	for _, k := range a.distinct {
		if !r.has(k) {
			return 0, distinctMissing
		}
	}
	if a.sum {
		units, fault := a.summand.Units(&r.request, r.event.Attrs())
		return units, uncounted(fault)
	}
	return 1, counted
}
