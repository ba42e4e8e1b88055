package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// sampleEvents bounds how many events are looked at in all, whatever the number of partitions.
const sampleEvents = 20_000

// What a sample of events should look like.
const (
	quietWarns = time.Hour   // the newest event is older
	delayWarns = time.Minute // so old are events when they come; rules' lateness and max_lag are a minute by default
	carryWarns = 50          // percent of a rule's events that carry a field of its key
	handful    = 10          // events; fewer prove nothing
)

// lookAtEvents reads the newest events as ROUTE does.
func (e *examination) lookAtEvents(ctx context.Context) []Finding {
	t := e.topics[e.names.Requests]
	if !t.Exists || len(t.Leaderless) > 0 {
		return nil // its topic's line says so
	}
	if e.routing == nil {
		return []Finding{judgeUnread()}
	}
	messages, err := e.newest(ctx, e.names.Requests, t.Partitions, min(e.events, max(1, sampleEvents/t.Partitions)))
	if len(messages) == 0 && err != nil {
		return []Finding{failed("events", err, "see the brokers' logs")}
	}
	found := e.judgeSample(messages)
	if err != nil {
		found = append(found, judgePart(len(messages), err))
	}
	return found
}

// judgeUnread is about events of which nobody knows how they are read.
func judgeUnread() Finding {
	return warning("events", "correct what PostgreSQL's lines say first",
		"they were not looked at: the routing version by which they are read is not known")
}

// judgePart is about a sample that lacks partitions.
func judgePart(read int, err error) Finding {
	return warning("events", "see the brokers' logs, or try again with more --timeout",
		"what is said of them holds for the %s that could be read: %s", plural.Of(read, "event"), problems(err))
}

// judgeSample says what the newest events are like.
func (e *examination) judgeSample(messages []traffic.Message) []Finding {
	if len(messages) == 0 {
		return []Finding{warning("events", "let the gateways write to it (docs/events.md), or weir ingest FILE --live",
			"topic %s holds none", e.names.Requests)}
	}
	s, err := readSample(messages, e.routing, e.modes, time.Duration(e.conf.Detect.IdleMargin))
	if err != nil {
		return []Finding{failed("events", err, "run weir migrate with a corrected configuration")}
	}
	found := []Finding{judgeEvents(s, e.clock())}
	if s.good == 0 {
		return found
	}
	found = append(found, judgeTimes(s))
	found = append(found, s.judgePeers())
	for f := range traffic.NumFields {
		found = append(found, s.judgeIdentity(f))
	}
	found = append(append(found, s.judgeKeys()...), s.judgeFormat()...)
	found = append(found, s.judgeKnownGood()...)
	found = append(found, s.judgeBudget()...)
	return append(found, s.judgeVerdicts(), s.judgeMatches())
}

// newest reads the last records of each partition of a topic.
func (e *examination) newest(ctx context.Context, topic string, partitions, each int) ([]traffic.Message, error) {
	log := e.kafka.Log(topic)
	bounds, err := log.Bounds(ctx, ingest.AllPartitions(partitions))
	if err != nil {
		return nil, err
	}
	return ingest.Tail(ctx, log, bounds, int64(each))
}

func judgeEvents(s *sampled, at traffic.Time) Finding {
	age := max(0, at.Sub(s.newest))
	text := fmt.Sprintf("%s looked at, the newest of %s ago", plural.Of(s.events, "event"), terminal.Roughly(age))
	if s.unknown > 0 {
		text += fmt.Sprintf("; %d with members that the format does not define", s.unknown)
	}
	bad := s.events - s.good
	remedy := "correct what the gateway writes, or events.format and events.map; weir migrate puts these into effect"
	switch {
	case s.good == 0:
		return failing("events", remedy, "%s; none can be read (%s), the first: %s", text, reasons(s.refused), terminal.Cell(s.example))
	case bad > 0:
		return warning("events", remedy, "%s; %d cannot be read (%s), the first: %s", text, bad, reasons(s.refused), terminal.Cell(s.example))
	case age > quietWarns:
		return warning("events", "see whether the gateways still write", "%s", text)
	}
	return fine("events", "%s", text)
}

