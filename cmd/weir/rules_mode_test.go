package main

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// modeAnswer is what promote and demote print as JSON.
type modeAnswer struct {
	Rule        string    `json:"rule"`
	Mode        string    `json:"mode"`
	Generation  int64     `json:"generation"`
	Changed     *bool     `json:"changed"`
	Since       time.Time `json:"since"`
	By          string    `json:"by"`
	Reason      string    `json:"reason"`
	Published   *bool     `json:"published"`
	Unpublished string    `json:"unpublished"`
}

func standaloneBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	return b
}

// withoutRedis is the same installation, asked from where Redis cannot be reached.
func (b *bed) withoutRedis() *bed {
	return &bed{t: b.t, flags: append(slices.Clone(b.flags), "--redis-url", "redis://127.0.0.1:1/0")}
}

// publishedMode is what Redis holds of the rule; nothing if it holds nothing.
func (b *bed) publishedMode(rule string) rules.ModeState {
	b.t.Helper()
	s, err := blocklist.Connect(blocklist.Server{URL: b.flag("--redis-url")}, b.flag("--namespace"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.t.Error(err)
		}
	}()
	modes, err := s.Modes(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range modes {
		if m.Rule == rule {
			return m
		}
	}
	return rules.ModeState{}
}

// Who demotes tells the gates: nobody has to be there to do it for them.
func TestDemotionReachesGatesWithoutWeirRun(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, redis testbed.RedisServer) {
		b := newBed(t, redis)
		b.ok("migrate")
		b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
		b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
		stages := b.start("run")
		door := b.start("gate", "--listen", "127.0.0.1:0")
		address := door.awaitLog(`forward-auth checks" address=(\S+)`)
		abuser := "198.51.100.8"
		b.send(abuser, 6)
		awaitStatus(t, address, abuser, http.StatusTooManyRequests)
		stages.end()

		b.ok("rules", "demote", "tokens", "--reason", "a partner is among the hits")
		testbed.Eventually(t, 30*time.Second, func() error {
			if got := check(t, address, abuser).status; got != http.StatusOK {
				return errors.New("the gate still refuses")
			}
			return nil
		})
		door.end()
	})
}

func TestModesNeedAReason(t *testing.T) {
	t.Parallel()
	b := standaloneBed(t)
	for _, verb := range []string{"promote", "demote"} {
		for _, reason := range [][]string{nil, {"--reason", " "}, {"--reason", "…"}} {
			o := b.weir(append([]string{"rules", verb, "tokens"}, reason...)...)
			if o.code != exitUsage || !strings.Contains(o.stderr, "--reason is required") || !strings.Contains(o.stderr, "weir rules "+verb+" guest-token-flood --reason \"") {
				t.Errorf("%s without a reason: exit code %d\n%s", verb, o.code, o.stderr)
			}
		}
	}
	if m := b.publishedMode("tokens"); m.Mode != rules.ModeShadow || m.Generation != 1 {
		t.Errorf("the rule is %+v now, want it as rules apply left and published it", m)
	}
}

func TestPromotionSaysWhetherAnythingChanged(t *testing.T) {
	t.Parallel()
	b := standaloneBed(t)
	first := decode[modeAnswer](b, "rules", "promote", "tokens", "--by", "anna", "--reason", "seen enough", "--yes", "--override", "tests")
	if !*first.Changed || !*first.Published || first.Mode != "block" || first.By != "anna" || first.Reason != "seen enough" || first.Since.IsZero() {
		t.Errorf("promoted: %+v", first)
	}
	again := decode[modeAnswer](b, "rules", "promote", "tokens", "--by", "bob", "--reason", "me too", "--yes", "--override", "tests")
	if *again.Changed || again.Generation != first.Generation || again.By != "anna" || again.Reason != "seen enough" || !again.Since.Equal(first.Since) {
		t.Errorf("promoted again: %+v, want what anna did", again)
	}
	want := "rule tokens blocks already since " + terminal.Stamp(first.Since) + ", by anna: seen enough; nothing changed\n"
	if got := b.ok("rules", "promote", "tokens", "--reason", "me too", "--yes", "--override", "tests"); got != want {
		t.Errorf("promoted a third time:\n got %q\nwant %q", got, want)
	}
	if got := b.ok("rules", "demote", "tokens", "--reason", "enough"); !strings.HasPrefix(got, "rule tokens: mode shadow, generation 3\npublished to redis ") {
		t.Errorf("demoted: %q", got)
	}
	if got := b.ok("rules", "demote", "tokens", "--reason", "enough"); !strings.HasPrefix(got, "rule tokens is in shadow already since ") {
		t.Errorf("demoted again: %q", got)
	}
	if m := b.publishedMode("tokens"); m.Mode != rules.ModeShadow || m.Generation != 3 {
		t.Errorf("published: %+v", m)
	}
}

