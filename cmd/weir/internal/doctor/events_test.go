package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// now is the moment of these tests, a second before midnight: how long they take changes nothing that they look at.
func now() traffic.Time { return traffic.At(time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)) }

// event is one event of a gateway, a while ago.
func event(ago time.Duration, more string) string {
	return fmt.Sprintf(`{"v":1,"time":%q,"ip":"198.51.100.7","method":"POST","path":"/v1/guest-tokens","status":201%s}`,
		now().Add(-ago).Std().UTC().Format(time.RFC3339Nano), more)
}

func repeat(n int, line string) []string {
	return slices.Repeat([]string{line}, n)
}

const deviceRule = `
id: devices
owner: identity
match: {path: /v1/guest-tokens}
key: [ip, device]
limit: 1000
window: 60s
block: {key: [ip], ttl: 10m}
`

// examined is an installation with deviceRule, without its servers.
func examined(t *testing.T, mode rules.Mode) *examination {
	t.Helper()
	docs, err := rules.ParseFiles([]rules.File{{Name: "devices.yaml", Src: []byte(deviceRule)}}, rules.Environment{Identity: traffic.DefaultIdentityMap()})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := rules.NextVersion(nil, docs[0])
	return &examination{
		clock: now, conf: config.Default(), names: ingest.Live.Topics("weir"), modes: map[string]rules.ModeState{"devices": {Rule: "devices", Mode: mode}},
		routing: &rules.Routing{
			Stream: history.Live, Number: 1, RecordFormat: detectors.RecordFormat,
			Rules: []rules.Version{v}, Identity: traffic.DefaultIdentityMap(), Format: rules.Format{Name: "weir", MaxEventBytes: 1 << 20},
		},
	}
}

// Events as gateways should not write them, each sort with its line.
func TestDoctorFindsWhatIsWrongWithEvents(t *testing.T) {
	for _, tc := range []struct {
		name         string
		promote      bool
		events       []string
		check        string
		st           Status
		text, remedy string
	}{
		{"none", false, nil, "events", Warn, "holds none", "docs/events.md"},
		{"one that cannot be read", false, append(repeat(9, event(0, "")), `{"v":1,`), "events", Warn, "1 cannot be read (malformed 1)", "events.format"},
		{"none that can", false, repeat(3, "not JSON"), "events", Fail, "none can be read (malformed 3)", "events.format"},
		{"unknown members", false, repeat(3, event(0, `,"colour":"red"`)), "events", OK, "3 with members that the format does not define", ""},
		{"without the field of a key", false, repeat(12, event(0, "")), "identity device", Fail, "never fire: devices", "identity.device"},
		{"too few to be sure", false, repeat(3, event(0, "")), "identity device", Warn, "lack it, and count nowhere: devices", "identity.device"},
		{"mostly without it", false, append(repeat(8, event(0, "")), repeat(2, event(0, `,"device":"tv"`))...), "identity device", Warn, "in 20 % of 10 events; missing: absent 8", "identity.device"},
		{"with it", false, repeat(12, event(0, `,"device":"tv"`)), "identity device", OK, "in 100 % of 12 events", ""},
		{"a bad address", false, repeat(12, `{"v":1,"ip":"localhost","device":"tv","path":"/v1/guest-tokens"}`), "identity ip", Fail, "missing: ip_unparsable 12", "trusted_proxies"},
		{"from the future", false, append(repeat(5, event(0, "")), event(-time.Hour, "")), "event times", Warn, "1 of 6 come from the future, the farthest by 1h0m0s", "NTP"},
		{"old", false, repeat(5, event(2*time.Hour, "")), "event times", Warn, "2h0m0s or less before Kafka took them", "time zone"},
		{"too late to count", false, repeat(5, event(2*time.Hour, "")), "event times", Warn, "5 of 5 came too late for every rule and count nowhere (old by more than 2m: ", "time zone"},
		{"some too late to count", false, append(repeat(20, event(0, "")), repeat(10, event(2*time.Hour, ""))...), "event times", Warn, "10 of 30 came too late for every rule", "weir ingest --replay"},
		{"a few too late to count", false, append(repeat(20, event(0, "")), repeat(9, event(2*time.Hour, ""))...), "event times", OK, "9 of 29 came too late for every rule", ""},
		{"without time", false, repeat(5, `{"v":1,"ip":"198.51.100.7"}`), "event times", Warn, "none of 5 carries a time", "write time"},
		{"paths that no rule matches", false, repeat(5, `{"v":1,"ip":"198.51.100.7","path":"/elsewhere"}`), "rules", Warn, "of the newest 5 events, none matches: devices", "weir rules show"},
		{"429 in shadow", false, repeat(5, strings.Replace(event(0, ""), "201", "429", 1)), "verdicts", OK, "0 of 5 events were refused by weir", ""},
		{"429 without a verdict", true, repeat(5, strings.Replace(event(0, ""), "201", "429", 1)), "verdicts", Fail, "5 more were answered 429", "X-Weir-Rule"},
		{"429 with one", true, repeat(5, strings.Replace(event(0, `,"verdict":{"rule":"devices","block":"0123"}`), "201", "429", 1)), "verdicts", OK, "5 of 5 events were refused by weir", ""},
		{"a claimed identity", false, nil, "identities", Warn, "counted by all the same: devices", "vouched"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mode := rules.ModeShadow
			if tc.promote {
				mode = rules.ModeBlock
			}
			e := examined(t, mode)
			var messages []traffic.Message
			for _, event := range tc.events {
				messages = append(messages, traffic.Message{Appended: now(), Value: []byte(event)})
			}
			found := map[string]Finding{}
			for _, f := range append(e.judgeSample(messages), e.lookAtIdentities(t.Context())...) {
				found[f.Check] = f
			}
			wantFinding(t, found, tc.check, tc.st, tc.text, tc.remedy)
		})
	}
}

