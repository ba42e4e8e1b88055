package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// shelf is a rule store that a test changes.
type shelf struct {
	mu      sync.Mutex
	rules   []rulestore.Rule
	err     error
	changed func()
}

func (s *shelf) List(context.Context) ([]rulestore.Rule, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules, s.err
}

func (s *shelf) WatchModes(ctx context.Context, onChange func()) {
	s.mu.Lock()
	s.changed = onChange
	s.mu.Unlock()
	onChange()
	<-ctx.Done()
}

func (s *shelf) put(err error, all ...rulestore.Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.err = all, err
	if s.changed != nil {
		s.changed()
	}
}

func shelved(id, owner string, mode rules.Mode, version int) rulestore.Rule {
	v := rules.Version{Document: rules.Document{ID: id, Owner: owner}, Number: version}
	return rulestore.Rule{Newest: rulestore.StoredVersion{Version: v}, Mode: mode}
}

// While processes disagree about a rule, whoever saw its newest change is believed: that of its version, or of its mode.
func TestWhenARuleWasChanged(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	early := time.Date(2026, 11, 22, 12, 0, 0, 250_001_000, time.UTC)
	a, b := shelved("a", "growth", rules.ModeShadow, 1), shelved("b", "growth", rules.ModeBlock, 1)
	a.Newest.Created, a.Changed = early, early.Add(time.Hour)
	b.Newest.Created, b.Changed = early.Add(time.Minute), early
	w, err := newRuleWatch(&shelf{rules: []rulestore.Rule{a, b}}, slog.New(slog.DiscardHandler), registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.show(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := `# HELP weir_rule_changed_timestamp_seconds When a rule was last changed, its version or its mode, as a Unix time.
# TYPE weir_rule_changed_timestamp_seconds gauge
weir_rule_changed_timestamp_seconds{rule="a"} 1.795352400250001e+09
weir_rule_changed_timestamp_seconds{rule="b"} 1.795348860250001e+09
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "weir_rule_changed_timestamp_seconds"); err != nil {
		t.Error(err)
	}
}

func TestRuleInfoFollowsTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, registry := &shelf{}, prometheus.NewPedanticRegistry()
		w, err := newRuleWatch(store, slog.New(slog.DiscardHandler), registry)
		if err != nil {
			t.Fatal(err)
		}
		told, followed := 0, 0
		w.tell = func() { told++ }
		w.follow = func(context.Context) error {
			followed++
			return errors.New("away")
		}
		ctx, stop := context.WithCancel(t.Context())
		for _, p := range w.parts() {
			go func() {
				if err := p.Run(ctx); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			}()
		}
		shows := func(when string, series ...string) {
			t.Helper()
			synctest.Wait()
			want := ""
			if len(series) > 0 {
				want = "# HELP weir_rule_info 1 for each rule, with its owner, its mode (shadow, canary, block or disabled) and the number of its newest version.\n" +
					"# TYPE weir_rule_info gauge\nweir_rule_info" + strings.Join(series, " 1\nweir_rule_info") + " 1\n"
			}
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "weir_rule_info"); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		shows("no rules")
		store.put(nil, shelved("a", "growth", rules.ModeShadow, 1), shelved("b", "", rules.ModeOff, 3))
		shows("two", `{mode="shadow",owner="growth",rule="a",version="1"}`, `{mode="disabled",owner="",rule="b",version="3"}`)
		store.put(nil, shelved("a", "growth", rules.ModeBlock, 2), shelved("c", "fraud", rules.ModeShadow, 1))
		shows("one promoted, one removed, one new", `{mode="block",owner="growth",rule="a",version="2"}`, `{mode="shadow",owner="fraud",rule="c",version="1"}`)
		if told != 3 || followed != 3 {
			t.Errorf("stages were told %d times, %d times before they followed; want 3", told, followed)
		}
		store.put(errors.New("away"))
		shows("without an answer", `{mode="block",owner="growth",rule="a",version="2"}`, `{mode="shadow",owner="fraud",rule="c",version="1"}`)
		store.put(nil)
		stop()
		synctest.Wait()
	})
}

// A stage that could not follow a change does so without another one, and the log says so now and then.
func TestAStageFollowsAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shelf{}
		var text bytes.Buffer
		w, err := newRuleWatch(store, slog.New(slog.NewTextHandler(&text, nil)), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		start, away := time.Now(), errors.New("away")
		var mu sync.Mutex
		var tried []time.Duration
		answer := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			tried, away = nil, err
		}
		hangs := errors.New("no answer")
		w.follow = func(ctx context.Context) error {
			mu.Lock()
			tried = append(tried, time.Since(start))
			err := away
			mu.Unlock()
			if errors.Is(err, hangs) {
				<-ctx.Done()
			}
			return err
		}
		wantTries := func(when string, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(tried, want) {
				t.Errorf("%s: tried after %v, want %v", when, tried, want)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		for _, p := range w.parts() {
			go func() {
				if err := p.Run(ctx); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			}()
		}
		const s = time.Second
		time.Sleep(10 * s)
		wantTries("while it fails", 0, s, 3*s, 7*s)
		store.put(nil, shelved("a", "growth", rules.ModeShadow, 1))
		wantTries("a change does not wait", 0, s, 3*s, 7*s, 10*s)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		mu.Lock()
		if n := len(tried); n < 13 || n > 17 {
			t.Errorf("tried %d times in ten minutes, want once a minute: %v", n, tried)
		}
		mu.Unlock()
		if n := strings.Count(text.String(), "do not follow the rules yet"); n < 2 || n > 10 || !strings.Contains(text.String(), "error=away") {
			t.Errorf("told of %d times:\n%s", n, text.String())
		}
		text.Reset()
		answer(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		if len(tried) != 1 || strings.Count(text.String(), "follow the rules again") != 1 {
			t.Errorf("tried after %v, want once; logged\n%s", tried, text.String())
		}
		mu.Unlock()
		answer(errors.New("away"))
		at := time.Since(start)
		store.put(nil)
		time.Sleep(2 * s)
		wantTries("another time", at, at+s)
		answer(nil)
		at = time.Since(start)
		store.put(nil)
		time.Sleep(time.Hour)
		wantTries("a change ends the wait", at)
		text.Reset()
		answer(hangs)
		store.put(nil)
		synctest.Wait()
		stop()
		synctest.Wait()
		if text.Len() > 0 {
			t.Errorf("at the end it logs\n%s", text.String())
		}
	})
}

// Without a stage that wants to know, a watch only shows.
func TestAWatchNeedsNoStage(t *testing.T) {
	w, err := newRuleWatch(&shelf{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.tell()
	if err := w.follow(t.Context()); err != nil {
		t.Error(err)
	}
}
