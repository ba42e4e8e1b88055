package evidence

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// builder makes a dossier of what was found.
type builder struct {
	*asked
	*found
	d *Dossier

	nothing string                // why no figure of a block can be had; empty: they can
	short   string                // why counts may be too low; empty: they are not
	held    []sourceRow           // sources that the block would have held
	left    int64                 // sources that the rows do not have, beyond maxSources
	unsure  int64                 // episodes of which it is not known how far they were
	spared  int64                 // sources that are never blocked
	others  map[traffic.Time]bool // minutes in which another block was tried
}

// dossier makes the dossier of what was found.
func (a *asked) dossier(f *found) *Dossier {
	b := &builder{asked: a, found: f, d: &Dossier{
		Format: Format, Stream: a.stream, Rule: a.Rule, Version: a.version.Number, Role: a.Role, Since: a.Since, Until: a.Until,
		Terms: a.terms(), Observed: a.observed(f), Top: []Source{}, Notes: []string{},
	}}
	b.weigh()
	b.traffic()
	b.sources()
	b.shares()
	b.knownGood()
	b.behind()
	b.overlap()
	b.ladder()
	b.top()
	b.notes()
	return b.d
}

func (a *asked) terms() Terms {
	v := &a.version
	t := Terms{Limit: a.limit, Window: duration.Format(v.Window), Algorithm: string(v.Counting()), Count: v.Count.String(), Key: keyText(v.Key)}
	if v.Block != nil {
		t.Block = fmt.Sprintf("ttl %s, extend %s", duration.Format(v.Block.TTL), v.Block.Extend)
		t.BlockKey = keyText(v.Block.Key)
	}
	return t
}

func keyText(key []traffic.KeyField) string {
	parts := make([]string, len(key))
	for i, k := range key {
		parts[i] = k.String()
	}
	return strings.Join(parts, ", ")
}

// weigh finds out how far the figures can be relied upon.
func (b *builder) weigh() {
	o := &b.d.Observed
	switch {
	case b.version.Block == nil:
		b.nothing = "the version has no block, so it holds nobody"
	case o.Minutes == 0 && len(b.counted) == 0:
		b.nothing = "no minute was observed"
	case len(b.counted) == 0 && (len(b.found.sources) > 0 || !b.explained()):
		b.nothing = "DETECT has recorded no minute of this version"
	}
	var why []string
	if o.Losses > 0 {
		why = append(why, fmt.Sprintf("%d parts of the log were lost", o.Losses))
	}
	if n := o.missing(GapUncounted); n > 0 {
		why = append(why, fmt.Sprintf("of %d minutes nothing was counted", n))
	}
	if b.forgot {
		why = append(why, "DETECT did not try the block of some, or forgot some for want of memory")
	}
	if len(b.blocked) > 0 {
		why = append(why, "the rule itself blocked meanwhile, and what it refused is not counted again")
	}
	b.short = strings.Join(why, "; ")
	for i := range b.counted {
		if m := &b.counted[i]; m.other {
			if b.others == nil {
				b.others = map[traffic.Time]bool{}
			}
			b.others[m.minute] = true
		}
	}
}

// whole is a sum over the minutes in which the version's own block was tried: what it would have refused is a part of
// that.
func (b *builder) whole(rows []minuteRow, of func(*minuteRow) int64) (n int64) {
	for i := range rows {
		if !b.others[rows[i].minute] {
			n += of(&rows[i])
		}
	}
	return n
}

func events(m *minuteRow) int64   { return m.events }
func refused(m *minuteRow) int64  { return m.refused }
func reached(m *minuteRow) int64  { return m.reached }
func unjudged(m *minuteRow) int64 { return m.unjudged }
func good(m *minuteRow) int64     { return m.good }

func sum(rows []minuteRow, of func(*minuteRow) int64) (n int64) {
	for i := range rows {
		n += of(&rows[i])
	}
	return n
}

func (b *builder) traffic() {
	t := &b.d.Traffic
	t.All, t.Refused, t.Matched = measured(sum(b.all, events)), measured(sum(b.all, refused)), measured(sum(b.matched, events))
	if len(b.all) == 0 {
		none := unknown("no router has told of an event")
		t.All, t.Refused, t.Matched = none, none, none
	}
	t.Counted, t.WithReach = atLeast(sum(b.counted, events), b.short), b.ofTried(atLeast(sum(b.counted, reached),
		b.short))
	if len(b.counted) == 0 && !b.explained() || len(b.all)+len(b.counted) == 0 {
		none := unknown("DETECT has recorded no minute of this version")
		t.Counted, t.WithReach = none, none
	}
	if b.version.Block == nil {
		t.WithReach = unknown(b.nothing)
	}
}

