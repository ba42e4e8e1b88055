package rulestore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// A rule that was removed still has a history, and so a name.
func TestRuleNamesIncludeRemovedRules(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("one"), historytest.Document("two"))
	if _, err := b.Rules.Apply(t.Context(), historytest.Documents(historytest.Document("two")), "ann", "", rulestore.ApplyOptions{Prune: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Rules.Names(t.Context(), streams.Live); err != nil || !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := b.Rules.Names(t.Context(), "replay/none"); err != nil || len(got) != 0 {
		t.Errorf("of a stream that is not there: %q, %v", got, err)
	}
}

// Commands show a stored version with durations as documents write them, and a condition as it was written.
func TestStoredVersionsAsCommandsShowThem(t *testing.T) {
	t.Parallel()
	v := rulestore.StoredVersion{Version: rules.Version{Document: historytest.Document("flood"), Number: 2, Lineage: 1}, Hash: "0a", Author: "ann", Source: "id: flood\n"}
	v.Version.Match.When = `event.status >= 400 && event.plan == "free"`
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"document":{"id":"flood",`, `"when":"event.status >= 400 && event.plan == \"free\""`, `"window":"1m"`, `"ttl":"15m"`, `"version":2,`, `"source":"id: flood\n"`, `"hash":"0a"`, `"author":"ann"`} {
		if strings.Count(b.String(), want) != 1 {
			t.Errorf("%s\nhas not once %s", b.String(), want)
		}
	}
}

// Labels are those of all rules, also where a document cannot be read.
func TestLabels(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	two, old := historytest.Document("two"), historytest.Document("two-old")
	b.Apply(t, historytest.Document("one"), two, old)
	setMode(t, b, "two", rules.ModeBlock)
	setMode(t, b, "two-old", rules.ModeBlock)
	two.Limit, old.Limit = 4, 4
	b.Apply(t, two, old)
	old.Limit = 5
	b.Apply(t, old) // what was pending is withdrawn
	if _, err := b.Rules.Apply(t.Context(), historytest.Documents(two, old), "ann", "", rulestore.ApplyOptions{Prune: true}); err != nil {
		t.Fatal(err)
	}
	b.Run(t, `ALTER TABLE weir.rule_versions DISABLE TRIGGER rule_versions_stay`)
	b.Run(t, `UPDATE weir.rule_versions SET document = 'of a newer build'`)
	one := rulestore.Label{Rule: "one", Mode: rules.ModeOff, Removed: true}
	second, third := rulestore.Label{Rule: "two", Mode: rules.ModeBlock, Pending: true}, rulestore.Label{Rule: "two-old", Mode: rules.ModeBlock}
	for prefix, want := range map[string][]rulestore.Label{"": {one, second, third}, "two": {second, third}, "two-": {third}, "t%": nil, "_": nil, "x\x00": nil} {
		if got, err := b.Rules.Labels(t.Context(), prefix); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", prefix, got, err, want)
		}
	}
}

func TestRuleOfANewerBuildIsRefused(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("login"))
	b.Run(t, `ALTER TABLE weir.rule_versions DISABLE TRIGGER rule_versions_stay`)
	b.Run(t, `UPDATE weir.rule_versions SET document = jsonb_set(document::jsonb, '{match,host}', '"api.example.com"')::text`)
	const want = `unknown field "host"`
	if _, err := b.Rules.List(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("listed: %v", err)
	}
	if v, _, err := b.Rules.RuleVersion(t.Context(), "login", 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("ENFORCE would block by %+v: %v", v, err)
	}
	if modes, err := b.Rules.Modes(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("gates would refuse by %+v: %v", modes, err)
	}
}

// watcher counts calls of onChange.
type watcher struct {
	calls atomic.Int64
}

func (w *watcher) start(t *testing.T, watch func(ctx context.Context, onChange func())) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(ctx, func() { w.calls.Add(1) })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	w.reach(t, 1)
}

// reach waits for the n-th call.
func (w *watcher) reach(t *testing.T, n int64) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if got := w.calls.Load(); got < n {
			return fmt.Errorf("%d calls, want %d", got, n)
		}
		return nil
	})
}

// notified waits until whoever changed something notifies of it.
func notified(t *testing.T, b *historytest.Bed, channel, payload string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		n, err := b.Conn.WaitForNotification(ctx)
		if err != nil {
			t.Fatalf("nobody was notified of %q on %s: %v", payload, channel, err)
		}
		if n.Channel == channel && n.Payload == payload {
			return
		}
	}
}

// Whoever changes rules notifies of it, and whoever watches hears of a change, notified or not.
func TestWatch(t *testing.T) {
	b := historytest.New(t)
	b.Run(t, "LISTEN weir_routing")
	b.Run(t, "LISTEN weir_modes")
	var routing, modes watcher
	routing.start(t, b.Rules.WatchRoutings)
	modes.start(t, b.Rules.WatchModes)
	b.Publish(t, rules.Format{Name: "weir"})
	notified(t, b, "weir_routing", streams.Live)
	routing.reach(t, 2)

	before := routing.calls.Load()
	// A change without a notification, as behind a connection pooler that swallows them.
	b.Run(t, `INSERT INTO weir.routing_versions (stream, number, document)
		SELECT stream, 2, jsonb_set(document::jsonb, '{number}', '2')::text FROM weir.routing_versions WHERE number = 1`)
	routing.reach(t, before+1)

	b.Apply(t, historytest.Document("flood"))
	notified(t, b, "weir_modes", "")
	modes.reach(t, 2)
	before = modes.calls.Load()
	setMode(t, b, "flood", rules.ModeOff)
	notified(t, b, "weir_modes", "flood")
	modes.reach(t, before+1)
}