// Who may change rules may have no access to Redis: the change is stored, and the command says that gates do not know yet.
func TestPromotionWithoutRedisIsStored(t *testing.T) {
	t.Parallel()
	b := standaloneBed(t)
	away := b.withoutRedis()
	answer := decode[modeAnswer](away, "rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
	if !*answer.Changed || *answer.Published || !strings.Contains(answer.Unpublished, "127.0.0.1:1") {
		t.Errorf("promoted without Redis: %+v", answer)
	}
	out := away.ok("rules", "demote", "tokens", "--reason", "enough")
	if !strings.Contains(out, "the mode is stored; weir run publishes it when Redis answers") {
		t.Errorf("demoted without Redis:\n%s", out)
	}
	if out := away.ok("rules", "demote", "tokens", "--reason", "enough"); !strings.Contains(out, "nothing changed\nwhether gates know is not known, Redis did not answer (") {
		t.Errorf("demoted without Redis, again:\n%s", out)
	}
	away.ok("rules", "promote", "tokens", "--reason", "once more", "--yes", "--override", "tests")
	if m := b.publishedMode("tokens"); m.Generation != 1 {
		t.Fatalf("published without Redis: %+v", m)
	}
	// To ask again from where Redis answers is enough.
	if out := b.ok("rules", "promote", "tokens", "--reason", "tell them", "--yes", "--override", "tests"); !strings.Contains(out, "nothing changed\npublished to redis ") {
		t.Errorf("promoted again with Redis:\n%s", out)
	}
	if m := b.publishedMode("tokens"); m.Mode != rules.ModeBlock || m.Generation != 4 {
		t.Errorf("published: %+v", m)
	}
	away.ok("rules", "demote", "tokens", "--reason", "enough")
	stages := b.start("run")
	testbed.Eventually(t, 30*time.Second, func() error {
		if m := b.publishedMode("tokens"); m.Mode != rules.ModeShadow {
			return errors.New("weir run has not published it yet")
		}
		return nil
	})
	stages.end()
}

func TestApplyPublishesWhatItChanged(t *testing.T) {
	t.Parallel()
	b := standaloneBed(t)
	b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
	narrower := strings.Replace(tokenRule, "/v1/guest-tokens", "/v1/guest-tokens/narrow", 1)
	if narrower == tokenRule {
		t.Fatal("the rule has another path")
	}
	b.ok("rules", "demote", "tokens", "--reason", "to edit it")
	out := b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", narrower), "--dry-run")
	if m := b.publishedMode("tokens"); strings.Contains(out, "published") || m.Newest != 1 {
		t.Errorf("a dry run published %+v\n%s", m, out)
	}
	out = b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", narrower))
	if m := b.publishedMode("tokens"); m.Newest != 2 || !strings.Contains(out, "published to redis ") {
		t.Errorf("published: %+v\n%s", m, out)
	}
	plan := decode[struct {
		Changes   []struct{ Kind string }
		Published *bool
	}](b, "rules", "apply", "-f", writeFile(t, "tokens.yaml", narrower))
	if len(plan.Changes) != 1 || plan.Changes[0].Kind != "unchanged" || plan.Published == nil || !*plan.Published {
		t.Errorf("applied again: %+v", plan)
	}
	out = b.withoutRedis().ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	if !strings.Contains(out, "the rules are stored; weir run publishes them when Redis answers") {
		t.Errorf("applied without Redis:\n%s", out)
	}
}

// A limit that was raised for a time, and then exceeded by an edit, is shown as the one without effect that it is.
func TestRaisedLimitsThatAreWithoutEffectAreShownSo(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	up := &rulestore.Raised{Limit: 50, Until: now.Add(time.Hour), By: "ann", Reason: "a sale"}
	for _, tt := range []struct {
		limit          int
		up             *rulestore.Raised
		listed, beside string
	}{
		{20, up, "20 (50 until 2026-03-01T13:00:00Z)", "# limit 50 until 2026-03-01T13:00:00Z, set by ann: a sale\n"},
		{60, up, "60 (raised to 50 until 2026-03-01T13:00:00Z, without effect)", "# limit 50 until 2026-03-01T13:00:00Z, without effect, since the document's is 60, set by ann: a sale\n"},
		{50, up, "50 (raised to 50 until 2026-03-01T13:00:00Z, without effect)", "# limit 50 until 2026-03-01T13:00:00Z, without effect, since the document's is 50, set by ann: a sale\n"},
		{60, nil, "60", ""},
		{60, &rulestore.Raised{Limit: 50, Until: now}, "60", ""},
	} {
		r := rulestore.Rule{Raised: tt.up}
		r.Newest.Version.Limit = tt.limit
		if got := limitText(tt.limit, tt.up, now); got != tt.listed {
			t.Errorf("limit %d: got %s, want %s", tt.limit, got, tt.listed)
		}
		if got := besideText(&r, now); got != tt.beside {
			t.Errorf("limit %d: got %s, want %s", tt.limit, got, tt.beside)
		}
	}
}
