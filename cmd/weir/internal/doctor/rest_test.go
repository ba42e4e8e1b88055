package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/clocks"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// appending is a log to which a record is appended while one watches it, if next is set.
type appending struct {
	last, next traffic.Time
}

var _ ingest.Log = (*appending)(nil)

func (l *appending) Bounds(context.Context, []int) (map[int]ingest.Bounds, error) {
	if l.last == 0 {
		return map[int]ingest.Bounds{0: {}}, nil
	}
	return map[int]ingest.Bounds{0: {End: 5}}, nil
}

func (l *appending) Fetch(_ context.Context, at []ingest.Position, _ time.Duration) ([]ingest.Fetched, error) {
	switch {
	case at[0].Offset == 4:
		return []ingest.Fetched{{Next: 5, Messages: []traffic.Message{{Offset: 4, Appended: l.last}}}}, nil
	case l.next != 0:
		return []ingest.Fetched{{Next: 6, Messages: []traffic.Message{{Offset: 5, Appended: l.next}}}}, nil
	}
	return []ingest.Fetched{{Next: at[0].Offset}}, nil
}

func TestKafkasClockIsReadOffWhatIsAppended(t *testing.T) {
	const sec = traffic.Time(1e6)
	for _, tc := range []struct {
		name string
		log  appending
		news bool
		want time.Duration // apart
	}{
		{"clocks agree", appending{last: 90 * sec, next: 101 * sec}, true, 0},
		{"ahead", appending{last: 90 * sec, next: 130 * sec}, true, 28 * time.Second},
		{"behind", appending{last: 90 * sec, next: 70 * sec}, true, -30 * time.Second},
		{"nothing comes", appending{last: 90 * sec}, false, 0},
		{"nothing comes, and what is there is from the future", appending{last: 190 * sec}, false, 88 * time.Second},
		{"nothing is there", appending{}, false, 0},
	} {
		clock := 98 * sec
		r, news, err := watchAppend(t.Context(), &tc.log, time.Second, func() traffic.Time { clock += 2 * sec; return clock })
		if err != nil || news != tc.news || (r.Theirs != 0 && r.Apart() != tc.want) ||
			(r.Theirs == 0) != (tc.log.last == 0) {
			t.Errorf("%s: %+v apart %s, news %v, %v", tc.name, r, r.Apart(), news, err)
		}
	}
}

// What is later than Kafka's time by more is corrected: from there on a clock is wrong.
func TestClocksFailWhereTimesAreCorrected(t *testing.T) {
	if clocks.Fails != route.FutureTolerance {
		t.Errorf("clocks fail at %s, and events are corrected from %s on", clocks.Fails, route.FutureTolerance)
	}
}

func TestSampleOfAJSONLog(t *testing.T) {
	routing := &rules.Routing{
		Stream: history.Live, Number: 1, RecordFormat: detectors.RecordFormat,
		Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: "json", Map: map[string]string{"time": "ts"}, MaxEventBytes: 1 << 20},
	}
	at := traffic.At(time.Date(2026, 11, 21, 5, 6, 7, 0, time.UTC))
	s, err := readSample([]traffic.Message{
		{Appended: at, Value: []byte(`{"ts":"2026-11-21T05:06:05Z","ip":"192.0.2.1"}`)},
		{Appended: at.Add(time.Second), Value: []byte(`{"ts":"tomorrow"}`)},
	}, routing, nil, detectors.DefaultIdleMargin)
	if err != nil || s.events != 2 || s.good != 1 || s.delay(50) != 2*time.Second || s.newest != at.Add(time.Second) || s.refused["bad_value"] != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A round ends in its part of the run's time, or with the run. A check that comes back by then has its findings, and
// whatever one that hangs would do, nobody waits for it.
func TestRoundsEndInTime(t *testing.T) {
	for _, tc := range []struct {
		name    string
		timeout time.Duration // of the run; 0: none
		stopped time.Duration // when a signal comes; 0: never
		slow    time.Duration // what a check takes that looks at its context
		found   Status        // of that check
		took    time.Duration
	}{
		{"the default", 20 * time.Second, 0, 5 * time.Second, OK, 6*time.Second + sayingTime},
		{"too slow for it", 20 * time.Second, 0, 7 * time.Second, Warn, 6*time.Second + sayingTime},
		{"with more time", time.Minute, 0, 15 * time.Second, OK, 18*time.Second + sayingTime},
		{"with less", 1500 * time.Millisecond, 0, 5 * time.Second, Warn, 1500*time.Millisecond + sayingTime},
		{"stopped", time.Hour, 200 * time.Millisecond, time.Second, Warn, 200*time.Millisecond + sayingTime},
		{"without an end", 0, 0, 5 * time.Second, OK, 6*time.Second + sayingTime},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if tc.timeout > 0 {
					ctx, stop = context.WithTimeout(ctx, tc.timeout)
					defer stop()
				}
				if tc.stopped > 0 {
					time.AfterFunc(tc.stopped, stop)
				}
				hung := make(chan struct{})
				defer close(hung)
				slow := func(ctx context.Context) []Finding {
					select {
					case <-time.After(tc.slow): // the clock of the synctest bubble
						return []Finding{fine("slow", "well")}
					case <-ctx.Done():
						return []Finding{warning("slow", "wait", "cut short")}
					}
				}
				hangs := func(context.Context) []Finding { <-hung; return nil }
				never := func(context.Context) []Finding { return []Finding{fine("never", "looked at")} }
				begun := time.Now()
				found := inRounds(ctx, [][]doctorCheck{{{"slow", slow}, {"hangs", hangs}}, {{"never", never}}})
				if took := time.Since(begun); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if len(found) != 2 || found[0].Status != tc.found || found[1].Status != Fail || found[1].Check != "hangs" || !strings.Contains(found[1].Remedy, "--timeout") {
					t.Errorf("%+v", found)
				}
			})
		})
	}
}

