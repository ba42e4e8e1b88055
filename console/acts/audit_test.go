package acts_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/reveal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// installation is a Service over a real PostgreSQL: its releases go straight to RECORD, and one source is blocked until a time.
type installation struct {
	*historytest.Bed
	t     *testing.T
	until traffic.Time
	// ordered is until when the newest block by hand lasts.
	ordered string
}

const blocked traffic.Subject = "ip=192.0.2.1%2F32&device=tv-1"

func now() traffic.Time { return traffic.At(time.Now()) }

func (in *installation) Publish(context.Context, []rules.ModeState) (int, string, error) {
	return 0, "", nil
}
func (in *installation) Ready(context.Context) error { return nil }

func (in *installation) Get(_ context.Context, s traffic.Subject, rule string) (*blocklist.Block, *blocklist.Tombstone, error) {
	if s == blocked && rule == "flood" {
		return &blocklist.Block{Until: in.until}, nil, nil
	}
	return nil, nil, nil
}

func (in *installation) Containing(context.Context, traffic.Time, blocklist.Containing) (blocklist.Listing, error) {
	return blocklist.Listing{}, nil
}

func (in *installation) Each(context.Context, traffic.Time, blocklist.Wanted, func(blocklist.Listed) bool) (int,
	error) {
	return 0, nil
}

func (in *installation) WaitReleased(context.Context, *detectors.Hit) (blocklist.Tombstone, error) {
	return blocklist.Tombstone{}, nil
}

// Append has RECORD read the release as it is written.
func (in *installation) Append(_ context.Context, release *detectors.Hit) error {
	in.Record(in.t, *release)
	return nil
}

// Read takes the name of a file for the id of a rule, and its text for the limit.
func (in *installation) Read(files []acts.File, _ []string) (*rules.Set, []rules.Problem, error) {
	set := &rules.Set{}
	for _, f := range files {
		d := historytest.Document(f.Name)
		if _, err := fmt.Sscan(f.Text, &d.Limit); err != nil {
			return nil, nil, err
		}
		set.Rules = append(set.Rules, d)
	}
	return set, nil, nil
}

func (in *installation) Grown(context.Context, string, int, time.Time, time.Time) (acts.Grown, error) {
	return acts.Grown{}, nil
}

func (in *installation) ForPromotion(context.Context, string, int, time.Time, string) (*rulestore.Dossier, []string, error) {
	return nil, nil, nil
}

// newInstallation has a rule that somebody has applied, an allow list, and an episode of who is blocked.
func newInstallation(t *testing.T) *installation {
	t.Helper()
	in := &installation{Bed: historytest.New(t), t: t, until: traffic.At(time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC))}
	in.PublishRecordFormat(t, detectors.RecordFormat)
	list := rules.AllowList{ID: "office", Owner: "identity", Entries: []rules.AllowEntry{{Kind: rules.AllowCIDR, Value: "198.51.100.0/24", Reason: "ours"}}}
	if _, err := in.Rules.Apply(t.Context(), nil, "ann", "test", rulestore.ApplyOptions{AllowLists: []rules.AllowList{list}, Alone: true}); err != nil {
		t.Fatal(err)
	}
	first := now().Add(-time.Hour)
	in.Record(t, detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: strings.Repeat("ab", 16), Rule: "flood", RuleVersion: 1, Lineage: 1, Phase: detectors.PhaseClosed,
		Subject: blocked, BlockSubject: blocked, Limit: 5, WindowMS: 60_000, Count: 9, Peak: 9, Opened: first, First: first, Last: first, Seen: first, Generation: 1,
	})
	return in
}

// does is one act as somebody does it, and what the trail is to say of it, with # for what is hashed.
type does struct {
	method        string // of Service; empty: another package's
	act           access.Act
	do            func(s *acts.Service, who access.Actor, reason string) error
	action        string
	object        string
	before, after string
	change        string
}

func second[T any](_ T, err error) error { return err }

// setMode is an act by SetMode.
func setMode(act access.Act, mode rules.Mode, before, after, change string) does {
	return does{"SetMode", act, func(s *acts.Service, who access.Actor, reason string) error {
		return second(s.SetMode(context.Background(), who, acts.ModeRequest{Rule: "flood", Mode: mode, Reason: reason}))
	}, string(act), "rule flood", before, after, change}
}