// reasons writes counts by reason: malformed 3, wrong_type 1.
func reasons(count map[string]int) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s %d", reason, count[reason]))
	}
	return strings.Join(parts, ", ")
}

func judgeTimes(s *sampled) Finding {
	const name = "event times"
	if len(s.delays) == 0 {
		return warning(name, "let the gateway write time: delays move requests into other windows",
			"none of %d carries a time, so each gets the moment when Kafka took it", s.good)
	}
	text := fmt.Sprintf("half of them %s or less before Kafka took them, all but 1 %% %s or less", terminal.Roughly(s.delay(50)), terminal.Roughly(s.delay(99)))
	if s.timeless > 0 {
		text += fmt.Sprintf("; %d of %d without a time", s.timeless, s.good)
	}
	if s.late > 0 {
		text += fmt.Sprintf("; %d of %d came too late for every rule and count nowhere (old by %s)", s.late, s.good, s.lateness)
	}
	switch {
	case s.future > 0:
		return warning(name, "set the clocks of the gateways by NTP", "%s; %d of %d come from the future, the farthest by %s, and get Kafka's time",
			text, s.future, s.good, terminal.Roughly(-s.delays[0]))
	case s.delay(50) > delayWarns:
		return warning(name, "send events sooner or correct the gateway's clock or time zone; or raise lateness and max_lag of the rules",
			"%s: with the default max_lag of a minute they block nobody", text)
	case s.late >= handful:
		return warning(name, "send events sooner or correct the gateway's clock or time zone; old logs are for weir ingest --replay", "%s", text)
	}
	return fine(name, "%s", text)
}

// judgeIdentity says how many events carry a field, and whether rules wait for it in vain.
func (s *sampled) judgeIdentity(f traffic.Field) Finding {
	name := "identity " + f.String()
	percent := 100 * s.carry(f) / s.good
	text := fmt.Sprintf("in %d %% of %s", percent, plural.Of(s.good, "event"))
	if absent := s.absences(f); absent != "" {
		text += "; missing: " + absent
	}
	remedy := fmt.Sprintf("let the gateway write %s, or name its header or cookie in identity.%s", f, f)
	if f == traffic.FieldIP {
		remedy = "let the gateway write ip, and correct identity.ip.trusted_proxies"
	}
	counting, never, seldom := s.waiting(f.String())
	switch {
	case !counting:
		return fine(name, "%s; no rule counts by it", text)
	case len(never) > 0:
		return failing(name, remedy, "%s; %s, so they never fire: %s", text, s.lack(f.String()), terminal.FirstFew(never))
	case len(seldom) > 0:
		return warning(name, remedy, "%s; most events that these rules match lack it, and count nowhere: %s", text, terminal.FirstFew(seldom))
	}
	return fine(name, "%s", text)
}

// judgeKeys is about the fields of keys beside identities, and fallbacks: rules that wait for one in vain. A field that is there as a
// rule is no finding: there may be any number.
func (s *sampled) judgeKeys() (found []Finding) {
	names := map[string]bool{}
	for i := range s.routing.Rules {
		for _, k := range s.routing.Rules[i].Key {
			if !k.OfIdentity() {
				names[k.String()] = true
			}
		}
	}
	for _, name := range sorted(names) {
		const remedy = "let the gateway write it, or correct the key: weir rules explain RULE shows what an event has"
		switch _, never, seldom := s.waiting(name); {
		case len(never) > 0:
			found = append(found, failing("key "+name, remedy, "%s, so they never fire: %s", s.lack(name), terminal.FirstFew(never)))
		case len(seldom) > 0:
			found = append(found, warning("key "+name, remedy, "most events that these rules match lack it, and count nowhere: %s", terminal.FirstFew(seldom)))
		}
	}
	return found
}