// Keys of other fields than identities: a rule that waits for one in vain is told of, one that falls back on another field does not wait.
func TestDoctorFindsKeysThatNoEventHas(t *testing.T) {
	tenants := func(key string) string {
		return "id: tenants\nowner: identity\nmatch: {path: /v1/*}\nkey: " + key + "\nlimit: 9\nwindow: 60s\n"
	}
	tenant := event(0, `,"attrs":{"tenant":"a"}`)
	for _, tc := range []struct {
		name, key string
		events    []string
		check     string
		st        Status // empty: no finding
		text      string
	}{
		{"never", "[attrs.tenant]", repeat(12, event(0, "")), "key attrs.tenant", Fail, "no event that these rules match has it, so they never fire: tenants"},
		{"too few to be sure", "[attrs.tenant]", repeat(3, event(0, "")), "key attrs.tenant", Warn, "count nowhere: tenants"},
		{"mostly not", "[attrs.tenant, ip]", append(repeat(8, event(0, "")), tenant), "key attrs.tenant", Warn, "count nowhere: tenants"},
		{"always", "[attrs.tenant]", repeat(12, tenant), "key attrs.tenant", "", ""},
		{"falls back", "[attrs.tenant|ip]", repeat(12, event(0, "")), "key attrs.tenant|ip", "", ""},
		{"nothing to fall back on", "[api_key|route]", repeat(12, event(0, "")), "key api_key|route", Fail, "never fire: tenants"},
		{"what it falls back on", "[api_key|route]", repeat(12, event(0, "")), "identity api_key", OK, "no rule counts by it"},
		{"a claimed one to fall back on", "[device|ip]", repeat(12, event(0, "")), "identities", Warn, "counted by all the same: tenants"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := examined(t, rules.ModeShadow)
			docs, err := rules.ParseFiles([]rules.File{{Name: "r.yaml", Src: []byte(tenants(tc.key))}}, rules.Environment{Identity: traffic.DefaultIdentityMap()})
			if err != nil {
				t.Fatal(err)
			}
			e.routing.Rules[0], _ = rules.NextVersion(nil, docs[0])
			var messages []traffic.Message
			for _, event := range tc.events {
				messages = append(messages, traffic.Message{Appended: now(), Value: []byte(event)})
			}
			found := map[string]Finding{}
			for _, f := range append(e.judgeSample(messages), e.lookAtIdentities(t.Context())...) {
				found[f.Check] = f
			}
			if f, ok := found[tc.check]; tc.st == "" {
				if ok {
					t.Errorf("it finds %+v", f)
				}
				return
			}
			wantFinding(t, found, tc.check, tc.st, tc.text, "")
		})
	}
}