// apply gives the rule a limit.
func apply(limit, before, after, change string) does {
	return does{"Apply", access.Apply, func(s *acts.Service, who access.Actor, reason string) error {
		return second(s.Apply(context.Background(), who, acts.ApplyRequest{Files: []acts.File{{Name: "flood", Text: limit}}, Reason: reason}))
	}, "apply", "rule flood", before, after, change}
}

// allow adds, or removes, an entry of the list.
func allow(remove bool, action, before, after, change string) does {
	return does{"ChangeAllow", access.Allow, func(s *acts.Service, who access.Actor, reason string) error {
		return second(s.ChangeAllow(context.Background(), who, acts.AllowRequest{List: "office", Remove: remove, Reason: reason,
			Entries: []acts.AllowSource{{Kind: rules.AllowCIDR, Value: "203.0.113.0/24"}}}))
	}, action, "allow list office", before, after, change}
}

// everything is what people do, in an order in which it can be done.
func everything(in *installation) []does {
	ctx, until := context.Background(), time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	raised := "limit 20 until " + until.Format(time.RFC3339)
	return slices.Concat([]does{
		apply("5", "none", "shadow, version 1 (document #), generation 1", "none → shadow, version 1 (document #), generation 1"),
		apply("10", "shadow, version 1 (document #), generation 1", "shadow, version 2 (document #), generation 1", "version 1 (document #) → version 2 (document #)"),
		{"Rollback", access.Rollback, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.Rollback(ctx, who, acts.RollbackRequest{Rule: "flood", Reason: reason}))
		}, "apply", "rule flood", "shadow, version 2 (document #), generation 1", "shadow, version 3 (document #), generation 1", "version 2 (document #) → version 3 (document #)"},
		{"Promote", access.Promote, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.Promote(ctx, who, acts.PromoteRequest{Rule: "flood", Reason: reason, Override: "a test does not wait"}))
		}, "promote", "rule flood", "shadow, version 3 (document #), generation 1", "block, version 3 (document #), generation 2", "shadow, generation 1 → block, generation 2"},
		apply("3", "block, version 3 (document #), generation 2", "block, version 3 (document #), generation 2, version 4 (document #) pending", "none → version 4 (document #) pending"),
		{"Promote", access.Promote, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.Promote(ctx, who, acts.PromoteRequest{Rule: "flood", Pending: true, Reason: reason, Override: "a test does not wait"}))
		}, "promote", "rule flood", "block, version 3 (document #), generation 2, version 4 (document #) pending", "block, version 4 (document #), generation 3",
			"version 3 (document #), generation 2, version 4 (document #) pending → version 4 (document #), generation 3"},
		{"SetLimit", access.SetLimit, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.SetLimit(ctx, who, acts.LimitRequest{Rule: "flood", Limit: 20, Until: until, Reason: reason}))
		}, "set-limit", "rule flood", "limit 3", raised, "limit 3 → " + raised},
		{"SetLimit", access.SetLimit, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.SetLimit(ctx, who, acts.LimitRequest{Rule: "flood", Reason: reason}))
		}, "set-limit", "rule flood", raised, "limit 3", raised + " → limit 3"},
		{"Block", access.Block, func(s *acts.Service, who access.Actor, reason string) error {
			done, err := s.Block(ctx, who, acts.BlockRequest{Subject: "ip=203.0.113.9%2F32", Everything: true,
				For: "1h", Reason: reason})
			in.ordered = done.Until.Std().UTC().Format(time.RFC3339)
			return err
		}, "block", "block by-hand ip=203.0.113.9%2F32", "none", "block until ORDERED", "none → block until ORDERED"},
		{"ChangeNeverBlock", access.NeverBlock, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.ChangeNeverBlock(ctx, who, acts.NeverRequest{Entries: []string{"203.0.113.0/24"},
				Reason: reason}))
		}, "never-block", "never-block 203.0.113.0/24", "none", "never blocked", "none → never blocked"},
		{"ChangeNeverBlock", access.NeverBlock, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.ChangeNeverBlock(ctx, who, acts.NeverRequest{Remove: true,
				Entries: []string{"203.0.113.9/24"}, Reason: reason}))
		}, "never-block-remove", "never-block 203.0.113.0/24", "never blocked", "none", "never blocked → none"},
		setMode(access.Demote, rules.ModeShadow, "block, version 4 (document #), generation 3", "shadow, version 4 (document #), generation 4", "block, generation 3 → shadow, generation 4"),
		setMode(access.Disable, rules.ModeOff, "shadow, version 4 (document #), generation 4", "off, version 4 (document #), generation 5", "shadow, generation 4 → off, generation 5"),
		setMode(access.Enable, rules.ModeShadow, "off, version 4 (document #), generation 5", "shadow, version 4 (document #), generation 6", "off, generation 5 → shadow, generation 6"),
		{"ResetCount", access.Reset, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.ResetCount(ctx, who, acts.ResetRequest{Rule: "flood", Subject: blocked, Reason: reason}))
		}, "reset-count", "rule flood", "counted up to routing version #", "nothing counted, from routing version #", "counted up to routing version # → nothing counted, from routing version #"},
		allow(false, "add-entry", "version 1, entries: 1", "version 2, entries: 2",
			"version 1, entries: 1 → version 2, entries: 2"),
		allow(true, "remove-entry", "version 2, entries: 2", "version 3, entries: 1",
			"version 2, entries: 2 → version 3, entries: 1"),
	}, about(ctx, in))
}

