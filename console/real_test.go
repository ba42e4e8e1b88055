package console

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/console/standing"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// installation is a history and a blocklist with RECORD and ENFORCE before them.
type installation struct {
	history  *history.Store
	blocks   *blocklist.Store
	record   *history.HitRecorder
	enforce  *enforce.Enforcer
	registry *prometheus.Registry
	offset   int64
}

// sink takes what the stages of the installation say: this test looks at the stores only.
type sink struct{ letters int }

func (s *sink) Put(_ context.Context, letters []traffic.DeadLetter) error {
	s.letters += len(letters)
	return nil
}

func (s *sink) Append(context.Context, int, []blocklist.Decision) error { return nil }

func install(t *testing.T) *installation {
	t.Helper()
	ctx := t.Context()
	in := &installation{registry: prometheus.NewRegistry()}
	out := &sink{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	name := testbed.Namespace(t)
	in.history, err = history.Open(ctx, postgres.Config{URL: testbed.Postgres(t), Schema: name, Logger: quiet()})
	must(err)
	t.Cleanup(in.history.Close)
	must(in.history.Migrate(ctx))
	_, err = in.history.Streams.Create(ctx, history.Live, streams.PartitionCounts{Requests: 2, Keyed: 2, Hits: 2})
	must(err)
	_, _, err = in.history.Rules.PublishRouting(ctx, history.Live, func(*rules.Routing) (rules.Routing, error) {
		return rules.Routing{
			RecordFormat: detectors.RecordFormat, SecretID: "s1", Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: format.Weir, MaxEventBytes: 1 << 20},
		}, nil
	})
	must(err)
	in.blocks, err = blocklist.Connect(blocklist.Server{URL: testbed.Redis(t), Timeout: time.Minute}, name)
	must(err)
	t.Cleanup(func() { _ = in.blocks.Close() })
	in.record, err = history.NewHitRecorder(in.history, history.Live, name+".hits", out, nil, in.registry)
	must(err)
	in.enforce, err = enforce.New(enforce.Options{
		Secret: []byte("secret"),
		Store:  in.blocks, Stream: blocklist.StreamLive, Topic: name + ".hits", Modes: in.history.Rules, Rules: in.history.Rules, Decisions: out, DeadLetters: out,
		Clock: wallClock, Logger: quiet(), Registerer: in.registry,
	})
	must(err)
	t.Cleanup(func() {
		if out.letters > 0 {
			t.Errorf("%d dead letters", out.letters)
		}
	})
	return in
}

// apply gives records of the hits topic to RECORD and ENFORCE.
func (in *installation) apply(t *testing.T, hits ...detectors.Hit) {
	t.Helper()
	var batch []traffic.Message
	for i := range hits {
		value, err := detectors.EncodeHit(&hits[i])
		if err != nil {
			t.Fatal(err)
		}
		in.offset++
		batch = append(batch, traffic.Message{Offset: in.offset, Appended: wallClock(), Value: value})
	}
	if err := errors.Join(in.record.Apply(t.Context(), batch), in.enforce.Apply(t.Context(), batch)); err != nil {
		t.Fatal(err)
	}
}