// sources parts those whom a block would hold from all who were over the limit.
func (b *builder) sources() {
	episodes := int64(0)
	for _, s := range b.found.sources {
		episodes, b.unsure = episodes+s.episodes, b.unsure+s.lost
		switch {
		case !s.blockable:
		case b.NeverBlock != nil && b.NeverBlock(s.subject):
			b.spared++
		default:
			b.held = append(b.held, s)
		}
	}
	b.left = b.total - int64(len(b.found.sources))
	h := &b.d.Held
	h.Over = b.withLeft(b.total, 0)
	h.Episodes = b.withLeft(episodes, b.left)
	if b.nothing != "" {
		none := unknown(b.nothing)
		h.Requests, h.Sources, h.Refusing = none, none, none
		if b.d.Observed.Minutes == 0 && b.total == 0 {
			h.Over, h.Episodes = none, none
		}
		return
	}
	h.Sources = b.heldSources()
	refusing := int64(0)
	for _, s := range b.held {
		refusing += min(1, s.refused)
	}
	h.Refusing = b.withLeft(refusing, b.left)
	h.Requests = b.ofTried(b.refusals(sum(b.counted, refused)))
	if h.Refusing.State == Measured && b.unsure > 0 {
		h.Refusing = atLeast(refusing, fmt.Sprintf("of %d episodes it is known no more how far they were", b.unsure))
	}
}

// ofTried is a figure of the minutes in which the version's own block was tried: nothing is known of it in the others.
func (b *builder) ofTried(c Count) Count {
	if _, known := c.Known(); !known || len(b.others) == 0 || c.Side == AtLeast {
		return c
	}
	return atLeast(c.Value, fmt.Sprintf("in %d minutes another block was tried", len(b.others)))
}

// refusals is a number of requests that the block would have refused.
func (b *builder) refusals(n int64) Count {
	c := b.ofSubjects(n)
	if b.spared > 0 && c.State == Measured {
		return atMost(n, "some are of sources that are never blocked")
	}
	return c
}

// apart is why a figure about all that comes of a block's subject may be too low.
const apart = "what comes of one source is shared out by a field that the block's key has not, and each part knows of its own alone"

// parted reports whether the events of one subject of the block come by several keyed partitions, each of which tries the block by itself, and
// remembers who is good by itself: they are shared out by the first field of the rule's key.
func (b *builder) parted() bool {
	v := &b.version
	if v.Block == nil || len(v.Key) == 0 {
		return false
	}
	by := v.Key[0]
	return !slices.ContainsFunc(v.Block.Key, func(k traffic.KeyField) bool {
		return k.Field == by.Field && k.Name == by.Name && k.V4 >= by.V4 && k.V6 >= by.V6
	})
}

// ofSubjects is a number of requests of the block's subjects.
func (b *builder) ofSubjects(n int64) Count {
	if b.short == "" && b.parted() {
		return atLeast(n, apart)
	}
	return atLeast(n, b.short)
}

// heldSources counts them: exactly where the block's key has no field beside the rule's. Else a block on one tuple of values refuses requests
// that put the others over the limit here, so that there would have been fewer.
func (b *builder) heldSources() Count {
	n := int64(len(b.held))
	if b.version.BlocksTuples() && b.short == "" && b.left == 0 && b.notKept == 0 {
		return atMost(n, "the block's key has fields that the rule's key has not: a block on one may keep others under the limit")
	}
	return b.withLeft(n, b.left)
}

// withLeft is a number of which a part may be missing.
func (b *builder) withLeft(n, left int64) Count {
	if left > 0 {
		return atLeast(n, fmt.Sprintf("of the sources the %d with the most refused requests were looked at", maxSources))
	}
	if b.notKept > 0 {
		return atLeast(n, fmt.Sprintf("history has left out %d rows of episodes (history.rows_per_minute)", b.notKept))
	}
	return atLeast(n, b.short)
}

func (b *builder) shares() {
	h := &b.d.Held
	part := h.Requests
	if _, known := part.Known(); known {
		part = b.refusals(b.whole(b.counted, refused))
	}
	h.ShareOfAll = shareOf(part, b.whole(b.all, events), "no router has told of an event")
	h.ShareOfReach = shareOf(part, b.whole(b.counted, reached), "no request came that the block could refuse")
	h.ShareOfMatched = shareOf(part, b.whole(b.matched, events), "no request came that the rule watches")
	if b.version.Block != nil && b.version.Block.Match != nil && h.ShareOfMatched.State == Measured {
		h.ShareOfMatched.State, h.ShareOfMatched.Side = Bounded, AtMost
		h.ShareOfMatched.Reason = "block.match refuses requests that the rule does not watch, too"
	}
}

