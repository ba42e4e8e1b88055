package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

const quickRules = `
id: burst
owner: tests
match: {method: POST, path: /v1/guest-tokens}
key: [ip]
limit: 3
window: 2s
lateness: 1s
---
id: pairs
owner: tests
match: {path: /v1/*}
key: [ip]
limit: 5
window: 1s
lateness: 1s
`

// episode is what two hits of one episode have in common.
type episode struct {
	id, rule    string
	subject     traffic.Subject
	first, last traffic.Time
	count       int64
}

func episodeOf(h *detectors.Hit) episode {
	return episode{h.ID, h.Rule, h.Subject, h.First, h.Last, h.Count}
}

// besideReport is what the test reads of a backtest's JSON.
type besideReport struct {
	Files  []string
	Events int64
	Gaps   []any
	Rules  []struct {
		Rule    string
		Hits    []detectors.Hit
		Allowed map[string]int64
	}
}

func (r *besideReport) episodes() []episode {
	var all []episode
	for i := range r.Rules {
		for j := range r.Rules[i].Hits {
			all = append(all, episodeOf(&r.Rules[i].Hits[j]))
		}
	}
	slices.SortFunc(all, func(a, b episode) int { return strings.Compare(a.id, b.id) })
	return all
}

// committing are the stages whose groups commit what they have read, each with its topic.
func committing(namespace string) map[string]string {
	names := ingest.Live.Topics(namespace)
	return map[string]string{ingest.StageRoute: names.Requests, ingest.StageRecord: names.Hits}
}

// awaitCommitted waits until the stages' groups have committed all that their topics hold.
func (b *bed) awaitCommitted(k *kafka.Client, namespace string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for stage, topic := range committing(namespace) {
		if err := k.AwaitCaughtUp(ctx, ingest.Live.Group(namespace, stage), topic); err != nil {
			b.t.Fatal(err)
		}
	}
}

// commits are what the stages' groups have committed.
func (b *bed) commits(k *kafka.Client, namespace string) map[string]ingest.Commit {
	b.t.Helper()
	out := map[string]ingest.Commit{}
	for stage, topic := range committing(namespace) {
		got, err := k.FetchCommits(b.t.Context(), ingest.Live.Group(namespace, stage), topic, []int{0, 1})
		if err != nil {
			b.t.Fatal(err)
		}
		for p, c := range got {
			out[fmt.Sprint(stage, p)] = ingest.Commit{Offset: c.Offset}
		}
	}
	return out
}

// triesAsFound checks that weir rules try says of the latest requests what a backtest has found in them, here and
// through a server, to who may apply the rules; and that it changes nothing.
func (b *bed) triesAsFound(file string, found *besideReport) {
	b.t.Helper()
	was := b.ok("rules", "list") + b.ok("history", "audit")
	tried := decode[acts.Tried](b, "rules", "try", "-f", file)
	tr := tried.Traffic
	if tr == nil || tr.Events != found.Events || tr.Unread != 0 || tr.Shorter != "" ||
		tr.Until.Sub(tr.Since) != acts.TryOver ||
		len(tr.Rules) != len(found.Rules) || tried.Changed() {
		b.t.Fatalf("tried: %+v, %q", tr, tried.NoTraffic)
	}
	for i := range tr.Rules {
		got, hits := &tr.Rules[i], found.Rules[i].Hits
		sources, over := map[traffic.Subject]bool{}, int64(0)
		for j := range hits {
			sources[hits[j].Subject] = true
			over += hits[j].Count
		}
		if got.Rule != found.Rules[i].Rule || got.Sources != int64(len(sources)) || got.Episodes != int64(len(hits)) ||
			got.Over != over || len(hits) == 0 || int64(len(got.Top))+got.TopCut != got.Sources ||
			!sources[got.Top[0].Subject] {
			b.t.Errorf("tried: %+v; a backtest has %d episodes of %d sources, %d events", got, len(hits), len(sources),
				over)
		}
	}

	web, server := b.console("console")
	own := writeFile(b.t, "own.yaml", strings.NewReplacer("id: ", "id: own-", "owner: tests",
		"owner: identity").Replace(quickRules))
	period := regexp.MustCompile(`took from \S+ to \S+`)
	here, there := b.ok("rules", "try", "-f", own), b.at(server, "otto").ok("rules", "try", "-f", own)
	if period.ReplaceAllString(there, "") != period.ReplaceAllString(here, "") || !strings.Contains(there,
		"over the limit") ||
		!strings.Contains(there, "own-burst has no tests") || !strings.Contains(there, "nothing was changed") {
		b.t.Errorf("through the server:\n%s\nhere:\n%s", there, here)
	}
	for _, name := range []string{"olga", "anna"} {
		if o := b.at(server, name).weir("rules", "try", "-f", own); o.code != exitError ||
			!strings.Contains(o.stderr, "apply needs the role owner") || strings.Contains(o.stdout, "198.51.100") {
			b.t.Errorf("%s: exit code %d, %s%s", name, o.code, o.stdout, o.stderr)
		}
	}
	web.end()
	failing := quickRules + "tests:\n  - {name: never, timeline: [{at: 0s, path: /v1/x, ip: 192.0.2.1}], expect: " +
		"{hits: [{count: 1}]}}\n"
	if o := b.weir("rules", "try", "-f", writeFile(b.t, "failing.yaml", failing)); o.code != exitError ||
		!strings.Contains(o.stdout, "--- FAIL: pairs/never") || !strings.Contains(o.stdout, "1 of 1 test failed") {
		b.t.Errorf("exit code %d, %s%s", o.code, o.stdout, o.stderr)
	}
	if is := b.ok("rules", "list") + b.ok("history", "audit"); is != was {
		b.t.Errorf("to try has changed\n%s\nto\n%s", was, is)
	}
}