// about are the acts that concern somebody.
func about(ctx context.Context, in *installation) []does {
	release := func(who traffic.Subject, before string) does {
		return does{"Release", access.Release, func(s *acts.Service, actor access.Actor, reason string) error {
			return second(s.Release(ctx, actor, acts.ReleaseRequest{Rule: "flood", Subject: who, Force: true, Reason: reason}))
		}, "release", "block flood " + string(who), before, "released", before + " → released"}
	}
	return []does{
		release(blocked, "block until 2026-12-24T18:00:00Z"),
		release("ip=192.0.2.9%2F32&device=tv-9", "no block"),
		{"", access.Reveal, func(_ *acts.Service, who access.Actor, reason string) error {
			masker, err := access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", access.MaskKeyBytes)), Below: access.Admin, Fields: access.DefaultMaskedFields()})
			if err != nil {
				return err
			}
			v, err := reveal.New(reveal.Options{Masker: masker, Trail: in.Audit, Refuse: func(http.ResponseWriter, *http.Request, error) {}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			of := masker.Value(access.Actor{Role: access.Viewer}, "user", "alice")
			return second(v.Reveal(ctx, who, reveal.Request{Field: "user", Of: of, Reason: reason}))
		}, "reveal", "user=~#", "masked", "shown to adam", "masked → shown to adam"},
		{"Erase", access.Erase, func(s *acts.Service, who access.Actor, reason string) error {
			return second(s.Erase(ctx, who, acts.EraseRequest{Subject: "device=tv-1", Reason: reason}))
		}, "erase", "subject device:erased-#", "episodes: 1", "none", "episodes: 1 → none"},
		resume(ctx, in),
		command("recreate", "stream live", "generation 1, partitions of requests: 4", "generation 2, partitions of requests: 16", func(by, reason string) error {
			return second(in.Streams.RecreateGeneration(ctx, history.Live, 16, by, reason))
		}),
		command("budget", "stream live", "268435456 bytes a keyed partition", "4096 bytes a keyed partition", func(by, _ string) error {
			return in.Streams.SetBudget(ctx, history.Live, 4096, by)
		}),
	}
}

// resume lets a partition go on that stands before a gap.
func resume(ctx context.Context, in *installation) does {
	const before, after = "a gap in source partition 2 that nobody has accepted", "may be passed over, up to offset 70"
	source, offset := 2, int64(70)
	return does{"ResumePartition", access.Resume, func(s *acts.Service, who access.Actor, reason string) error {
		halted := ingest.PartitionStatus{Side: ingest.SideKeyed, Partition: 3, State: ingest.Halted, GapSource: source,
			GapOffset: offset}
		if err := in.Partitions.Report(ctx, history.Live, []ingest.PartitionStatus{halted}); err != nil {
			return err
		}
		return second(s.ResumePartition(ctx, who, acts.ResumeRequest{Side: ingest.SideKeyed, Partition: 3,
			GapSource: &source, GapOffset: &offset, Reason: reason}))
	}, "accept-gap", "partition keyed/3 of live", before, after, before + " → " + after}
}

// command is what a command alone does, with credentials of its own.
func command(action, object, before, after string, do func(by, reason string) error) does {
	return does{"", access.View, func(_ *acts.Service, who access.Actor, reason string) error { return do(who.Name, reason) }, action, object, before, after, before + " → " + after}
}

var hashed = regexp.MustCompile(`(document |routing version |~|erased-)[0-9a-z]+`)

// Whatever people do leaves an entry with who, how he came, what, before, after and why. An act that is added without one fails here.
func TestEveryActIsAudited(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	s, err := acts.New(acts.Options{
		Rules: in.Rules, Gates: in, Blocks: in, Releases: in, Documents: in, Dossiers: in, Erasing: erasure.New(in.DB, in.Streams), Clock: now, Logger: slog.New(slog.DiscardHandler),
		Orders: in.Orders, Knows: explore.New(in.Store), Partitions: in.Partitions,
	})
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]bool{"Evidence": true, "Close": true, "NeverBlockList": true, "Partitions": true, "Try": true}
	done := map[access.Act]bool{}
	for _, act := range access.Acts() { // looking is no act, and what routers write down is another test's
		done[act] = act == access.Public || act == access.View || act == access.Self || access.Witnessed(act)
	}
	vias := []string{access.ViaOIDC, access.ViaToken, access.ViaLocal}
	for i, d := range everything(in) {
		methods[d.method], done[d.act] = true, true
		who := access.Actor{Name: "adam", Role: access.Admin, Via: vias[i%len(vias)]}
		reason := fmt.Sprintf("ticket %d", i)
		if err := d.do(s, who, reason); err != nil {
			t.Fatalf("%d, %s: %v", i, d.act, err)
		}
		all, err := in.Audit.Find(t.Context(), audit.Query{Limit: 1})
		if err != nil || len(all) != 1 {
			t.Fatalf("%d, %s: %+v, %v", i, d.act, all, err)
		}
		got := all[0].Entry
		change := got.Change()
		for _, text := range []*string{&got.Object, &got.Before, &got.After, &change} {
			*text = hashed.ReplaceAllString(*text, "$1#")
			if in.ordered != "" {
				*text = strings.ReplaceAll(*text, in.ordered, "ORDERED")
			}
		}
		want := audit.Entry{At: got.At, Actor: "adam", Via: who.Via, Action: d.action, Object: d.object, Reason: reason, Detail: got.Detail, Before: d.before, After: d.after}
		if d.method == "" && d.act == access.View { // by a command, which has nobody's role
			want.Via = audit.Local
		}
		if d.action == "budget" { // it is given in the configuration, without a reason
			want.Reason = ""
		}
		if got != want || change != d.change {
			t.Errorf("%d, %s:\n%+v, %s\nwant\n%+v, %s", i, d.act, got, change, want, d.change)
		}
	}
	for m := range reflect.TypeFor[*acts.Service]().Methods() {
		if !methods[m.Name] {
			t.Errorf("acts.Service.%s is in no row of the table", m.Name)
		}
	}
	for _, act := range access.Acts() {
		if !done[act] {
			t.Errorf("the act %s is in no row of the table", act)
		}
	}
	// Why a promotion was made all the same stands beside it, with the same change.
	all, err := in.Audit.Find(t.Context(), audit.Query{Action: "override"})
	if err != nil || len(all) != 2 || hashed.ReplaceAllString(all[1].After, "$1#") != "block, version 3 (document #), generation 2" || all[1].Via != access.ViaOIDC {
		t.Errorf("overridden: %+v, %v", all, err)
	}
}

// What a build writes that does not know of changes, and what it wrote, is read as what is not known.
func TestEntriesOfABuildBefore(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "INSERT INTO "+historytest.Schema+".audit (actor, action, object, reason, detail, ref) VALUES ('ann', 'promote', 'rule flood', 'seen enough', '', NULL)")
	all, err := b.Audit.Of(t.Context(), "rule flood", 1)
	if err != nil || len(all) != 1 || all[0].Change() != "" || all[0].Before+all[0].After+all[0].Via != "" {
		t.Errorf("%+v, %v", all, err)
	}
}
