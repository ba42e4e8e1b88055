package server_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/history/savedviews"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// canaries are values that a masked role must not find anywhere, by field.
func canaries() []traffic.SubjectValue {
	return []traffic.SubjectValue{
		{Field: "ip", Value: "198.18.77.201"}, {Field: "ip", Value: "2001:db8:77::c4"},
		{Field: "ip", Value: "host-of-canary.example"},
		{Field: "device", Value: "canary-tv-77"}, {Field: "user", Value: "canary smith & 50%=x"},
		{Field: "user", Value: "canary.plain"},
		{Field: "session", Value: "canary-session-9"}, {Field: "api_key", Value: "canary_key_0123456789"},
	}
}

// besides are canaries of the fields that are masked where all are.
func besides() traffic.Sample {
	return traffic.Sample{UserAgent: "canary-agent/7.7", Path: "/canary-path/77", Attrs: `{"tenant":"canary-tenant"}`}
}

// subjectsOf are the subjects that the canaries are found in.
func subjectsOf() []traffic.Subject {
	var all []traffic.Subject
	for _, v := range canaries() {
		s := traffic.SubjectOf([]traffic.SubjectValue{v})
		if p, err := netip.ParseAddr(v.Value); err == nil {
			s = traffic.SubjectOf([]traffic.SubjectValue{{Field: v.Field, Value: netip.PrefixFrom(p,
				p.BitLen()).String()}})
		}
		all = append(all, s)
	}
	return all
}

// told is what somebody writes who names the canaries as people do, and as weir does.
func told() string {
	text := "it is"
	for i, v := range canaries() {
		switch {
		case v.Field == "ip" && i < 2:
			text += " at " + v.Value
		case v.Field == "ip":
			text += " ip=" + v.Value
		default:
			text += fmt.Sprintf(" %s %q,", v.Field, v.Value)
		}
	}
	for _, s := range subjectsOf() {
		text += " " + string(s)
	}
	return text
}