// A backtest beside the stages finds what they have recorded, id by id, and leaves them as they are.
func TestBacktestFromLive(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{})
	b.closesSoon()
	namespace := b.flag("--namespace")
	b.ok("migrate")
	rules := writeFile(t, "rules.yaml", quickRules)
	b.ok("rules", "apply", "-f", rules, "--reason", "first")
	stages := b.start("run", "--stages", "route,detect,record")
	brokers := strings.Split(b.flag("--kafka-brokers"), ",")
	k, err := kafka.New(kafka.Config{Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()

	for n := range 30 {
		b.send(fmt.Sprintf("198.51.100.%d", n), 1+n%9)
	}
	recorded := func() []episode {
		var all []episode
		for _, h := range decode[[]history.RecordedHit](b, "history", "hits", "--since", "1h", "--limit", "1000") {
			if h.Phase != detectors.PhaseClosed {
				return nil
			}
			all = append(all, episodeOf(&h.Hit))
		}
		slices.SortFunc(all, func(a, b episode) int { return strings.Compare(a.id, b.id) })
		return all
	}
	const want = 18 + 12 // sources with 4 to 9 requests, and with 6 to 9
	testbed.Eventually(t, time.Minute, func() error {
		if got := recorded(); len(got) != want {
			return fmt.Errorf("%d episodes are closed, want %d", len(got), want)
		}
		return nil
	})
	// A row is in PostgreSQL before RECORD's group has committed what it came from.
	b.awaitCommitted(k, namespace)
	live, before := recorded(), b.commits(k, namespace)

	found := decode[besideReport](b, "backtest", "--from-live", "-f", rules)
	if got := found.episodes(); !slices.Equal(got, live) {
		t.Errorf("beside the stages:\n%v\nrecorded:\n%v", got, live)
	}
	if found.Events != 3*45+1+2+3 || len(found.Gaps) != 0 || !slices.Equal(found.Files, []string{namespace + ".requests"}) {
		t.Errorf("%d events of %v, gaps %v", found.Events, found.Files, found.Gaps)
	}
	b.triesAsFound(rules, &found)
	after := b.commits(k, namespace)
	for name, c := range after { // RECORD goes on: DETECT tells of each minute
		if c.Offset < before[name].Offset || strings.HasPrefix(name, "route") && c != before[name] || len(before) != 4 {
			t.Errorf("commits were %v, are %v", before, after)
		}
	}
	var conns kafkago.Transport
	defer conns.CloseIdleConnections()
	groups, err := (&kafkago.Client{Addr: kafkago.TCP(brokers...), Transport: &conns}).ListGroups(t.Context(), &kafkago.ListGroupsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		if name, ours := strings.CutPrefix(g.GroupID, namespace+"."); ours && !slices.Contains([]string{"route", "detect", "record", "record-blocks"}, name) {
			t.Errorf("there is a group %s", g.GroupID)
		}
	}

	// Stored allow lists may be named, also those that no stored rule names; a list in the files takes the place of a stored one.
	list := func(id, cidr string) string {
		return "kind: allow\nid: " + id + "\nowner: tests\nentries:\n  - {cidr: " + cidr + ", reason: test}\n"
	}
	b.ok("rules", "apply", "-f", writeFile(t, "lists.yaml", list("office", "198.51.100.0/28")+"---\n"+list("home", "198.51.100.16/28")), "--reason", "lists")
	letting := strings.ReplaceAll(quickRules, "lateness: 1s\n", "lateness: 1s\nallow: [office, home]\n")
	passed := decode[besideReport](b, "backtest", "--from-live", "-f", writeFile(t, "letting.yaml", letting))
	if got := passed.episodes(); len(got) != 0 || passed.Rules[0].Allowed["office"] == 0 || passed.Rules[0].Allowed["home"] == 0 {
		t.Errorf("stored lists let all pass: %v, %v", got, passed.Rules[0].Allowed)
	}
	passed = decode[besideReport](b, "backtest", "--from-live", "-f", writeFile(t, "other.yaml", letting+"---\n"+list("office", "203.0.113.0/24")))
	if got := passed.episodes(); len(got) == 0 || len(got) == len(live) || passed.Rules[0].Allowed["office"] != 0 || passed.Rules[0].Allowed["home"] == 0 {
		t.Errorf("with another list of the same name: %d episodes, %v", len(got), passed.Rules[0].Allowed)
	}
	if o := b.weir("backtest", "--from-live", "-f", writeFile(t, "wrong.yaml", quickRules+"allow: [ofice]\n")); o.code != exitError || !strings.Contains(o.stderr, `did you mean "office"?`) {
		t.Errorf("a list that there is not: exit code %d, %s", o.code, o.stderr)
	}

	// The same in slow motion, and what is asked for by time.
	if slow := decode[besideReport](b, "backtest", "--from-live", "-f", rules, "--max-rate", "64KiB"); !slices.Equal(slow.episodes(), live) {
		t.Error("at a low rate other hits are found")
	}
	if none := decode[besideReport](b, "backtest", "--from-live", "-f", rules, "--until", "1h"); none.Events != 0 {
		t.Errorf("%d events came an hour ago", none.Events)
	}
	b.send("203.0.113.1", 6)
	testbed.Eventually(t, time.Minute, func() error {
		if got := recorded(); len(got) != want+2 {
			return fmt.Errorf("%d episodes after the backtest, want %d", len(got), want+2)
		}
		return nil
	})
	stages.end()
}
