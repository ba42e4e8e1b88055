package asking_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/asking"
	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/dossier"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/console/remote"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

const (
	source  = traffic.Subject("ip=192.0.2.1%2F32&device=tv%209")
	blocked = "abababababababababababababababab"
)

// stores are who answers where no server is asked.
type stores struct {
	*explore.Explorer
	*why.Teller
	*evidence.Store
	*letters.Reader
}

// bed is one installation, asked by its stores and by a server.
type bed struct {
	*historytest.Bed
	stores *stores
	server *remote.Client
}

// noActs are the acts of a server that is only asked.
type noActs struct{ acts.Acts }

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Bed: historytest.New(t)}
	b.PublishRecordFormat(t, detectors.RecordFormat)
	b.Apply(t, historytest.Document("flood"), historytest.Document("logins"))
	redis, err := blocklist.Connect(blocklist.Server{URL: testbed.Redis(t)}, "asking")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	b.happen(t, redis)
	now := func() traffic.Time { return traffic.At(time.Now()) }
	x := explore.New(b.Store)
	b.stores = &stores{x, &why.Teller{History: x, Blocks: redis, Clock: now}, evidence.New(b.DB, b.Rules), letters.New(brokers{}, brokers{}, "dead")}
	served, err := api.New(api.Options{
		Acts: noActs{}, Witness: struct{ access.Witness }{}, Health: func() api.Health { return api.Health{} },
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Reader: &api.Reader{Rules: b.Rules, History: b.Store, Trail: b.Audit, Blocks: redis, Clock: now, Explorer: x, Teller: b.stores.Teller, Dossiers: b.stores.Store, Letters: b.stores.Reader},
	})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64 // each request is somebody else's: one actor may not ask as often as this table does
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		adam := access.Actor{Name: fmt.Sprint("adam-", asked.Add(1)), Role: access.Viewer, Via: access.ViaToken}
		served.Handler().ServeHTTP(w, r.WithContext(access.With(r.Context(), adam)))
	}))
	t.Cleanup(s.Close)
	if b.server, err = remote.New(remote.Options{Server: s.URL, Token: "secret"}); err != nil {
		t.Fatal(err)
	}
	return b
}

// happen puts into the stores what there is to ask about.
func (b *bed) happen(t *testing.T, redis *blocklist.Store) {
	t.Helper()
	at := traffic.At(time.Now()).Add(-3 * time.Hour)
	var hits []detectors.Hit
	for i := range 12 {
		h := detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%08x%024x", i/2, i), Rule: "flood", RuleVersion: 1, Lineage: 1,
			Phase: detectors.PhaseClosed, Subject: traffic.Subject(fmt.Sprintf("ip=192.0.2.%d%%2F32&device=tv-%d", i%3+2, i)), Limit: 5, WindowMS: 60_000, Count: int64(i + 6), Peak: 7,
			Users: i, Refused: int64(i), Samples: []string{fmt.Sprintf(`{"time":"2026-11-20T00:00:00Z","method":"GET","path":"/<&>","ip":"192.0.2.%d","user":"user-%d"}`, i%3+2, i), "no\u2028JSON"},
		}
		h.First = at.Add(time.Duration(i) * 10 * time.Minute)
		switch i {
		case 0:
			h.ID, h.Subject, h.Reason = blocked, source, detectors.ReasonReset
		case 3:
			h.Phase, h.IntoID = detectors.PhaseMerged, blocked
		case 5:
			h.Phase = detectors.PhaseUpdate
		case 7:
			h.Rule = "logins"
		}
		h.BlockSubject, h.Opened, h.Last, h.Seen = h.Subject, h.First, h.First.Add(time.Minute), h.First
		hits = append(hits, h)
	}
	b.Record(t, hits...)
	var decided []blocklist.Decision
	for i, action := range []blocklist.Action{blocklist.ActionWritten, blocklist.ActionExtended, blocklist.ActionWithheld, blocklist.ActionReleased} {
		decided = append(decided, blocklist.Decision{Format: blocklist.DecisionFormat, ID: fmt.Sprint("d", i), Action: action, Reason: "=1+1", Rule: "flood", Subject: source, Hit: blocked,
			Generation: 1, Since: at, Until: at.Add(24 * time.Hour), At: at.Add(time.Duration(i) * time.Minute), By: "otto"})
	}
	b.Decide(t, decided...)
	if err := b.Audit.Add(t.Context(), audit.Entry{Actor: "otto", Action: "release", Object: "block flood " + string(source), Reason: "ticket <4711>", Before: "block until noon, x", After: "released, x", Via: "token"}); err != nil {
		t.Fatal(err)
	}
	b.notCounted(t, at)
	modes, err := b.Rules.Modes(t.Context())
	if err == nil {
		_, err = redis.SyncModes(t.Context(), at, modes)
	}
	if err != nil {
		t.Fatal(err)
	}
	of := slices.IndexFunc(modes, func(m rules.ModeState) bool { return m.Rule == "flood" })
	raise := blocklist.Raise{Name: blocklist.Name{Subject: source, Rule: "flood"}, Block: blocklist.NewBlock("flood", modes[of].Generation, blocked, at, at.Add(24*time.Hour))}
	if _, err := blocklist.NewWriter(redis).Raise(t.Context(), []blocklist.Raise{raise}); err != nil {
		t.Fatal(err)
	}
}

