package rulestore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const sofa = "ip=192.0.2.1%2F32&device=tv-7"

func reset(b *historytest.Bed, t *testing.T, rule string, who traffic.Subject) (rulestore.CounterResetDone, error) {
	return b.Rules.ResetCounter(t.Context(), rulestore.CounterReset{Rule: rule, Subject: who, By: "ann", Reason: "ticket 4711"})
}

// newest is the live stream's newest routing version.
func newest(t *testing.T, b *historytest.Bed) *rules.Routing {
	t.Helper()
	n, err := b.Rules.Newest(t.Context(), streams.Live)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Rules.Routing(t.Context(), streams.Live, n)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResetCounter(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	all := historytest.Document("all")
	all.Key, all.Block = []traffic.KeyField{}, nil
	b.Apply(t, historytest.Document("flood"), all)
	before := newest(t, b)

	done, err := reset(b, t, "flood", sofa)
	if err != nil {
		t.Fatal(err)
	}
	r := newest(t, b)
	if done.Routing != before.Number+1 || r.Number != done.Routing || len(r.Resets) != 1 || len(r.Rules) != len(before.Rules) {
		t.Fatalf("%+v: %+v", done, r)
	}
	if x := r.Resets[0]; x.Rule != "flood" || x.Subject != sofa || x.Since != r.Number || !slices.Equal(x.Key, r.Find("flood").Key) || x.At != traffic.At(done.At) {
		t.Errorf("%+v", x)
	}
	entries, err := b.Audit.Of(t.Context(), "rule flood", 1)
	if err != nil || len(entries) != 1 || entries[0].Action != "reset-count" || entries[0].Actor != "ann" || entries[0].Reason != "ticket 4711" ||
		entries[0].Detail != fmt.Sprintf("%s, in routing version %d", sofa, r.Number) {
		t.Errorf("audit %+v, %v", entries, err)
	}

	// A later one of the same key stands for both; those of others stay, and so they do when rules change.
	if _, err := reset(b, t, "all", ""); err != nil {
		t.Fatal(err)
	}
	again, err := reset(b, t, "flood", sofa)
	if err != nil {
		t.Fatal(err)
	}
	edited := historytest.Document("flood")
	edited.Limit = 99
	b.Apply(t, edited)
	setMode(t, b, "all", rules.ModeOff)
	b.Publish(t, rules.Format{Name: "weir", MaxEventBytes: 4096})
	got := newest(t, b)
	if len(got.Resets) != 2 || got.Resets[0].Rule != "all" || got.Resets[1].Since != again.Routing || got.Number <= again.Routing {
		t.Errorf("version %d: %+v", got.Number, got.Resets)
	}
}

func TestResetCounterIsRefused(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	bucket, never, off, gone := historytest.Document("bucket"), historytest.Document("never"), historytest.Document("off"), historytest.Document("gone")
	bucket.Algorithm = rules.AlgorithmLeakyBucket
	never.Block.Extend = rules.ExtendNever
	b.Apply(t, historytest.Document("flood"), bucket, never, off, gone)
	for _, rule := range []string{"flood", "bucket", "never"} {
		setMode(t, b, rule, rules.ModeBlock)
	}
	setMode(t, b, "off", rules.ModeOff)
	if _, err := b.Rules.Apply(t.Context(), historytest.Documents(historytest.Document("flood"), bucket, never, off), "ann", "test", rulestore.ApplyOptions{Prune: true}); err != nil {
		t.Fatal(err)
	}
	before := newest(t, b).Number
	for _, c := range []struct {
		rule string
		who  traffic.Subject
		want string
	}{
		{"flod", sofa, ""},
		{"gone", sofa, "removed"},
		{"off", sofa, `resetting a count of rule "off": it is off, and counts nothing`},
		{"flood", "ip=192.0.2.1%2F32", "SOURCE: "},
		{"flood", "ip=192.0.2.0%2F24&device=tv-7", "; it counts by [{field: ip, v4: 32, v6: 64}, device]"},
		{"flood", "ip=192.0.2.1%2F32&device=sha256:" + traffic.Subject(strings.Repeat("0a", 32)), "counts are not kept by digests"},
		{"bucket", sofa, "after a reset it may block more (algorithm leaky-bucket, count events: without the events before it, one may be over that was not)"},
		{"never", sofa, "each opening blocks"},
	} {
		_, err := reset(b, t, c.rule, c.who)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.want == "" && !errors.Is(err, postgres.ErrNotFound) {
			t.Errorf("%s %s: %v, want %q", c.rule, c.who, err, c.want)
		}
	}
	if n := newest(t, b).Number; n != before {
		t.Errorf("routing version %d after refusals, was %d", n, before)
	}
	if _, err := reset(b, t, "flood", sofa); err != nil {
		t.Error(err)
	}
	setMode(t, b, "bucket", rules.ModeShadow)
	if _, err := reset(b, t, "bucket", sofa); err != nil {
		t.Error(err)
	}
}

// The pending version of a rule is reset with it, whatever its key, where the subject is one of that.
func TestResetCounterOfPending(t *testing.T) {
	t.Parallel()
	b := newTrial(t)
	edited(func(d *rules.Document) { d.Key, d.Block.Key = d.Key[:1], d.Key[:1] })(b)
	for _, who := range []traffic.Subject{sofa, "ip=192.0.2.1%2F32"} {
		if _, err := reset(b.Bed, t, "flood", who); err != nil {
			t.Fatal(err)
		}
	}
	if r := newest(t, b.Bed); len(r.Resets) != 2 || len(r.Resets[0].Key) != 2 || len(r.Resets[1].Key) != 1 || r.Resets[0].Since != r.Resets[1].Since-1 {
		t.Errorf("%+v", r.Resets)
	}
}

func TestResetsAreBounded(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("flood"))
	store := func(at time.Time) {
		t.Helper()
		r := newest(t, b)
		key := r.Find("flood").Key
		r.Number++
		r.Resets = nil
		for i := range rules.MaxResets {
			r.Resets = append(r.Resets, rules.Reset{Rule: "flood", Key: key, Subject: traffic.Subject(fmt.Sprintf("ip=192.0.2.1%%2F32&device=tv-%d", i)), Since: 1, At: traffic.At(at)})
		}
		document, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b.Run(t, "INSERT INTO weir.routing_versions (stream, number, document) VALUES ('live', $1, $2)", r.Number, string(document))
	}
	store(time.Now())
	if _, err := reset(b, t, "flood", "ip=198.51.100.1%2F32&device=tv"); err == nil || !strings.Contains(err.Error(), "got 1001 counts reset in the last 62 days, allowed 1000") {
		t.Errorf("one more: %v", err)
	}
	if _, err := reset(b, t, "flood", sofa); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	store(time.Now().Add(-rules.ResetKept - time.Hour))
	if _, err := reset(b, t, "flood", sofa); err != nil {
		t.Fatal(err)
	}
	if got := newest(t, b); len(got.Resets) != 1 || got.Resets[0].Since != got.Number {
		t.Errorf("after they are over: %d resets", len(got.Resets))
	}
}

func TestResetNeedsItsRecordFormat(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("flood"))
	if _, _, err := b.Rules.PublishRouting(t.Context(), streams.Live, func(prev *rules.Routing) (rules.Routing, error) {
		next := *prev
		next.RecordFormat = rules.LanguageRecordFormat - 1
		return next, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := reset(b, t, "flood", sofa); err == nil || !strings.Contains(err.Error(), "weir migrate --record-format 5") {
		t.Error(err)
	}
}
