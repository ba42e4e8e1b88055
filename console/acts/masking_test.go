package acts_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

func maskedBelowAdmin(t *testing.T) *access.Masker {
	t.Helper()
	m, err := access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", access.MaskKeyBytes)),
		Below:  access.Admin,
		Fields: access.DefaultMaskedFields()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var otto = access.Actor{Name: "otto", Role: access.Owner, Owners: []string{"identity"}, Via: access.ViaToken}

// Who is shown pseudonyms promotes by the hash that he was shown, and learns of no other one whose evidence it is.
func TestMaskedOwnersPromoteByTheHashThatTheyWereShown(t *testing.T) {
	t.Parallel()
	a := &attacked{installation: newInstallation(t), good: func(time.Time) int64 { return 0 }}
	masker := maskedBelowAdmin(t)
	s, err := acts.New(acts.Options{
		Rules: a.Rules, Gates: a, Blocks: a, Releases: a, Documents: a, Dossiers: a, Clock: now,
		Logger: slog.New(slog.DiscardHandler),
		Orders: a.Orders, Knows: explore.New(a.Store), Partitions: a.Partitions, Masking: acts.Masking{Masker: masker,
			Trail: a.Audit},
	})
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(-5 * time.Minute).UTC().Truncate(time.Minute)
	for i, guess := range []bool{false, true} {
		rule := []string{"looked", "guessed"}[i]
		if _, err := s.Apply(t.Context(), otto, acts.ApplyRequest{Files: []acts.File{{Name: rule, Text: "5"}},
			Alone:  true,
			Reason: "new"}); err != nil {
			t.Fatal(err)
		}
		looked, err := s.Evidence(t.Context(), otto, acts.EvidenceRequest{Rule: rule, Until: until})
		if err != nil {
			t.Fatal(err)
		}
		seen := access.Show(masker.For(otto), looked)
		if seen.Hash == looked.Hash || len(seen.Hash) != len(looked.Hash) {
			t.Errorf("%s is shown as %s", looked.Hash, seen.Hash)
		}
		if guess {
			seen.Hash = looked.Hash
		}
		done, err := s.Promote(t.Context(), otto, acts.PromoteRequest{Rule: rule, Until: until, Dossier: seen.Hash,
			Reason: "x"})
		news := strings.Join(done.SinceLooked.News, "; ")
		if err != nil || strings.Contains(news, "another dossier") != guess || strings.Contains(news, looked.Hash) {
			t.Errorf("a guess %t: %v, news %q", guess, err, news)
		}
	}
}

// tries is an installation that tries a set of documents, and keeps what came of it.
type tries struct {
	*installation
	set   rules.Set
	fails error // of the trail
	order []string
}

func (i *tries) Read([]acts.File, []string) (*rules.Set, []rules.Problem, error) {
	return &i.set, nil, nil
}

func (i *tries) Tests(context.Context, []acts.File, []rules.AllowList) ([]acts.RuleTest, []string, error) {
	return nil, nil, nil
}

func (i *tries) Traffic(context.Context, *rules.Set, []rules.AllowList, time.Duration) (acts.TrafficTried, error) {
	i.order = append(i.order, "traffic")
	return acts.TrafficTried{}, nil
}

func (i *tries) Add(_ context.Context, e audit.Entry) error {
	i.order = append(i.order, e.Action+" by "+e.Actor+" of "+e.Object)
	return i.fails
}

// A trial by which who is shown pseudonyms finds out who is behind one is written down before anything is looked at;
// and he enters nobody into a list by a document, whose entries he would be shown the pseudonyms of.
func TestTrialsOfConditionsAreAudited(t *testing.T) {
	t.Parallel()
	i := &tries{installation: newInstallation(t)}
	s, err := acts.New(acts.Options{
		Rules: i.Rules, Gates: i, Blocks: i, Releases: i, Documents: i, Dossiers: i, Clock: now,
		Logger: slog.New(slog.DiscardHandler), Orders: i.Orders, Knows: explore.New(i.Store), Partitions: i.Partitions,
		Trials:  i,
		Masking: acts.Masking{Masker: maskedBelowAdmin(t), Trail: i},
	})
	if err != nil {
		t.Fatal(err)
	}
	plain, asks := historytest.Document("plain"), historytest.Document("asks")
	asks.Match.When = `event.ip == "203.0.113.9"`
	admin := access.Actor{Name: "adam", Role: access.Admin}
	gone := errors.New("gone")
	for _, tc := range []struct {
		who   access.Actor
		doc   rules.Document
		fails error
		want  string
	}{
		{otto, asks, nil, "try by otto of rules asks, traffic"},
		{otto, asks, gone, "try by otto of rules asks"},
		{otto, plain, gone, "traffic"},
		{admin, asks, gone, "traffic"},
	} {
		i.set, i.fails, i.order = rules.Set{Rules: []rules.Document{tc.doc}}, tc.fails, nil
		tried, err := s.Try(t.Context(), tc.who, acts.TryRequest{Files: []acts.File{{Text: "x"}}})
		if got := strings.Join(i.order, ", "); err != nil || got != tc.want ||
			(tried.Traffic == nil) == (tried.NoTraffic == "") {
			t.Errorf("%s tries %s: %v, %q, want %q; %+v", tc.who.Name, tc.doc.ID, err, got, tc.want, tried)
		}
	}
	i.set = rules.Set{AllowLists: []rules.AllowList{{ID: "office", Owner: "identity",
		Entries: []rules.AllowEntry{{Kind: rules.AllowCIDR, Value: "203.0.113.9/32", Reason: "x"}}}}}
	var invalid *acts.Invalid
	if _, err := s.Try(t.Context(), otto, acts.TryRequest{}); !errors.As(err, &invalid) ||
		strings.Contains(err.Error(), "203.0.113.9") {
		t.Errorf("a document with an entry is tried: %v", err)
	}
	if _, err := s.Apply(t.Context(), otto, acts.ApplyRequest{Alone: true, Reason: "x"}); !errors.As(err, &invalid) {
		t.Errorf("a document with an entry is applied: %v", err)
	}
}

// Errors have pseudonyms for what the request has met, hide what else looks like a value, and repeat what it got wrong.
func TestErrorsInWords(t *testing.T) {
	t.Parallel()
	m := maskedBelowAdmin(t)
	mask := m.For(otto)
	alice := string(mask.Subject("user=alice%20smith"))
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&acts.NotBlockedError{Rule: "flood", Subject: "user=alice%20smith"},
			"nothing was blocked: no block of rule flood stands for " + alice + ", and nothing was released"},
		{&acts.NotBlockedError{Rule: "flood", Subject: "user=bob"},
			"nothing was blocked: no block of rule flood stands for user=~, and nothing was released"},
		{&acts.Invalid{Field: "until", Got: "203.0.113.9", Allowed: "a time"},
			`until: got "203.0.113.9"; allowed: a time`},
		{&acts.UnknownName{Thing: "rule", Name: "alice smith"}, `there is no rule "alice smith", and no other`},
		{&acts.ChangedError{Rule: "flood", Now: acts.Standing{Mode: rules.ModeBlock, By: "ann",
			Reason: "alice smith at 203.0.113.9"}},
			"rule flood has changed since it was looked at: it is now in mode block, version 0, set by ann: " +
				strings.TrimPrefix(alice, "user=") + " at ~; nothing was done, look again"},
		{&acts.AwayError{Store: "Redis", Consequence: "who knows", Cause: errors.New("dial 10.0.0.7:6379")},
			"Redis does not answer: who knows"},
		{context.DeadlineExceeded, "a store of the installation does not answer: " +
			"nothing is known to be done; look before you ask again"},
		{&acts.UnfinishedError{Done: "it is written", Undone: "not more", Cause: errors.New("dial 10.0.0.7:6379")},
			"it is written, but not more"},
		{&rulestore.AllowRefusedError{Changes: []rulestore.AllowChange{{List: "office",
			Refused: []string{"device alice"}}}},
			"allow list office: 1 line about sources that a rule that blocks would count again; " +
				"nothing was changed: demote the rule, change the list, watch the rule in shadow, promote it again"},
	} {
		if got := acts.Words(mask, otto, tc.err); got != tc.want {
			t.Errorf("%T is told as\n%s\nwant\n%s", tc.err, got, tc.want)
		}
	}
	admin := access.Actor{Role: access.Admin}
	if got := acts.Words(m.For(admin), admin, &acts.AwayError{Store: "Redis",
		Cause: errors.New("dial 10.0.0.7:6379")}); !strings.Contains(got, "10.0.0.7") {
		t.Errorf("an admin is told %q", got)
	}
}
