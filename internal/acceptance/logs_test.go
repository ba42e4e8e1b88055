package acceptance

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/internal/testbed"
)

// realLog is a log that nobody on this project wrote, with what is known to be in it.
type realLog struct {
	name, file string
	combined   bool
	key        []string

	sources  int // over 10 in (t-60s, t], lateness 60 s or what late says
	late     string
	episodes int   // of the sorted log
	events   int64 // in those episodes
}

var realLogs = []realLog{
	{name: "elastic-apache", file: "elastic-apache.log.gz", combined: true, key: []string{"ip"}, sources: 79, episodes: 108, events: 1729},
	{name: "saunathinker", file: "saunathinker.jsonl.gz", key: []string{"ip"}, sources: 2, episodes: 2, events: 764},
	{name: "farmwork", file: "farmwork.jsonl.gz", key: []string{"ip"}, sources: 2, episodes: 83, events: 3346},
	{name: "seart-api-nginx", file: "seart-api-nginx.jsonl.gz", key: []string{"ip"}},
	{name: "cloudtrail", file: "cloudtrail-invictus.jsonl.gz", key: []string{"user", "session"}, late: "15m", sources: 15, episodes: 20, events: 2351},
}

// summary is what `weir ingest --replay --output json` closes with.
type summary struct {
	Complete bool           `json:"complete"`
	Events   int            `json:"events"`
	Dead     map[string]int `json:"dead_letters"`
	Rules    []struct {
		Rule        string `json:"rule"`
		Late        int    `json:"late"`
		LateWithKey int    `json:"late_with_key"`
		Episodes    int    `json:"episodes"`
		Sources     int    `json:"sources"`
		Events      int64  `json:"events"`
	} `json:"rules"`
}

