package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Whatever a client sent, its sample is read back; what is no sample at all does not fail the query for the others.
func TestSamplesView(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	odd := traffic.Request{
		Time: dawn, Method: "POST", Path: "/a\x00b\xff\"\\\u2028", Status: 418, UserAgent: "'; DROP TABLE hits; --", Attrs: []byte(`{"a":"\u0000"}`),
	}
	id := traffic.Identity{IP: addr("192.0.2.1"), Device: "tv\n7", User: "\u202e"}
	h := hitNumber(1)
	h.Samples = []string{
		string(traffic.AppendSample(nil, &odd, &id)), "no JSON", `{"time":"soon","path":"/x"}`, `{"status":"many","path":"/x"}`, `{"path":"\u0000"}`, `[1]`, `7`, "",
		`{"path":"","time":"2026-11-20T12:00:01Z","before":true}`,
	}
	way, _ := traffic.MarkSample(traffic.AppendSample(nil, &odd, &id), traffic.SampleBefore)
	forged := odd
	forged.ID = `","before":true,"x":"`
	h.Samples = append(h.Samples, string(way), string(traffic.AppendSample(nil, &forged, &id)))
	before := len(h.Samples) - 1 // the only one that came before the limit
	merged := hitNumber(2)
	merged.Phase, merged.IntoID = detectors.PhaseMerged, h.ID
	b.record(t, history.Live, h, merged)
	rows, err := b.Conn.Query(t.Context(), `SELECT number, coalesce(at::text, '-'), coalesce(method, '-'), coalesce(path, '-'), coalesce(status, 0), coalesce(user_agent, '-'),
		coalesce(device, '-'), coalesce(user_id, '-'), coalesce(attrs, '-'), sample, before FROM weir.samples_v ORDER BY number`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var number, status int
		var at, method, path, agent, device, user, attrs, sample string
		var way bool
		if err := rows.Scan(&number, &at, &method, &path, &status, &agent, &device, &user, &attrs, &sample, &way); err != nil {
			t.Fatal(err)
		}
		got := strings.Join([]string{method, path, agent, device, user, attrs}, "|")
		want := "-|-|-|-|-|-"
		read := number == 1 || number >= before
		if number == before-1 {
			want = "-||-|-|-|-"
		}
		if read {
			want = "POST|/a\\x00b\\xff\"\\\u2028|'; DROP TABLE hits; --|tv\n7|\u202e|{\"a\":\"\\u0000\"}"
		}
		if got != want || sample != h.Samples[number-1] || (status == 418) != read || (at == "-") != (number > 1 && number < before-1) || way != (number == before) {
			t.Errorf("sample %d: %q at %s, status %d, before the limit %v", number, got, at, status, way)
		}
	}
	if err := rows.Err(); err != nil || n != len(h.Samples) {
		t.Errorf("%d samples of %d: %v", n, len(h.Samples), err)
	}
}

func TestSubjectText(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for subject, want := range map[string]string{
		"ip=192.0.2.1%2F32&device=tv-7":            "ip=192.0.2.1 device=tv-7",
		"ip=192.0.2.0%2F24":                        "ip=192.0.2.0/24",
		"ip=2001%3Adb8%3A%3A%2F64&user=%C3%A9%40x": "ip=2001:db8::/64 user=é@x",
		"ip=2001%3Adb8%3A%3A1%2F128&device":        "ip=2001:db8::1 device",
		"device=a%26b%3Dc%20d":                     "device=a&b=c d",
		"ip=192.0.2.1%2F32&api_key=secret-of-weir": "ip=192.0.2.1 api_key=…weir",
		"api_key=a%3Db":                            "api_key=…b",
		"session=":                                 "session=…",
		"session=%00abcdef&device=%FF":             "session=…&device=%FF", // no text: the rest stays as it is
	} {
		var got string
		if err := b.Conn.QueryRow(t.Context(), "SELECT weir.subject_text($1)", subject).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", subject, got, err, want)
		}
	}
}

func TestRulesViewKnowsTheDocument(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Publish(t, rules.Format{Name: "weir"})
	flood, watch := historytest.Document("flood"), historytest.Document("watch")
	flood.Owner, watch.Owner, watch.Block = "a \"b\" \\ ü", "search", nil
	b.Apply(t, flood, watch)
	flood.Limit = 9
	b.Apply(t, flood, watch)
	for _, tt := range []struct {
		where, owner string
		limit        int64
		block        string
	}{
		{"rules_v WHERE rule = 'flood'", flood.Owner, 9, "00:15:00 on-hit"},
		{"rules_v WHERE rule = 'watch'", "search", 5, "none"},
		{"rule_versions_v WHERE rule = 'flood' AND version = 1", flood.Owner, 5, "00:15:00 on-hit"},
	} {
		var owner, block string
		var limit int64
		var window time.Duration
		err := b.Conn.QueryRow(t.Context(), "SELECT owner, rule_limit, window_length, coalesce(block_ttl || ' ' || block_extend, 'none') FROM weir."+tt.where).
			Scan(&owner, &limit, &window, &block)
		if err != nil || owner != tt.owner || limit != tt.limit || window != time.Minute || block != tt.block {
			t.Errorf("%s: %q %d %v %q, %v", tt.where, owner, limit, window, block, err)
		}
	}
}

// stored_subject is traffic.Subject.Stored, as SQL.
func TestStoredSubject(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	long := strings.Repeat("é \x00&=%", 30)
	for _, s := range []traffic.Subject{
		"", "ip=192.0.2.7%2F32", "device", "device&user=7",
		subject(traffic.Identity{IP: addr("192.0.2.1"), Device: long, User: "sha256:" + strings.Repeat("0", 64)}, 32, 64, traffic.FieldIP, traffic.FieldDevice, traffic.FieldUser),
		subject(traffic.Identity{Device: strings.Repeat("x", 64), User: strings.Repeat("%", 65)}, 0, 0, traffic.FieldDevice, traffic.FieldUser),
		subject(traffic.Identity{Device: long, Session: strings.Repeat("\xff", 200)}, 0, 0, traffic.FieldDevice, traffic.FieldUser, traffic.FieldSession),
	} {
		for _, s := range []traffic.Subject{s, s.Stored()} {
			var got string
			if err := b.Conn.QueryRow(t.Context(), "SELECT weir.stored_subject($1)", string(s)).Scan(&got); err != nil || got != string(s.Stored()) {
				t.Errorf("%s is stored as %s (%v), want %s", s, got, err, s.Stored())
			}
		}
	}
	for _, bad := range []string{strings.Repeat("a%2", 30), strings.Repeat("&=", 40), strings.Repeat("%zz=", 40)} {
		var got string
		if err := b.Conn.QueryRow(t.Context(), "SELECT weir.stored_subject($1)", bad).Scan(&got); err != nil {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