// What the format never fills is known without waiting for events, and told once.
func TestDoctorFindsRulesThatTheFormatStarves(t *testing.T) {
	const line = `198.51.100.7 - - [21/Nov/2026:05:10:02 +0000] "POST /v1/guest-tokens HTTP/1.1" 201 12 "-" "tv"`
	for _, tc := range []struct {
		name, rule  string
		check, text string // of what fails; empty: nothing
	}{
		{"a key", "match: {path: /v1/*}\nkey: [attrs.tenant]", "key attrs.tenant", "events of the format combined never have it, so they never fire: r"},
		{"an identity", "match: {path: /v1/*}\nkey: [device]", "identity device", "events of the format combined never have it, so they never fire: r"},
		{"what it falls back on", "match: {path: /v1/*}\nkey: [attrs.tenant|route]", "key attrs.tenant|route", "events of the format combined never have it"},
		{"a fallback that is there", "match: {path: /v1/*}\nkey: [attrs.tenant|user_agent]", "", ""},
		{"a host", "match: {host: a.example.com}\nkey: [ip]", "format combined", "so they never fire: r (match.host)"},
		{"a count", "match: {path: /v1/*}\nkey: [ip]\ncount: {distinct: [path, device]}", "format combined", "so they never fire: r (count.distinct)"},
		{"a sum", "match: {path: /v1/*, route: a}\nkey: [ip]\ncount: {sum: latency_ms}", "format combined", "r (match.route), r (count.sum)"},
		{"all there", "match: {path: /v1/*, status: 201}\nkey: [ip, user_agent]\ncount: {sum: bytes}", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := examined(t, rules.ModeShadow)
			e.routing.Format.Name = format.Combined
			docs, err := rules.ParseFiles([]rules.File{{Name: "r.yaml", Src: []byte("id: r\nowner: tests\n" + tc.rule + "\nlimit: 9\nwindow: 60s\n")}},
				rules.Environment{Identity: traffic.DefaultIdentityMap()})
			if err != nil {
				t.Fatal(err)
			}
			e.routing.Rules[0], _ = rules.NextVersion(nil, docs[0])
			found := map[string]Finding{}
			for _, f := range e.judgeSample([]traffic.Message{{Appended: now(), Value: []byte(line)}}) {
				if found[f.Check] = f; f.Status == Fail && f.Check != tc.check {
					t.Errorf("it finds %+v", f)
				}
			}
			if tc.check != "" {
				wantFinding(t, found, tc.check, Fail, tc.text, "")
			}
			if f := found["rules"]; f.Status != OK {
				t.Errorf("told twice: %+v", f)
			}
		})
	}
}

// A format that cannot say what weir refused keeps blocked clients blocked; in json a field map decides.
func TestDoctorKnowsFormatsWithoutVerdicts(t *testing.T) {
	for _, tc := range []struct {
		format   string
		fieldMap map[string]string
		st       Status
		text     string
	}{
		{format.Combined, nil, Warn, "format combined, as it is read here, has no place for them"},
		{format.JSON, map[string]string{"path": "uri"}, Warn, "format json, as it is read here"},
		{format.JSON, map[string]string{"verdict.rule": "refused_by"}, OK, "0 of 0 events were refused by weir"},
		{format.Weir, nil, OK, "0 of 0 events were refused by weir"},
	} {
		e := examined(t, rules.ModeBlock)
		e.routing.Format.Name, e.routing.Format.Map = tc.format, tc.fieldMap
		f := (&sampled{routing: e.routing, modes: e.modes}).judgeVerdicts()
		wantFinding(t, map[string]Finding{f.Check: f}, "verdicts", tc.st, tc.text, "")
	}
}

func TestOldDeadLettersAreCounted(t *testing.T) {
	at := now()
	recent, _, older := countDeadLetters([]traffic.Message{{Appended: at.Add(-2 * time.Hour), Value: []byte("{}")}}, at)
	if len(recent) != 0 || older != 1 {
		t.Errorf("a letter of two hours ago: recent %v, older %d", recent, older)
	}
}

func TestJudgeRouteCommits(t *testing.T) {
	good := ingest.InitialCommit(7, 3, 1, 4)
	for _, tc := range []struct {
		name    string
		commits map[int]ingest.Commit
		text    string
	}{
		{"good", map[int]ingest.Commit{0: good, 1: good}, ""},
		{"absent", map[int]ingest.Commit{0: good}, "no commit for partitions 1"},
		{"of somebody else", map[int]ingest.Commit{0: good, 1: {Offset: 3}}, "partitions 1 were not written by weir"},
		{"of another generation", map[int]ingest.Commit{0: ingest.InitialCommit(6, 3, 1, 4), 1: good}, "partitions 0 are of another life"},
		{"beyond the end", map[int]ingest.Commit{0: good, 1: ingest.InitialCommit(7, 11, 1, 4)}, "partitions 1 lie beyond the end"},
	} {
		p := progressOf{commits: tc.commits, bounds: map[int]ingest.Bounds{0: {End: 10}, 1: {End: 10}}}
		f := judgeRouteCommits("stage route", p, &streams.Stream{Generation: 7})
		if want := map[bool]Status{true: OK, false: Fail}[tc.text == ""]; f.Status != want || !strings.Contains(f.Found, tc.text) {
			t.Errorf("%s: %+v", tc.name, f)
		}
	}
}