func (b *builder) knownGood() {
	k := &b.d.KnownGood
	asked := sum(b.all, events) - sum(b.all, refused) // of what weir has refused itself nothing is asked
	k.EventCoverage = shareOf(measured(asked-sum(b.all, unjudged)), asked, "no router has told of an event")
	if _, known := b.d.Held.Sources.Known(); !known {
		k.Sources, k.Requests = unknown(b.d.Held.Sources.Reason), unknown(b.d.Held.Sources.Reason)
		k.Coverage = unknownShare(b.d.Held.Sources.Reason)
		return
	}
	judged, isGood, n := int64(0), int64(0), int64(len(b.held))
	for _, s := range b.held {
		if s.good >= int64(detectors.NotGood) {
			judged++
		}
		if s.good >= int64(detectors.KnownGood) {
			isGood++
		}
	}
	k.Coverage = shareOf(measured(judged), n, "no source would have been held, so there was none to judge")
	if judged == 0 && n > 0 {
		why := fmt.Sprintf("none of %d sources could be judged: no known_good is configured, or their requests lack what it reads", n)
		k.Sources, k.Requests, k.Coverage.Reason = unknown(why), unknown(why), why
		return
	}
	why := ""
	switch {
	case b.parted():
		why = apart
	case judged < n:
		why = fmt.Sprintf("%d of %d sources could not be judged", n-judged, n)
	}
	k.Sources = b.withLeft(isGood, b.left)
	k.Requests = b.ofTried(b.ofSubjects(sum(b.counted, good)))
	for _, c := range []*Count{&k.Sources, &k.Requests} {
		if c.State == Measured {
			*c = atLeast(c.Value, why)
		}
	}
}

// inKey reports whether whoever is held is one of a field's values.
func (b *builder) inKey(f traffic.Field) bool {
	return b.version.Block != nil && slices.ContainsFunc(b.version.Block.Key, func(k traffic.KeyField) bool { return k.Field == f })
}

func (b *builder) behind() {
	b.d.Behind.Users = b.crowd("user", traffic.FieldUser, func(s *sourceRow) int64 { return s.users })
	b.d.Behind.Devices = b.crowd("device", traffic.FieldDevice, func(s *sourceRow) int64 { return s.devices })
}

// crowds are the sizes that are told apart.
func crowds() []Bucket {
	return []Bucket{{From: 1, To: 1}, {From: 2, To: 4}, {From: 5, To: 9}, {From: 10, To: 19}, {From: 20, To: detectors.MaxDistinct - 1}, {From: detectors.MaxDistinct}}
}

func (b *builder) crowd(what string, field traffic.Field, of func(*sourceRow) int64) Crowd {
	c := Crowd{Buckets: []Bucket{}}
	why := ""
	switch _, known := b.d.Held.Sources.Known(); {
	case !known:
		why = b.d.Held.Sources.Reason
	case b.inKey(field):
		why = fmt.Sprintf("the block's key has the %s: a block holds one", what)
	case len(b.held) == 0:
		why = "no source would have been held"
	}
	buckets := crowds()
	known, many, most := int64(0), int64(0), int64(0)
	for i := range b.held {
		n := of(&b.held[i])
		if n == 0 {
			continue
		}
		known, most = known+1, max(most, n)
		if n >= manyBehind {
			many++
		}
		for j := range buckets {
			if n >= buckets[j].From && (buckets[j].To == 0 || n <= buckets[j].To) {
				buckets[j].Sources++
			}
		}
	}
	if why == "" && known == 0 {
		why = fmt.Sprintf("no request of theirs named a %s", what)
	}
	if why != "" {
		c.Sources, c.Most, c.Many = unknown(why), unknown(why), unknown(why)
		return c
	}
	c.Sources, c.Many, c.Most, c.Buckets = b.withLeft(known, b.left), b.withLeft(many, b.left), b.withLeft(most, b.left), buckets
	if most >= detectors.MaxDistinct && c.Most.State == Measured {
		c.Most = atLeast(most, fmt.Sprintf("no more than %d are told apart", detectors.MaxDistinct))
	}
	return c
}

// manyBehind is from how many users, or devices, a source counts as one whom a block would do much harm.
const manyBehind = 10

func (b *builder) notes() {
	note := func(format string, args ...any) { b.d.Notes = append(b.d.Notes, fmt.Sprintf(format, args...)) }
	if b.version.Block == nil {
		note("a rule without block records who is over its limit and holds nobody: give it a block to see what that would do")
	}
	unblockable := int64(0)
	for _, s := range b.found.sources {
		if !s.blockable && b.version.Block != nil {
			unblockable += s.episodes
		}
	}
	if unblockable > 0 {
		note("episodes that block nobody, since their requests lack a field of the block's key: %d", unblockable)
	}
	if b.notKept > 0 {
		note("rows of episodes that history has left out, since the rule had more in a minute than history.rows_per_minute: %d; requests are counted all the same, sources are those of the rows that stay", b.notKept)
	}
	if b.bare > 0 {
		note("episodes whose samples history has left out (history.samples_per_minute): %d", b.bare)
	}
	if n := len(b.others); n > 0 {
		note("minutes in which the version had another block, and none of what this one would refuse is known: %d; shares are of the others", n)
	}
	if b.unsure > 0 {
		note("episodes that went on after the end, and of which it is known no more how far they were by then: %d; their figures are the least that they can be", b.unsure)
	}
	if b.spared > 0 {
		note("sources over the limit that are never blocked, such as private addresses: %d; requests counted as refused may be theirs", b.spared)
	}
	if b.version.Count.Kind() != rules.CountEvents && b.version.Block != nil {
		note("the rule counts %s: limits and peaks are of that, requests are not", b.version.Count)
	}
}
