package acceptance

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/internal/evidenceoracle"
	"github.com/weirhq/weir/internal/testbed"
)

// knownGood is how the installation knows good sources.
const knownGood = `known_good: event.plan == "paid"`

// TestDossierIsWhatAPromotedRuleHolds sends raw events through all stages, in shadow, and holds the dossiers of rules of several kinds to a
// naive oracle of the events and to weir backtest of the same period. Then the same requests come once more for each limit of each rule, each
// at a host of its own, past a gate and with the rule promoted: it refuses the requests that the oracle says, one by one, and holds as many as
// the dossier had said.
func TestDossierIsWhatAPromotedRuleHolds(t *testing.T) {
	t.Parallel()
	in := newInstall(t, [3]int{1, 4, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 0, knownGood)
	log := evidenceLog(time.Now().Add(-20 * time.Minute).Truncate(time.Minute))
	shadow := in.Write("shadow.yaml", documents(kinds(), func(k *kind) []string { return []string{k.document(k.name, shadowHost, k.rule.Limit, "30s")} }))
	in.Weir("rules", "apply", "-f", shadow, "-f", in.Write("promoted.yaml", documents(kinds(), (*kind).copies)), "--reason", "tests")
	in.execute("ALTER TABLE {ns}.rule_versions DISABLE TRIGGER rule_versions_stay")
	in.execute("UPDATE {ns}.rule_versions SET created_at = created_at - interval '3 hours'") // as if the log came while it was watched
	w := newReplays(t, in)
	for i := range log {
		w.send(shadowHost, &log[i], nil)
	}
	stages, gate := in.start("run"), in.start("gate")
	w.promote()
	waitForGate(t, in)
	w.all(shifted(log, -time.Hour)) // no minute of it is in the dossiers

	since, until := minutesOf(log)
	in.judgeDossiers(log, since, until)
	in.judgeBacktests(shadow, log, since, until)
	w.judgeLimits(log, since, until)
	stages.stop()
	gate.stop()
}

// dossier asks for one of a rule.
func (in *install) dossier(rule string, since, until time.Time) (*evidence.Dossier, error) {
	in.t.Helper()
	var said struct{ Dossier evidence.Dossier }
	in.json(&said, "rules", "evidence", rule, "--since", since.Format(time.RFC3339), "--until", until.Format(time.RFC3339))
	if n, known := said.Dossier.Held.Requests.Known(); !known {
		return nil, fmt.Errorf("%s: requests are not known: %d, %+v", rule, n, said.Dossier.Held.Requests)
	}
	return &said.Dossier, nil
}

// judgeDossiers compares the figures of each rule with the oracle's, once DETECT has told of the minutes and the episodes are closed.
func (in *install) judgeDossiers(log []raw, since, until time.Time) {
	in.t.Helper()
	for _, k := range kinds() {
		truth := k.rule.Judge(k.requests(log), nil, since.UnixMicro(), until.UnixMicro())
		if len(truth.Blockable()) < 2 || truth.Refused < 10 {
			in.t.Fatalf("%s: the oracle holds %d sources and refuses %d requests: the log proves nothing", k.name, len(truth.Blockable()), truth.Refused)
		}
		testbed.Eventually(in.t, 2*time.Minute, func() error {
			d, err := in.dossier(k.name, since, until)
			if err != nil {
				return err
			}
			return k.compare(d, &truth, log)
		})
	}
}

// compare says which figures are not the oracle's.
func (k *kind) compare(d *evidence.Dossier, truth *evidenceoracle.Truth, log []raw) error {
	episodes, good, judged, users, devices := 0, 0, 0, 0, 0
	for _, s := range truth.Sources {
		episodes += s.Episodes
	}
	for _, s := range truth.Blockable() {
		users, devices = max(users, s.Users), max(devices, s.Devices)
		if s.Good {
			good++
		}
		if s.Judged {
			judged++
		}
	}
	var wrong []string
	is := func(what string, got evidence.Count, want int) {
		if n, known := got.Known(); !known || int(n) != want || got.State != evidence.Measured {
			wrong = append(wrong, fmt.Sprintf("%s: %s, want %d", what, got, want))
		}
	}
	is("all", d.Traffic.All, truth.All)
	is("refused by weir", d.Traffic.Refused, truth.Ours)
	is("matched", d.Traffic.Matched, truth.Matched)
	is("counted", d.Traffic.Counted, truth.Counted)
	is("with reach", d.Traffic.WithReach, truth.Reached)
	is("would have refused", d.Held.Requests, truth.Refused)
	if held, _ := d.Held.Sources.Known(); k.narrow && d.Held.Sources.Side != evidence.AtMost || !k.narrow && int(held) != len(truth.Blockable()) {
		wrong = append(wrong, fmt.Sprintf("would have held: %s, want %d", d.Held.Sources, len(truth.Blockable())))
	}
	if k.narrow { // the oracle takes an episode for one source
		return in(k.name, wrong)
	}
	is("over the limit", d.Held.Over, len(truth.Sources))
	is("episodes", d.Held.Episodes, episodes)
	if n, known := d.KnownGood.Sources.Known(); !known || int(n) != good || (judged == len(truth.Blockable())) != (d.KnownGood.Sources.State == evidence.Measured) {
		wrong = append(wrong, fmt.Sprintf("known-good sources: %s, want %d of %d judged of %d", d.KnownGood.Sources, good, judged, len(truth.Blockable())))
	}
	if !slices.Contains(k.rule.Block, "device") { // else a source is one device
		is("devices", d.Behind.Devices.Most, devices)
	}
	is("users", d.Behind.Users.Most, users)
	for what, of := range map[string]struct {
		got         evidence.Share
		part, whole int
	}{
		"share of all":   {d.Held.ShareOfAll, truth.Refused, truth.All},
		"coverage":       {d.KnownGood.Coverage, judged, len(truth.Blockable())},
		"event coverage": {d.KnownGood.EventCoverage, truth.All - truth.Ours - truth.Unjudged, truth.All - truth.Ours},
	} {
		if int(of.got.Part) != of.part || int(of.got.Whole) != of.whole {
			wrong = append(wrong, fmt.Sprintf("%s: %+v, want %d of %d", what, of.got, of.part, of.whole))
		}
	}
	seen := map[int64]bool{}
	for i := range log {
		seen[log[i].at.Unix()/60] = true
	}
	silent := (int64(d.Until)-int64(d.Since))/60_000_000 - int64(len(seen))
	if o := d.Observed; o.Minutes != int64(len(seen)) || silent < 2 || len(o.Missing) != 1 || o.Missing[0] != (evidence.Missing{Reason: evidence.GapSilent, Minutes: silent}) {
		wrong = append(wrong, fmt.Sprintf("observed: %+v, want %d minutes, %d silent ones", o, len(seen), silent))
	}
	return in(k.name, wrong)
}

// in is an error about a rule, if anything of it is wrong.
func in(rule string, wrong []string) error {
	if slices.Sort(wrong); len(wrong) > 0 {
		return fmt.Errorf("%s: %s", rule, strings.Join(wrong, "; "))
	}
	return nil
}

// tried is what weir backtest says, of a rule or of one of its limits.
type tried struct {
	Rule                                      string
	Matched, Counted, Sources, Episodes, Over int
	Block                                     struct{ Refused, Held int }
}

func (in *install) backtest(args ...string) []tried {
	in.t.Helper()
	var said struct{ Rules []tried }
	in.json(&said, append([]string{"backtest"}, args...)...)
	return said.Rules
}

// judgeBacktests compares backtests of the same requests with the oracle: of all rules, and of the limits of each.
func (in *install) judgeBacktests(file string, log []raw, since, until time.Time) {
	in.t.Helper()
	var lines []byte
	for i := range log {
		line, err := log[i].event(shadowHost, nil)
		if err != nil {
			in.t.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	period := []string{in.Write("log.jsonl", string(lines)), "--format", "weir", "--since", since.Format(time.RFC3339), "--until", until.Format(time.RFC3339)}
	got := in.backtest(append(period, "-f", file)...)
	for _, k := range kinds() {
		i := slices.IndexFunc(got, func(x tried) bool { return x.Rule == k.name })
		if i < 0 {
			in.t.Fatalf("no backtest of %s", k.name)
		}
		k.agrees(in.t, got[i], k.rule, log)
		if len(k.limits) < 2 {
			continue
		}
		one := in.Write(k.name+".yaml", k.document(k.name, shadowHost, k.rule.Limit, "30s"))
		sweep := strings.Trim(strings.ReplaceAll(fmt.Sprint(k.limits), " ", ","), "[]")
		for i, x := range in.backtest(append(period, "-f", one, "--sweep", "limit="+sweep)...) {
			r := k.rule
			r.Limit = k.limits[i]
			k.agrees(in.t, x, r, log)
		}
	}
}

func (k *kind) agrees(t testing.TB, x tried, r evidenceoracle.Rule, log []raw) {
	t.Helper()
	truth := r.Judge(k.requests(log), nil, 0, 1<<62)
	episodes, over := 0, 0
	for _, s := range truth.Sources {
		episodes, over = episodes+s.Episodes, over+s.Events
	}
	want := tried{Rule: k.name, Matched: truth.Matched, Counted: truth.Counted, Sources: x.Sources, Episodes: episodes, Over: over}
	want.Block.Refused, want.Block.Held = truth.Refused, len(truth.Blockable())
	if k.narrow { // the oracle takes an episode for one source
		want.Episodes, want.Over, want.Block.Held = x.Episodes, x.Over, x.Block.Held
	}
	if x != want {
		t.Errorf("limit %d: backtest %+v, want %+v", r.Limit, x, want)
	}
}

// replays are the requests that come once more, for each rule that is promoted.
type replays struct {
	t        *testing.T
	in       *install
	producer *kgo.Client
	mu       sync.Mutex
	refused  map[string]int // by rule
}

func newReplays(t *testing.T, in *install) *replays {
	return &replays{t: t, in: in, producer: newStreet(t, in).producer, refused: map[string]int{}}
}

// promote lets all copies block.
func (w *replays) promote() {
	w.t.Helper()
	var all sync.WaitGroup
	for _, k := range kinds() {
		all.Go(func() {
			for _, limit := range k.limits {
				w.in.Weir("rules", "promote", k.copied(limit), "--reason", "tests", "--yes", "--override", "tests")
			}
		})
	}
	all.Wait()
	testbed.Eventually(w.t, time.Minute, func() error { return w.in.enforcing(len(copiesOfAll())) })
}

// enforcing waits until the modes of so many rules that block are published.
func (in *install) enforcing(want int) (err error) {
	blocking := 0
	in.query("SELECT count(*) FROM {ns}.rule_modes WHERE mode = 'block'", func(rows pgx.Rows) error { return rows.Scan(&blocking) })
	if blocking != want {
		err = fmt.Errorf("%d rules block, want %d", blocking, want)
	}
	return err
}

// all replays the log for each copy, side by side.
func (w *replays) all(log []raw) {
	var all sync.WaitGroup
	for _, k := range kinds() {
		for _, limit := range k.limits {
			all.Go(func() {
				if err := w.replay(&k, limit, log); err != nil {
					w.t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if err := w.producer.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// replay asks the gate about each request in turn. One that the oracle has refused may come before its block is known: it is asked about
// until it is refused. One that is to pass passes at once, or the test fails.
func (w *replays) replay(k *kind, limit int, log []raw) error {
	r := k.rule
	r.Limit = limit
	rule, requests := k.copied(limit), k.requests(log)
	for i, refused := range r.Refusals(requests) {
		if requests[i].Ours {
			w.send(k.host(limit), &log[i], nil)
			continue
		}
		var answer http.Header
		status, patience := 0, time.Now().Add(time.Minute)
		for status == 0 || refused && status != http.StatusTooManyRequests && time.Now().Before(patience) {
			var err error
			if status, answer, err = w.ask(k.host(limit), &log[i]); err != nil {
				return err
			}
		}
		if want := map[bool]int{true: http.StatusTooManyRequests, false: http.StatusOK}[refused]; status != want {
			return fmt.Errorf("%s: request %d, %+v, gets %d, want %d", rule, i, log[i], status, want)
		}
		if !refused {
			answer = nil
		} else if got := answer.Get("X-Weir-Rule"); got != rule {
			return fmt.Errorf("%s: request %d is refused by %q", rule, i, got)
		}
		w.mu.Lock()
		if refused {
			w.refused[rule]++
		}
		w.mu.Unlock()
		w.send(k.host(limit), &log[i], answer)
	}
	return nil
}

func (w *replays) ask(host string, q *raw) (int, http.Header, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+w.in.gate+"/v1/forward-auth", nil)
	if err != nil {
		return 0, nil, err
	}
	for name, value := range map[string]string{
		"X-Forwarded-For": q.ip, "X-Forwarded-Method": http.MethodPost, "X-Forwarded-Host": host, "X-Forwarded-Uri": q.path, "X-Device-Id": q.device,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, resp.Header, resp.Body.Close()
}

// send reports a request, with the verdict of the gate where it was refused.
func (w *replays) send(host string, q *raw, refused http.Header) {
	value, err := q.event(host, refused)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.producer.Produce(background(w.t), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
		if err != nil {
			w.t.Error(err)
		}
	})
}

// judgeLimits compares, for each limit, what the dossier had said with what the promoted rule has held and refused.
func (w *replays) judgeLimits(log []raw, since, until time.Time) {
	w.t.Helper()
	held := map[string]int{}
	w.in.query("SELECT rule, count(DISTINCT subject) FROM {ns}.block_decisions_all WHERE action = 'written' GROUP BY rule", func(rows pgx.Rows) error {
		var rule string
		var n int
		err := rows.Scan(&rule, &n)
		held[rule] = n
		return err
	})
	for _, k := range kinds() {
		d, err := w.in.dossier(k.name, since, until)
		if err != nil {
			w.t.Fatal(err)
		}
		exact := 0
		for _, limit := range k.limits {
			would, rule := d.At(int64(limit)), k.copied(limit)
			sources, known := would.Sources.Known()
			if !known || int(sources) != held[rule] && !(k.narrow && int(sources) > held[rule]) {
				w.t.Errorf("%s: the dossier says %s would be held, %d were", rule, would.Sources, held[rule])
			}
			refused := int64(w.refused[rule])
			switch requests, known := would.Requests.Known(); {
			case would.Requests.State == evidence.Measured && requests == refused:
				exact++
			case would.Requests.State == evidence.Measured, !known, would.Requests.Side == evidence.Between && (refused < would.Requests.Least || refused > requests):
				w.t.Errorf("%s: the dossier says %s requests would be refused, %d were", rule, would.Requests, refused)
			}
		}
		if limits := len(k.limits); limits > 0 && exact < cmp.Or(min(limits, 3), 1) {
			w.t.Errorf("%s: of %d limits the requests of %d are exact", k.name, limits, exact)
		}
	}
}