func TestJudgeProgress(t *testing.T) {
	at := now()
	running := kafka.InspectedGroup{State: "Stable", Members: 2}
	for _, tc := range []struct {
		name string
		p    progressOf
		st   Status
		text string
	}{
		{"done", progressOf{group: running}, OK, "2 processes, nothing left to do"},
		{"a little behind", progressOf{group: running, records: 5, oldest: at.Add(-time.Second)}, OK, "5 records left to do, the oldest of 1s ago"},
		{"far behind", progressOf{group: running, records: 5, oldest: at.Add(-time.Hour)}, Warn, "1h0m0s ago"},
		{"nobody", progressOf{records: 5, oldest: at}, Warn, "nobody runs it; 5 records"},
		{"too late", progressOf{group: running, uncovered: []int{3}}, Fail, "of partitions 3 records went before they were read"},
	} {
		if f := judgeProgress("stage record", stageWork{stage: ingest.StageRecord, run: ingest.StageRecord}, tc.p, backlogWarns, at); f.Status != tc.st || !strings.Contains(f.Found, tc.text) {
			t.Errorf("%s: %+v", tc.name, f)
		}
	}
}

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
		if err != nil || news != tc.news || (r.theirs != 0 && r.apart() != tc.want) || (r.theirs == 0) != (tc.log.last == 0) {
			t.Errorf("%s: %+v apart %s, news %v, %v", tc.name, r, r.apart(), news, err)
		}
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

// known_good is asked for while a rule with a block waits in shadow, and is told of where it judges nothing.
func TestDoctorJudgesKnownGood(t *testing.T) {
	const name = "known good"
	paid, free := `,"plan":"paid"`, `,"plan":"free"`
	for _, tt := range []struct {
		name   string
		mode   rules.Mode
		good   string
		events []string
		status Status
		found  string // empty: no finding
	}{
		{"nothing waits", rules.ModeBlock, "", repeat(20, event(time.Minute, "")), OK, ""},
		{"a rule waits", rules.ModeShadow, "", repeat(20, event(time.Minute, "")), Warn, "known_good is not set: evidence about 1 rule in shadow (devices)"},
		{"it judges nothing", rules.ModeShadow, `event.plan == "paid"`, repeat(20, event(time.Minute, "")), Warn, "known_good judges nothing: none of 20 events"},
		{"too few to tell", rules.ModeShadow, `event.plan == "paid"`, repeat(5, event(time.Minute, "")), OK, "of 5 events it holds for 0, does not for 0, and 5 cannot be judged"},
		{"it judges", rules.ModeBlock, `event.plan == "paid"`, append(repeat(3, event(time.Minute, paid)), event(time.Minute, free), event(time.Minute, "")), OK,
			"of 5 events it holds for 3, does not for 1, and 1 cannot be judged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := examined(t, tt.mode)
			e.routing.KnownGood = tt.good
			var messages []traffic.Message
			for i, text := range tt.events {
				messages = append(messages, traffic.Message{Offset: int64(i), Appended: now(), Value: []byte(text)})
			}
			found := e.judgeSample(messages)
			at := slices.IndexFunc(found, func(f Finding) bool { return f.Check == name })
			if (at >= 0) != (tt.found != "") {
				t.Fatalf("findings %+v", found)
			}
			if at >= 0 && (found[at].Status != tt.status || !strings.Contains(found[at].Found, tt.found)) {
				t.Errorf("got %+v, want %s %s", found[at], tt.status, tt.found)
			}
		})
	}
	e := examined(t, rules.ModeShadow)
	e.conf.KnownGood = `event.plan == "paid"`
	if got := e.judgeRouting(); got.Status != Warn || !strings.Contains(got.Found, "known_good of the configuration is not in effect yet") {
		t.Errorf("%+v", got)
	}
}