// mode sets a rule's mode and tells gates and ENFORCE, as the command line does.
func (in *installation) mode(t *testing.T, rule string, mode rules.Mode) {
	t.Helper()
	_, err := in.history.Rules.SetMode(t.Context(), rulestore.ModeChange{Rule: rule, Mode: mode, By: "ann", Reason: "test", Override: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	modes, err := in.history.Rules.Modes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := in.blocks.PublishModes(t.Context(), wallClock(), modes); err != nil {
		t.Fatal(err)
	}
	in.enforce.ModesChanged()
}

// The console over a real history and a real blocklist follows a source from its first hit in shadow to its release.
func TestConsoleOverStores(t *testing.T) {
	in := install(t)
	doc := sceneRule("flood", "us", "POST", "/token", 5, time.Minute, 15*time.Minute, rules.ModeShadow, traffic.FieldIP, traffic.FieldDevice).Newest.Version.Document
	if _, err := in.history.Rules.Apply(t.Context(), []rulestore.Document{{Document: doc}}, "ann", "test", rulestore.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	c := newConsole(t, Options{
		Rules: in.history.Rules, History: in.history, Blocks: in.blocks, Pulse: func() Pulse { return Pulse{Blocks: in.enforce.Written()} }, Clock: wallClock, Logger: quiet(), Registerer: in.registry,
	})
	run(t, c)
	h := c.Handler()

	id := traffic.Identity{IP: netip.MustParseAddr("192.0.2.9"), Device: "tv\x00\u202e"}
	who, _ := traffic.MakeSubject(&id, doc.Key)
	now := wallClock()
	hit := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: "0123456789abcdef0123456789abcdef", Rule: "flood", RuleVersion: 1, Lineage: 1,
		Phase: detectors.PhaseOpen, Subject: who, BlockSubject: who, Limit: 5, WindowMS: 60_000, Count: 6, Peak: 6, First: now, Last: now, Seen: now,
		Devices: 1, Samples: []string{`{"time":"` + now.String() + `","path":"/token","user_agent":"curl/8\u202e"}`},
	}
	in.apply(t, hit)
	eventually := func(what string, check func(r ruleView, hits hitsView, b blocksView) bool) {
		t.Helper()
		testbed.Eventually(t, 20*time.Second, func() error {
			var known rulesView
			var hits hitsView
			var b blocksView
			get(t, h, "/api/v1/rules", &known)
			get(t, h, "/api/v1/hits", &hits)
			get(t, h, "/api/v1/blocks", &b)
			if len(known.Rules) != 1 || len(hits.Hits) != 1 || !check(known.Rules[0], hits, b) {
				return fmt.Errorf("%s: rules %+v, hits %+v, blocks %+v", what, known, hits, b)
			}
			return nil
		})
	}
	eventually("in shadow", func(r ruleView, hits hitsView, b blocksView) bool {
		return r.Mode == "shadow" && r.WouldHold == 1 && r.Holds == 0 && hits.Hits[0].Outcome.Kind == standing.Would && b.Total == 0
	})
	var evidence evidenceView
	get(t, h, "/api/v1/hits/"+hit.ID, &evidence)
	if len(evidence.Events) != 1 || evidence.Events[0].UserAgent != `curl/8\u{202e}` || evidence.Source.Fields[1].Value != `tv\u{0}\u{202e}` {
		t.Errorf("evidence: %+v", evidence)
	}

	in.mode(t, "flood", rules.ModeBlock)
	hit.Phase, hit.Count, hit.Last, hit.Seen = detectors.PhaseUpdate, 9, wallClock(), wallClock()
	in.apply(t, hit)
	eventually("promoted", func(r ruleView, hits hitsView, b blocksView) bool {
		return r.Mode == "block" && r.Holds == 1 && hits.Hits[0].Outcome.Kind == standing.Held && hits.Hits[0].Count == 9 &&
			b.InForce == 1 && b.Blocks[0].Source.Subject == who && b.Blocks[0].BlockID == hit.ID[:16]
	})

	release, err := blocklist.NewRelease(who, "flood", "ann", "a mistake", wallClock())
	if err != nil {
		t.Fatal(err)
	}
	in.apply(t, release)
	eventually("released", func(r ruleView, hits hitsView, b blocksView) bool {
		return r.Holds == 0 && hits.Hits[0].Outcome.Kind == standing.Released && b.Total == 0 && len(b.Released) == 1 && b.Released[0].By == "ann"
	})
	hit.Phase, hit.Reason = detectors.PhaseClosed, detectors.ReasonReset
	in.apply(t, hit)
	eventually("reset", func(_ ruleView, hits hitsView, _ blocksView) bool {
		return hits.Hits[0].Phase == "closed" && hits.Hits[0].Reason == "reset"
	})
	var pulse pulseView
	get(t, h, "/api/v1/pulse", &pulse)
	if pulse.Blocks.Total != 1 {
		t.Errorf("the pulse counts %d blocks", pulse.Blocks.Total)
	}
}