// notCounted puts into history what rules did not count, some of it in one minute.
func (b *bed) notCounted(t *testing.T, at traffic.Time) {
	t.Helper()
	minute := at.Std().Truncate(time.Minute)
	for i := range 3 {
		b.Run(t, `INSERT INTO weir.late_sums (stream, id, rule, lineage, generation, source_partition, keyed_partition, minute, latest, seen, events)
			VALUES ('live', $1, 'flood', 1, 1, $2, 3, $3, $3, $3, $4)`, fmt.Sprint("late/", i), i, minute.Add(time.Duration(i/2)*time.Minute), 15+i)
	}
	if err := b.StoreUncounted(t.Context(), history.Live, []detectors.RoutedUncounted{
		{Router: "r1", Rule: "logins", Reason: detectors.UncountedMissingField, Minute: traffic.At(minute), Seen: at, Events: 3},
		{Router: "r2", Rule: "flood", Reason: detectors.UncountedMissingValue, Minute: traffic.At(minute), Seen: at, Events: 4},
	}); err != nil {
		t.Fatal(err)
	}
}

// brokers are Kafka with the dead letters of two partitions.
type brokers struct{}

func (brokers) Partitions(context.Context, string) (int, error) { return 2, nil }

func (brokers) Bounds(context.Context, []int) (map[int]ingest.Bounds, error) {
	return map[int]ingest.Bounds{0: {Start: 3, End: 6}, 1: {Start: 0, End: 1}}, nil
}

func (brokers) OffsetsAt(context.Context, []int, traffic.Time) (map[int]int64, error) {
	return map[int]int64{0: 5, 1: ingest.NoOffset}, nil
}

func (brokers) Fetch(_ context.Context, positions []ingest.Position, _ time.Duration) ([]ingest.Fetched, error) {
	var all []ingest.Fetched
	for _, p := range positions {
		l := traffic.DeadLetter{Version: 1, Stage: "route", Reason: "malformed", Detail: "no <JSON>", Topic: "requests", Partition: p.Partition, Offset: p.Offset, Size: 7, Value: []byte("=1+1\x1b\xff")}
		if p.Offset == 4 {
			l.Stage, l.Reason = "record", "refused"
		}
		text, err := json.Marshal(l)
		if p.Offset == 3 {
			text = []byte("no letter at all")
		}
		at := traffic.Time(1_790_000_000_000_000 + p.Offset*1_000_000 + int64(p.Partition)*1500_000)
		all = append(all, ingest.Fetched{Partition: p.Partition, Next: p.Offset + 1, Messages: []traffic.Message{{Partition: p.Partition, Offset: p.Offset, Appended: at, Value: text}}, Err: err})
	}
	return all, nil
}