// TestRealLogs is the main job: real logs, through real servers where there are some, judged by an oracle over the
// sorted log.
func TestRealLogs(t *testing.T) {
	t.Parallel()
	in := newInstall(t, [3]int{1, 8, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 0)
	for _, log := range realLogs {
		t.Run(log.name, func(t *testing.T) {
			late := log.late
			if late == "" {
				late = "60s"
			}
			// As the log comes, out of order as it may be: the sources over the limit are those of the sorted log.
			s := log.replay(t, in, "as-it-comes", late)
			if r := s.Rules[0]; r.Sources != log.sources || r.Late != 0 {
				t.Errorf("as it comes: %d sources and %d late events, want %d and none", r.Sources, r.Late, log.sources)
			}
			want := log.oracle(t)
			found := hitsOf(in, log.name+"-as-it-comes")
			for source := range found {
				if len(want[source]) == 0 {
					t.Errorf("%s is no abuser", source)
				}
			}
			compareEpisodes(t, log.backtest(t, in, late), found)
			// Sorted: episode by episode.
			s = log.replay(t, in, "sorted", "60s", "--reorder", "15m")
			if r := s.Rules[0]; r.Sources != log.sources || r.Episodes != log.episodes || r.Events != log.events {
				t.Errorf("sorted: %d sources, %d episodes, %d events, want %d, %d, %d",
					r.Sources, r.Episodes, r.Events, log.sources, log.episodes, log.events)
			}
			compareEpisodes(t, log.backtest(t, in, "60s", "--reorder", "15m"), want)
			compareEpisodes(t, hitsOf(in, log.name+"-sorted"), want)
		})
	}
	t.Run("cloudtrail with too little lateness", func(t *testing.T) {
		s := realLogs[4].replay(t, in, "late", "60s")
		if r := s.Rules[0]; s.Events != 2900 || r.Sources != 10 || r.Late != 1785 || r.LateWithKey != 1711 {
			t.Errorf("summary %+v", s)
		}
	})
}

// replay runs the log through weir, with limit 10 in 60 s.
func (log *realLog) replay(t *testing.T, in *install, name, lateness string, flags ...string) summary {
	t.Helper()
	args := append([]string{"ingest", "--replay", log.name + "-" + name}, log.args(t, in, lateness)...)
	var s summary
	in.json(&s, append(args, flags...)...)
	if !s.Complete || len(s.Rules) != 1 || len(s.Dead) != 0 {
		t.Fatalf("summary %+v", s)
	}
	return s
}

// backtest runs the log through the same rule without any server: subject → episodes, by time.
func (log *realLog) backtest(t *testing.T, in *install, lateness string, flags ...string) map[string][]oracle.Episode {
	t.Helper()
	var found struct {
		Rules []struct {
			Hits []struct {
				Subject     string
				First, Last time.Time
				Count       int64
			}
		}
	}
	in.json(&found, append(append([]string{"backtest"}, log.args(t, in, lateness)...), flags...)...)
	if len(found.Rules) != 1 {
		t.Fatalf("backtest: %+v", found)
	}
	out := map[string][]oracle.Episode{}
	for _, h := range found.Rules[0].Hits {
		out[h.Subject] = append(out[h.Subject], oracle.Episode{First: h.First.UnixMicro(), Last: h.Last.UnixMicro(), Count: h.Count})
	}
	return out
}

// args say which log is read, how, and with which rule: the same words to ingest and to backtest.
func (log *realLog) args(t *testing.T, in *install, lateness string) []string {
	t.Helper()
	rule := in.Write("rule-"+log.name+".yaml", fmt.Sprintf(`
id: burst
owner: tests
match: {}
key: [%s]
on_missing: skip
limit: 10
window: 60s
lateness: %s
`, strings.Join(log.key, ", "), lateness))
	path, err := filepath.Abs(filepath.Join("testdata", "logs", log.file))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{path, "--partitions", "1", "--rules", rule}
	if log.combined {
		return append(args, "--format", "combined")
	}
	return append(args, "--format", "json", "--map", "time=ts,user_agent=ua")
}

// hitsOf is what history holds of a replay: subject → episodes, by time.
func hitsOf(in *install, replay string) map[string][]oracle.Episode {
	out := map[string][]oracle.Episode{}
	in.query(fmt.Sprintf(`SELECT subject, first, last, events FROM {ns}.hits_all WHERE stream = 'replay/%s' AND phase = 3 ORDER BY first`, replay),
		func(rows pgx.Rows) error {
			var subject string
			var first, last time.Time
			var e oracle.Episode
			err := rows.Scan(&subject, &first, &last, &e.Count)
			e.First, e.Last = first.UnixMicro(), last.UnixMicro()
			out[subject] = append(out[subject], e)
			return err
		})
	return out
}

func compareEpisodes(t *testing.T, got, want map[string][]oracle.Episode) {
	t.Helper()
	for source, episodes := range want {
		if !slices.Equal(got[source], episodes) {
			t.Errorf("%s\n got %v\nwant %v", source, got[source], episodes)
		}
		delete(got, source)
	}
	for source, episodes := range got {
		t.Errorf("%s: %v, the oracle has nothing", source, episodes)
	}
}

// combinedLine takes what the oracle needs from an Apache log line.
var combinedLine = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^\]]+)\]`)

// oracle reads the log by itself and judges every source over the sorted log: subject → episodes.
func (log *realLog) oracle(t *testing.T) map[string][]oracle.Episode {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "logs", log.file))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	events := map[string][]oracle.Event{}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for n := int64(0); lines.Scan(); n++ {
		subject, at := log.read(t, lines.Text())
		if subject != "" {
			events[subject] = append(events[subject], oracle.Event{Time: at.UnixMicro(), Offset: n, Limit: 10})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	out := map[string][]oracle.Episode{}
	for subject, list := range events {
		if e := oracle.Sliding(list, time.Minute.Microseconds(), (24 * time.Hour).Microseconds()); len(e) > 0 {
			out[subject] = e
		}
	}
	return out
}

// read takes a line apart; the subject is empty where a field of the key is missing.
func (log *realLog) read(t *testing.T, line string) (string, time.Time) {
	t.Helper()
	values := map[string]string{}
	var at time.Time
	var err error
	if log.combined {
		m := combinedLine.FindStringSubmatch(line)
		values["ip"] = m[1]
		at, err = time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
	} else {
		var e struct{ TS, IP, User, Session string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		values = map[string]string{"ip": e.IP, "user": e.User, "session": e.Session}
		at, err = time.Parse(time.RFC3339, e.TS)
	}
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, k := range log.key {
		if values[k] == "" {
			return "", at
		}
		if k == "ip" {
			values[k] += "/32" // these logs have no IPv6 address
		}
		parts = append(parts, k+"="+percent(values[k]))
	}
	return strings.Join(parts, "&"), at
}

// percent encodes every byte outside RFC 3986's unreserved set.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; strings.IndexByte("-._~", c) >= 0 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
