package acts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// unknown is how many are known to be good where nothing is known.
const unknown = -1

// attacked is an installation under an attack that goes on: of a hundred sources, so many are known to be good by a
// time.
type attacked struct {
	*installation
	good  func(until time.Time) int64
	told  int // how often something was told of a time that was over
	grown acts.Grown
}

func (a *attacked) ForPromotion(_ context.Context, rule string, version int, until time.Time,
	by string) (*rulestore.Dossier, []string, error) {
	good := a.good(until)
	known := &promotion.Part{Some: good, All: 100}
	if good == unknown {
		known = nil
	}
	document, err := json.Marshal(map[string]any{"rule": rule, "until": until, "good": good, "told": a.told})
	return &rulestore.Dossier{
		Rule: rule, Version: version, Since: until.Add(-25 * time.Hour), Until: until, Made: time.Now(), By: by,
		Document: document,
		Evidence: promotion.Evidence{
			Observed: promotion.Span(25 * time.Hour), Coverage: &promotion.Part{Some: 100, All: 100}, Good: known,
			Traffic: &promotion.Part{Some: 1, All: 1000},
		},
	}, nil, err
}

func (a *attacked) Grown(_ context.Context, _ string, _ int, since, until time.Time) (acts.Grown, error) {
	if !since.Before(until) {
		return acts.Grown{}, fmt.Errorf("from %s to %s", since, until)
	}
	return a.grown, nil
}

// What somebody has looked at decides, however the attack goes on. It is refused only where a gate that passed does not
// any more.
func TestPromotionsAreOfWhatWasLookedAt(t *testing.T) {
	t.Parallel()
	a := &attacked{installation: newInstallation(t)}
	s, err := acts.New(acts.Options{
		Rules: a.Rules, Gates: a, Blocks: a, Releases: a, Documents: a, Dossiers: a, Clock: now,
		Logger: slog.New(slog.DiscardHandler),
		Orders: a.Orders, Knows: explore.New(a.Store), Partitions: a.Partitions,
	})
	if err != nil {
		t.Fatal(err)
	}
	who := access.Actor{Name: "ann", Role: access.Admin, Via: access.ViaOIDC}
	looked := time.Now().Add(-5 * time.Minute).UTC().Truncate(time.Minute)
	at := looked.Format("15:04 UTC")
	turns := func(before, after int64) func(time.Time) int64 {
		return func(until time.Time) int64 {
			if until.After(looked) {
				return after
			}
			return before
		}
	}
	for i, tt := range []struct {
		what     string
		other    bool // the evidence of now decides
		good     func(time.Time) int64
		grown    acts.Grown
		later    bool // something is told of the time that was looked at
		until    time.Time
		override string
		news     []string
		refused  any // the kind of the error
		says     string
	}{
		{what: "an attack that goes on", good: turns(0, 0), grown: acts.Grown{Sources: 3, Events: 5}, until: looked,
			news: []string{"3 sources had 5 more events since " + at}},
		{what: "nothing has come", good: turns(0, 0), until: looked},
		{what: "a gate turns", good: turns(0, 2), until: looked, refused: new(*acts.TurnedError),
			says: "since " + at + " a gate answers otherwise: max_known_good, allowed at most 0%: then 0% (passed), now 2% (failed); look again"},
		{what: "a gate turns, overridden", good: turns(0, 2), until: looked, override: "they are ours",
			refused: new(*acts.TurnedError), says: "now 2% (failed)"},
		{what: "overridden, and worse by now", good: turns(2, 4), until: looked, override: "they are ours"},
		{what: "better by now", good: turns(2, 0), until: looked, refused: new(*rulestore.GatesError), says: "got 2%"},
		{what: "more is told of it", good: turns(0, 0), grown: acts.Grown{Sources: 1, Events: 1}, later: true,
			until: looked,
			news: []string{"of the time until " + at + " more has been told since",
				"1 source had 1 more event since " + at}},
		{what: "nothing was known then", good: func(until time.Time) int64 {
			if until.After(looked) {
				return 2
			}
			return unknown
		}, until: looked, override: "they are ours", refused: new(*acts.TurnedError),
			says: "max_known_good, allowed at most 0%: then not measurable, now 2% (failed)"},
		{what: "nothing was known then, and it passes now", good: func(until time.Time) int64 {
			if until.After(looked) {
				return 0
			}
			return unknown
		}, until: looked, news: []string{"of the time until " + at +
			" less was known than by now: the evidence until"}, other: true},
		{what: "a time that is too long over", good: turns(0, 0), until: looked.Add(-20 * time.Minute),
			refused: new(*acts.Invalid), says: "a time of the last 19m: look again"},
		{what: "a time that is to come", good: turns(0, 0), until: looked.Add(time.Hour), refused: new(*acts.Invalid),
			says: "a time of the last 19m"},
		{what: "nobody has looked", good: turns(0, 0), grown: acts.Grown{Sources: 3, Events: 5}},
		{what: "nobody has looked, and a gate fails", good: turns(0, 2), refused: new(*rulestore.GatesError),
			says: "got 2%"},
	} {
		rule := fmt.Sprint("rule-", i)
		a.good, a.grown, a.told = tt.good, tt.grown, 0
		if _, err := s.Apply(t.Context(), who, acts.ApplyRequest{Files: []acts.File{{Name: rule, Text: "5"}},
			Reason: "new"}); err != nil {
			t.Fatal(err)
		}
		request := acts.PromoteRequest{Rule: rule, To: rules.ModeBlock, Override: tt.override, Until: tt.until,
			Reason: "seen enough"}
		if !tt.until.IsZero() {
			shown, err := s.Evidence(t.Context(), who, acts.EvidenceRequest{Rule: rule, Until: tt.until})
			if err != nil || shown.Hash == "" {
				t.Fatalf("%s: %+v, %v", tt.what, shown, err)
			}
			request.Dossier = shown.Hash
		}
		if tt.later {
			a.told++
		}
		done, err := s.Promote(t.Context(), who, request)
		if tt.refused != nil {
			stands, findErr := a.Rules.Find(t.Context(), rule)
			if err == nil || !errors.As(err, tt.refused) || !strings.Contains(err.Error(), tt.says) ||
				findErr != nil || stands.Mode != rules.ModeShadow {
				t.Errorf("%s: %v, want %q; it is in %s, %v", tt.what, err, tt.says, stands.Mode, findErr)
			}
			continue
		}
		if err != nil || done.Mode != rules.ModeBlock || !slices.EqualFunc(done.SinceLooked.News, tt.news,
			strings.HasPrefix) {
			t.Errorf("%s: %v, in %s, news %q, want %q", tt.what, err, done.Mode, done.SinceLooked.News, tt.news)
			continue
		}
		if request.Dossier != "" && !tt.later && !tt.other && done.Dossier != request.Dossier {
			t.Errorf("%s: by dossier %s, looked at was %s", tt.what, done.Dossier, request.Dossier)
		}
		all, err := a.Audit.Find(t.Context(), audit.Query{Action: "promote", Limit: 1})
		if err != nil || len(all) != 1 || all[0].Entry.Object != "rule "+rule {
			t.Fatalf("%s: %+v, %v", tt.what, all, err)
		}
		for _, line := range done.SinceLooked.News {
			if !strings.Contains(all[0].Entry.Detail, line) {
				t.Errorf("%s: the audit trail says %q, and not %q", tt.what, all[0].Entry.Detail, line)
			}
		}
	}
}