// fill has the canaries everywhere where an installation keeps something about sources. It returns the ids of the hits.
func (b *bed) fill() []string {
	b.t.Helper()
	must := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	ctx, by, why := b.t.Context(), desk.Local("tests"), told()
	b.prepare(own, other)
	b.mode(own, rules.ModeBlock)
	_, err := b.does.Apply(ctx, by, acts.ApplyRequest{Alone: true, Reason: why,
		Files: []acts.File{{Name: "a.yaml", Text: document(own, 5, "198.51.100.0/24", "198.18.77.201/32")}}})
	must(err)
	b.limit(acts.LimitRequest{Rule: own, Limit: 90, Until: time.Now().Add(time.Hour), Reason: why})
	_, err = b.does.SetMode(ctx, by, acts.ModeRequest{Rule: other, Mode: rules.ModeOff, Reason: why})
	must(err)
	_, err = b.does.SetMode(ctx, by, acts.ModeRequest{Rule: other, Mode: rules.ModeShadow, Reason: why})
	must(err)
	_, err = b.does.ChangeAllow(ctx, by, acts.AllowRequest{List: own + "-partners", Reason: "of 2001:db8:77::c4",
		Entries: []acts.AllowSource{{Kind: rules.AllowCIDR, Value: "2001:db8:77::c4/128"}}})
	must(err)
	must(b.in.History.Orders.ChangeNever(ctx, orders.NeverChange{By: "tests", Reason: why,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:77::c4/128")}}))
	must(b.in.History.Partitions.Report(ctx, history.Live, []ingest.PartitionStatus{{Side: ingest.SideKeyed,
		Partition: 0, Owner: "weir-1",
		State: ingest.Halted, End: 90, Reason: why, GapSource: 0, GapOffset: 70}}))
	topic := ingest.Live.Topics(b.in.Config.Namespace).Dead
	dead, err := consume.NewDeadLetters(consume.DeadLetterOptions{Appender: b.in.Kafka.Appender(topic)})
	must(err)
	must(dead.Put(ctx, []traffic.DeadLetter{traffic.NewDeadLetter("route", "malformed", why, "requests",
		traffic.Message{Value: []byte(why)})}))
	must(savedviews.New(b.in.History.DB).Save(ctx, savedviews.View{By: "adam@example.com",
		Name: "of ip=host-of-canary.example", Shared: true,
		Query: "by=episode&source=user%3Dcanary.plain"}))
	ids := b.record()
	for _, s := range subjectsOf() {
		must(b.in.History.Audit.Add(ctx, audit.Entry{Actor: "ann", Action: "release", Object: "block " + own + " " +
			string(s),
			Reason: why, Detail: "block of " + string(s), Before: "block of " + string(s), After: "released"}))
	}
	return ids
}

// record has the canaries in episodes, decisions, refusals, and in Redis.
func (b *bed) record() (ids []string) {
	b.t.Helper()
	hits, err := history.NewHitRecorder(b.in.History, history.Live, "weir.hits", letters{b.t}, nil,
		prometheus.NewRegistry())
	if err != nil {
		b.t.Fatal(err)
	}
	decisions, err := history.NewDecisionRecorder(b.in.History, history.Live, "weir.blocks", letters{b.t}, nil,
		prometheus.NewRegistry())
	if err != nil {
		b.t.Fatal(err)
	}
	now, all := traffic.At(time.Now().Add(-time.Minute)), canaries()
	said := besides()
	said.Time, said.IP, said.Device, said.User, said.Session = now, all[0].Value, all[3].Value, all[4].Value,
		all[6].Value
	sample, err := json.Marshal(said)
	if err != nil {
		b.t.Fatal(err)
	}
	said.IP, said.User = all[2].Value, all[5].Value
	another, err := json.Marshal(said)
	if err != nil {
		b.t.Fatal(err)
	}
	var found, decided []traffic.Message
	var raises []blocklist.Raise
	generation := b.standing(own).Generation
	for i, s := range subjectsOf() {
		h := detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%08x%024x", (i+3)*7919, i+3),
			Rule: own, RuleVersion: 1, Lineage: 1,
			Phase: detectors.PhaseClosed, Subject: s, BlockSubject: s, Limit: 2, WindowMS: 60_000, Count: 3, Peak: 3,
			Opened: now, First: now, Last: now,
			Seen: now, Generation: 1, Offset: int64(i + 3), Refused: 2, Samples: []string{string(sample),
				string(another)},
		}
		value, err := detectors.EncodeHit(&h)
		if err != nil {
			b.t.Fatal(err)
		}
		ids, found = append(ids, h.ID), append(found, traffic.Message{Value: value})
		d := blocklist.Decision{Format: blocklist.DecisionFormat, ID: h.ID, Action: blocklist.ActionReleased,
			Reason: told(), Rule: own, Subject: s,
			Hit: h.ID, Since: now, Until: now.Add(time.Hour), At: now, By: "ann"}
		if value, err = blocklist.EncodeDecision(&d); err != nil {
			b.t.Fatal(err)
		}
		decided = append(decided, traffic.Message{Value: value})
		if name := (blocklist.Name{Subject: s, Rule: own}); name.Check() == nil {
			block := blocklist.NewBlock(own, generation, h.ID, now, traffic.At(time.Now().Add(time.Hour)))
			block.By, block.Reason = "ann", told()
			raises = append(raises, blocklist.Raise{Name: name, Block: block})
		}
	}
	if err := hits.Apply(b.t.Context(), found); err != nil {
		b.t.Fatal(err)
	}
	if err := decisions.Apply(b.t.Context(), decided); err != nil {
		b.t.Fatal(err)
	}
	if _, err := blocklist.NewWriter(b.in.Redis).Raise(b.t.Context(), raises); err != nil || len(raises) < 4 {
		b.t.Fatal(len(raises), err)
	}
	return slices.Clip(ids)
}