// What is left of a run's time is for the rounds that come.
func TestRoundsComeToTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		slow := func(context.Context) []Finding {
			<-time.After(17 * time.Second)
			return []Finding{fine("slow", "well")}
		}
		found := inRounds(ctx, [][]doctorCheck{{{"a", slow}}, {{"b", slow}, {"c", slow}}, {{"d", slow}}})
		if len(found) != 4 || found[3].Status != OK {
			t.Errorf("%+v", found)
		}
		time.Sleep(time.Minute) // let those that were not waited for end
	})
}

// Of a server that is away, the line says what is wrong, and what to do only as the remedy.
func TestDoctorSaysOnceWhatToDoAboutRedis(t *testing.T) {
	mini := testbed.EmbeddedRedis(t)
	address := mini.Addr()
	store, err := blocklist.Connect(blocklist.Server{URL: "redis://" + address + "/0"}, "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	mini.Close()
	found := (&examination{clock: now, redis: store}).lookAtRedis(t.Context())
	wantFinding(t, found[:1], "redis", Fail, address, "start it, or correct redis.url")
	if strings.Contains(found[0].Found, "start it") {
		t.Errorf("found %q", found[0].Found)
	}
}

// Programs that read mend find it for one release.
func TestARemedyIsWrittenUnderBothNames(t *testing.T) {
	for want, f := range map[string]Finding{
		`{"check":"redis","status":"fail","found":"gone","remedy":"start it","mend":"start it"}`: failing("redis", "start it", "gone"),
		`{"check":"redis","status":"ok","found":"there"}`:                                        fine("redis", "there"),
	} {
		if got, err := json.Marshal(f); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

// An error's own advice is the remedy, and no part of what was found.
func TestAdviceIsTheRemedy(t *testing.T) {
	advised := fmt.Errorf("asking; twice: %w", ingest.Advise(errors.New("refused; really"), "start it"))
	if f := failed("kafka", advised, "see its log"); f.Remedy != "start it" || f.Found != "asking; twice: refused; really" || f.Status != Fail {
		t.Errorf("%+v", f)
	}
	if f := failed("kafka", errors.New("refused; really"), "see its log"); f.Remedy != "see its log" || f.Found != "refused; really" {
		t.Errorf("%+v", f)
	}
}

// Every field in which identity maps differ is told, with what the stream has and what the configuration wants.
func TestDoctorTellsWhereIdentitiesDiffer(t *testing.T) {
	has, want := traffic.DefaultIdentityMap(), traffic.DefaultIdentityMap()
	if got := identityDifferences(&has, &want); len(got) > 0 {
		t.Errorf("of two that are the same: %q", got)
	}
	if err := want.IP.TrustedProxies.UnmarshalText([]byte("10.0.0.0/8")); err != nil {
		t.Fatal(err)
	}
	want.IP.V6, want.IP.Claimed, want.IP.Header = 56, true, "Forwarded"
	want.Device.Header, want.User.Cookie, want.APIKey.Vouched, want.Session.Commas = "X-Tv", "uid", true, true
	const all = "identity.api_key.vouched is false, want true; identity.device.header is X-Device-Id, want X-Tv; identity.ip.claimed is false, want true; " +
		"identity.ip.header is none, want Forwarded; identity.ip.trusted_proxies is 0, want 10.0.0.0/8; identity.ip.v6 is 64, want 56; " +
		"identity.session.commas is false, want true; identity.user.cookie is none, want uid"
	if got := strings.Join(identityDifferences(&has, &want), "; "); got != all {
		t.Errorf("got  %s\nwant %s", got, all)
	}
}

// TestRulesBeyondTheBudgetAreNamed: what is not judged is no rule that matches nothing.
func TestRulesBeyondTheBudgetAreNamed(t *testing.T) {
	routing := &rules.Routing{
		Stream: history.Live, Number: 1, RecordFormat: detectors.RecordFormat, SecretID: "s",
		Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: "weir", MaxEventBytes: 1 << 20},
	}
	for i := range 60 {
		d := rules.Document{ID: fmt.Sprintf("dear-%02d", i), Owner: "one", Limit: 2, Window: time.Minute,
			Key: []traffic.KeyField{{Field: traffic.FieldDevice}}, Missing: rules.MissingSkip}
		d.Match.When = fmt.Sprintf(`event.user_agent.matches("(?i)bot%d[/ ][0-9]+") || true`, i)
		v, _ := rules.NextVersion(nil, d)
		routing.Rules = append(routing.Rules, v)
	}
	at := traffic.At(time.Date(2026, 11, 21, 5, 6, 7, 0, time.UTC))
	judged := func(agent int) (budget []Finding, matches Finding) {
		t.Helper()
		s, err := readSample([]traffic.Message{{Appended: at, Value: fmt.Appendf(nil,
			`{"v":1,"time":"2026-11-21T05:06:05Z","ip":"192.0.2.1","device":"tv-1","user_agent":%q}`,
			strings.Repeat("x", agent))}}, routing, nil, detectors.DefaultIdleMargin)
		if err != nil || s.good != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		return s.judgeBudget(), s.judgeMatches()
	}
	if budget, matches := judged(60); len(budget) != 0 || matches.Status != OK {
		t.Errorf("a short user agent: %v, %v", budget, matches)
	}
	budget, matches := judged(8000)
	if len(budget) != 1 || budget[0].Status != Warn || !strings.Contains(budget[0].Found, "dear-59") &&
		!strings.Contains(budget[0].Found, "more") || matches.Status != OK {
		t.Errorf("a long one: %v, %v; allowed: that rules are beyond the budget", budget, matches)
	}
}