// run asks by the server, or by the stores, and returns all that the command says.
func (b *bed) run(t *testing.T, byServer bool, format string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	output := &terminal.Output{Stdout: &out, Stderr: &out, Format: format}
	does := func(formats []string, work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
		if !slices.Contains(formats, format) {
			return func(*cobra.Command, []string) error { return errors.New("no such format") }
		}
		return work
	}
	p := &asking.Program{
		Output: output, Does: does, Acts: func(*cobra.Command) func() (by, reason string) { return nil }, Release: func(rule string, of traffic.Subject) string { return "release " + rule + " " + string(of) },
		AskLetters: func(cmd *cobra.Command, work func(context.Context, asking.Letters) error) error {
			if byServer {
				return work(cmd.Context(), b.server)
			}
			return work(cmd.Context(), b.stores)
		},
		Ask: func(cmd *cobra.Command, work func(context.Context, asking.Answers) error) error {
			if byServer {
				return work(cmd.Context(), b.server)
			}
			return work(cmd.Context(), b.stores)
		},
	}
	host := &dossier.Host{
		Output: output, Does: func(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
			return does([]string{"table", "json"}, work)
		},
		Open: func(cmd *cobra.Command, work func(context.Context, dossier.Installation) error) error {
			if byServer {
				return desk.Told(work(cmd.Context(), b.server))
			}
			return work(cmd.Context(), named{b})
		},
	}
	root := &cobra.Command{Use: "weir", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(asking.Why(p), dossier.Command(host))
	root.AddCommand(asking.History(p)...)
	deadLetters := &cobra.Command{Use: "deadletters"}
	deadLetters.AddCommand(asking.DeadLetters(p)...)
	root.AddCommand(deadLetters)
	root.SetArgs(args)
	root.SetContext(t.Context())
	err := root.Execute()
	mistake := (*usage.Error)(nil)
	if err != nil {
		fmt.Fprintf(&out, "error (%t): %v", errors.As(err, &mistake), err)
	}
	return out.String()
}

// named is the stores, with the names of rules in the error about one that there is not.
type named struct{ *bed }

func (n named) Gather(ctx context.Context, q evidence.Question) (*evidence.Dossier, error) {
	if _, err := n.Rules.Find(ctx, q.Rule); err != nil {
		return nil, usage.Unknown("rule", q.Rule, []string{"flood", "logins"}, "weir rules list shows the rules")
	}
	return n.stores.Gather(ctx, q)
}

// TestServerAndStoresSayTheSame: each command says the same, byte for byte, whoever is asked.
func TestServerAndStoresSayTheSame(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	since, until := time.Now().UTC().Add(-6*time.Hour).Format(time.RFC3339), time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)
	for _, c := range []struct {
		args []string
		want string // in the table
	}{
		{[]string{"hits"}, "tv-11"},
		{[]string{"hits", "--since", since, "--rule", "logins"}, "logins"},
		{[]string{"hits", "--limit", "2"}, "the newest 2 of 11"},
		{[]string{"hits", "--merged", "--limit", "0"}, "merged"},
		{[]string{"hits", "--kind", "near"}, "RULE"},
		{[]string{"hits", "--source", "192.0.2.1", "--state", "closed", "--field", "device", "--mode", "shadow"}, "closed, reset"},
		{[]string{"sources", "--order", "peak", "--limit", "3"}, "the first 3 of 11"},
		{[]string{"top"}, "logins"},
		{[]string{"top", "--by", "hour", "--since", since}, "HOUR"},
		{[]string{"timeline", "192.0.2.1"}, "block withheld"},
		{[]string{"timeline", "192.0.2.2", "--limit", "2"}, "seen with"},
		{[]string{"show", blocked}, "closed since its count was reset"},
		{[]string{"decisions", "--action", "withheld"}, "withheld"},
		{[]string{"decisions", "--limit", "1"}, "the newest 1 of 4"},
		{[]string{"audit", "--by", "otto"}, "block until noon → released ticket <4711>"},
		{[]string{"audit", "--source", "192.0.2.1", "--action", "release"}, "ticket <4711>"},
		{[]string{"replays"}, "REPLAY"},
		{[]string{"late", "--since", since}, "15 "},
		{[]string{"late", "--limit", "1"}, "the newest 1 of 3"},
		{[]string{"late", "--rule", "logins", "--until", since}, "MINUTE"},
		{[]string{"late", "--rule", "login"}, "did you mean logins?"},
		{[]string{"uncounted"}, "missing_field"},
		{[]string{"uncounted", "--limit", "2"}, "the newest 2 of 5"},
		{[]string{"uncounted", "--reason", "late", "--limit", "0"}, "late"},
		{[]string{"uncounted", "--reason", "lat"}, "error (true): --reason: got \"lat\"; " +
			"allowed: late, out_of_order, missing_field, missing_value, budget; did you mean late?"},
		{[]string{"uncounted", "--replay", "monday"}, "there is no replay"},
		{[]string{"dead"}, "malformed"},
		{[]string{"dead", "--limit", "2"}, "the newest 2 of 4"},
		{[]string{"dead", "--since", "1h"}, "requests 0 5"},
		{[]string{"dead", "--stage", "record"}, "refused"},
		{[]string{"dead", "--reason", "unreadable"}, "no letter at all"},
		{[]string{"dead", "--reason", "malfrmed"}, "error (true): --reason: got \"malfrmed\"; allowed: malformed, refused, unreadable; did you mean malformed?"},
		{[]string{"deadletters", "list", "--limit", "2"}, "the newest 2 of 4"},
		{[]string{"deadletters", "show", "requests", "0", "4"}, "STAGE record REASON refused DETAIL no <JSON> TOPIC requests PARTITION 0 OFFSET 4 SIZE 7 bytes, of which the letter has 6 VALUE =1+1"},
		{[]string{"deadletters", "show", "requests", "1", "4"}, "error (false): no dead letter is about requests 1 4; weir deadletters list"},
		{[]string{"deadletters", "show", "hits", "0", "4"}, "error (false): no dead letter is about hits 0 4"},
		{[]string{"deadletters", "show", "requests", "x", "4"}, `error (true): PARTITION: got "x"; allowed: a whole number, 0 or more`},
		{[]string{"deadletters", "show", "requests", "0", "4.5"}, `error (true): OFFSET: got "4.5"; allowed: a whole number, 0 or more`},
		{[]string{"why", blocked[:16]}, "release flood " + string(source)},
		{[]string{"why", string(source)}, "HOLDS NOW"},
		{[]string{"why", "192.0.2.2"}, "ALSO"},
		{[]string{"evidence", "flood", "--since", since, "--until", until}, "FIGURE"},
		{[]string{"evidence", "flood", "--since", since, "--limits", "8"}, "no data yet"},
		{[]string{"evidence", "flod"}, "did you mean flood?"},
		{[]string{"evidence", "flood", "--version", "7"}, "error (true): rule flood: no such version: got 7"},
		{[]string{"hits", "--rule", "fload"}, "did you mean flood?; weir rules list"},
		{[]string{"hits", "--owner", "x"}, "there is no owner"},
		{[]string{"hits", "--mode", "shado"}, "error (true): --mode: got"},
		{[]string{"hits", "--replay", "monday"}, "there is no replay"},
		{[]string{"hits", "--source", "a=b"}, "error (true): --source"},
		{[]string{"audit", "--action", "releas"}, "did you mean release?"},
		{[]string{"show", "0000000f"}, "no hit in history"},
		{[]string{"show", "00000002"}, "several hits have an id"},
		{[]string{"why", "0000000f"}, "nor has a block or a release in Redis"},
		{[]string{"why", "198.51.100.7"}, "weir history timeline '198.51.100.7'"},
	} {
		for _, format := range []string{"table", "json", "csv"} {
			here, there := b.run(t, false, format, c.args...), b.run(t, true, format, c.args...)
			if here != there {
				t.Errorf("%s as %s: the stores say\n%s\nand the server\n%s", strings.Join(c.args, " "), format, here, there)
			}
			if flat := strings.Join(strings.Fields(here), " "); format == "table" && !strings.Contains(flat, c.want) {
				t.Errorf("%s: no %q in\n%s", strings.Join(c.args, " "), c.want, here)
			}
		}
	}
}