// judgeFormat names the rules that ask of events, beside their keys, what the stream's format never fills.
func (s *sampled) judgeFormat() []Finding {
	var waiting []string
	for i := range s.routing.Rules {
		for _, place := range s.unfilled(i) {
			waiting = append(waiting, s.routing.Rules[i].ID+" ("+place+")")
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return []Finding{failing("format "+s.routing.Format.Name, "let the gateway write it, in a format that has a place for it (events.format, events.map), or correct the rules",
		"its events never have what these rules ask, so they never fire: %s", terminal.FirstFew(waiting))}
}

// unfilled are the places in a rule that ask of events what the stream's format never fills, and without which it counts nothing. Keys are
// judged by what events have, conditions by weir rules lint: they may hold without a field.
func (s *sampled) unfilled(rule int) (places []string) {
	v := &s.routing.Rules[rule]
	if v.Pending {
		return nil
	}
	for _, u := range v.Unfilled(&s.routing.Format, nil) {
		if strings.HasPrefix(u.Place, "match.") || strings.HasPrefix(u.Place, "count.") {
			places = append(places, u.Place)
		}
	}
	return places
}

// fills reports whether the stream's format has a place for a field, or for one of a fallback's.
func (s *sampled) fills(field string) bool {
	return slices.ContainsFunc(strings.Split(field, "|"), s.routing.Format.Fills)
}

// lack says why events lack a field.
func (s *sampled) lack(field string) string {
	if !s.fills(field) {
		return "events of the format " + s.routing.Format.Name + " never have it"
	}
	return "no event that these rules match has it"
}

// waiting finds the rules that count by a field, or a fallback, which the events they match lack, always or mostly. Where only a handful of
// events lack it, that is called seldom, unless the format has no place for it: it may be an accident.
func (s *sampled) waiting(field string) (counting bool, never, seldom []string) {
	for i := range s.routing.Rules {
		v, of := &s.routing.Rules[i], s.byRule[i]
		if v.Pending || !slices.ContainsFunc(v.Key, func(k traffic.KeyField) bool { return k.String() == field }) {
			continue
		}
		counting = true
		switch lacking := of.lacking[field]; {
		case of.matched == 0:
		case lacking == of.matched && (lacking >= handful || !s.fills(field)):
			never = append(never, v.ID)
		case 100*(of.matched-lacking) < carryWarns*of.matched:
			seldom = append(seldom, v.ID)
		}
	}
	return counting, never, seldom
}

// absences writes why the field is missing, and how often.
func (s *sampled) absences(f traffic.Field) string {
	count := map[string]int{}
	for reason := range traffic.NumMissingReasons {
		if n := s.missing[f][reason]; n > 0 && reason != traffic.Present {
			count[reason.String()] = n
		}
	}
	return reasons(count)
}

// judgeVerdicts finds out whether weir's own refusals are logged as such. Where they are not, they feed the rules'
// windows, and a busy client stays blocked for ever.
func (s *sampled) judgeVerdicts() Finding {
	const name = "verdicts"
	text := fmt.Sprintf("%d of %s were refused by weir", s.verdicts, plural.Of(s.good, "event"))
	blocking := s.blocking()
	remedy := "let the gateway log X-Weir-Rule and X-Weir-Block as verdict (docs/gate.md)"
	switch {
	case len(blocking) > 0 && s.silent > 0:
		return failing(name, remedy, "%s, and %d more were answered 429 on paths of rules that block, without saying by whom: weir's own refusals may keep clients blocked", text, s.silent)
	case len(blocking) > 0 && !format.CarriesVerdict(s.routing.Format.Name, s.routing.Format.Map):
		return warning(name, remedy+", and in a format that has a place for it", "format %s, as it is read here, has no place for them, and rules block: %s",
			s.routing.Format.Name, terminal.FirstFew(blocking))
	}
	return fine(name, "%s", text)
}

// judgeMatches names the rules that match none of the events.
func (s *sampled) judgeMatches() Finding {
	var idle []string
	for i := range s.routing.Rules {
		if s.byRule[i].matched+s.byRule[i].budget == 0 && !s.routing.Rules[i].Pending && len(s.unfilled(i)) == 0 {
			idle = append(idle, s.routing.Rules[i].ID)
		}
	}
	if len(idle) == 0 {
		return fine("rules", "each matches some of these events")
	}
	return warning("rules", "see that method and path are those that the gateway reports (weir rules show RULE)",
		"of the newest %s, none matches: %s", plural.Of(s.good, "event"), terminal.FirstFew(idle))
}

// Dead letters: how many of the newest are looked at, and how recent makes them worth a warning.
const (
	deadSample = 500
	deadRecent = time.Hour
)

// lookAtDeadLetters counts the newest dead letters by stage and reason.
func (e *examination) lookAtDeadLetters(ctx context.Context) []Finding {
	const name = "dead letters"
	t := e.topics[e.names.Dead]
	if !t.Exists || len(t.Leaderless) > 0 {
		return nil
	}
	messages, err := e.newest(ctx, e.names.Dead, t.Partitions, deadSample)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return []Finding{failed(name, err, "see the brokers' logs")}
	}
	return []Finding{e.judgeDeadLetters(messages)}
}

func (e *examination) judgeDeadLetters(messages []traffic.Message) Finding {
	const name = "dead letters"
	recent, detail, older := countDeadLetters(messages, e.clock())
	if len(recent) == 0 {
		return fine(name, "none within the last hour; %d older among those that are looked at", older)
	}
	return warning(name, "read topic "+e.names.Dead+": each has its place, its reason and its bytes",
		"within the last hour: %s; the newest: %s", reasons(recent), terminal.Cell(detail))
}

// countDeadLetters counts the recent ones by stage and reason; detail is the newest one's.
func countDeadLetters(messages []traffic.Message, at traffic.Time) (recent map[string]int, detail string, older int) {
	recent = map[string]int{}
	newest := traffic.BeforeTime
	for i := range messages {
		m := &messages[i]
		if m.Appended < at.Add(-deadRecent) {
			older++
			continue
		}
		letter := readDeadLetter(m.Value)
		recent[letter.Stage+" "+letter.Reason]++
		if m.Appended >= newest {
			newest, detail = m.Appended, letter.Detail
		}
	}
	return recent, detail, older
}

// readDeadLetter reads a record of the dead-letter topic; one that is none counts as such.
func readDeadLetter(value []byte) traffic.DeadLetter {
	var letter traffic.DeadLetter
	if err := json.Unmarshal(value, &letter); err != nil || letter.Reason == "" {
		return traffic.DeadLetter{Stage: "somebody", Reason: "wrote what is no dead letter"}
	}
	return letter
}

// judgeKnownGood says whether evidence about rules in shadow will tell of sources that are good for sure.
func (s *sampled) judgeKnownGood() []Finding {
	const name = "known good"
	waiting, events := s.inShadow(), 0
	for _, n := range s.judged {
		events += n
	}
	switch {
	case s.routing.KnownGood == "" && len(waiting) == 0:
		return nil
	case s.routing.KnownGood == "":
		return []Finding{warning(name, "set known_good to what your good clients have (docs/events.md#known-good), then weir migrate",
			"known_good is not set: evidence about %s in shadow (%s) cannot tell whether a block would hold good clients",
			plural.Of(len(waiting), "rule"), strings.Join(waiting[:min(len(waiting), 3)], ", "))}
	}
	text := fmt.Sprintf("of %s it holds for %d, does not for %d, and %d cannot be judged", plural.Of(events, "event"),
		s.judged[detectors.KnownGood], s.judged[detectors.NotGood], s.judged[detectors.NotJudged])
	if events >= handful && s.judged[detectors.NotJudged] == events {
		return []Finding{warning(name, "weir rules explain RULE --event FILE shows what known_good asks of an event; correct it, or what the gateway writes, then weir migrate",
			"known_good judges nothing: none of %s has what it reads", plural.Of(events, "event"))}
	}
	return []Finding{fine(name, "%s", text)}
}
