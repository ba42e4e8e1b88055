package order

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/traffic"
)

// realLog is a log that nobody on this project wrote: who did what, in the order of the file.
type realLog struct {
	name    string
	sources int
	lines   []line
}

type line struct {
	at      traffic.Time
	source  int    // who: an address, or a user with a session
	value   string // what: a path, or the name of a call
	units   int64  // a small number that the line decides
	arrival traffic.Time
	part    int // source partition
}

// combinedLine takes time, client and request from an Apache log line.
var combinedLine = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^\]]+)\] "\S+ (\S*)`)

func readLogs(t *testing.T) []*realLog {
	t.Helper()
	folder := filepath.Join("..", "acceptance", "testdata", "logs")
	names, err := filepath.Glob(filepath.Join(folder, "*.gz"))
	if err != nil || len(names) != 5 {
		t.Fatalf("%d logs in %s (%v), want 5", len(names), folder, err)
	}
	var out []*realLog
	for _, name := range names {
		out = append(out, readLog(t, name))
	}
	return out
}

func readLog(t *testing.T, name string) *realLog {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	log := &realLog{name: strings.SplitN(filepath.Base(name), ".", 2)[0]}
	known := map[string]int{}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		who, what, at := readLine(t, lines.Text())
		if who == "" {
			continue
		}
		source, ok := known[who]
		if !ok {
			source = len(known)
			known[who] = source
		}
		log.lines = append(log.lines, line{at: at, source: source, value: what, units: 1 + int64(len(what)%3)})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if log.sources = len(known); len(log.lines) < 1000 {
		t.Fatalf("%s: only %d lines", name, len(log.lines))
	}
	return log
}

// readLine takes a line of any of the logs apart. Who is empty where it does not say.
func readLine(t *testing.T, text string) (who, what string, at traffic.Time) {
	t.Helper()
	when, layout := "", time.RFC3339
	if m := combinedLine.FindStringSubmatch(text); m != nil {
		who, when, what, layout = m[1], m[2], m[3], "02/Jan/2006:15:04:05 -0700"
	} else {
		var e struct{ TS, IP, User, Session, Method, Path string }
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		who, when, what = e.IP, e.TS, e.Method+" "+e.Path
		if e.Session != "" || e.User != "" || strings.Contains(e.Path, ".amazonaws.com") { // CloudTrail: both, or nobody
			if who = e.User + " " + e.Session; e.User == "" || e.Session == "" {
				who = ""
			}
		}
	}
	parsed, err := time.Parse(layout, when)
	if err != nil {
		t.Fatal(err)
	}
	return who, what, traffic.Time(parsed.UnixMicro())
}

// reading is an order in which a log comes to the partition.
type reading struct {
	name     string
	parts    int
	lateness traffic.Time
	lines    []line
}

// inOrder reads the log sorted by time.
func (log *realLog) inOrder() reading {
	sorted := slices.SortedStableFunc(slices.Values(log.lines), func(a, b line) int { return cmp.Compare(a.at, b.at) })
	return reading{"in order", 1, minute, sorted}
}

// inFileOrder reads the log as it is, with a lateness that just covers its disorder.
func (log *realLog) inFileOrder() reading {
	newest, most := log.lines[0].at, traffic.Time(0)
	for _, l := range log.lines {
		newest = max(newest, l.at)
		most = max(most, newest-l.at)
	}
	return reading{"in file order", 1, most, log.lines}
}

// shuffled delays each line by less than a lateness of 15 minutes; every second time over eight source partitions.
func (log *realLog) shuffled(seed uint64) reading {
	const lateness = 15 * minute
	rnd := rand.New(rand.NewPCG(seed, 9))
	out := reading{"shuffled", 1 + 7*int(seed%2), lateness, slices.Clone(log.lines)}
	for i := range out.lines {
		l := &out.lines[i]
		l.arrival, l.part = l.at+traffic.Time(rnd.Int64N(int64(lateness))), rnd.IntN(out.parts)
	}
	slices.SortStableFunc(out.lines, func(a, b line) int { return cmp.Compare(a.arrival, b.arrival) })
	return out
}

// steps are the lines by source, as the oracle reads them.
func (log *realLog) steps() [][]oracle.Step {
	out := make([][]oracle.Step, log.sources)
	for _, l := range log.lines {
		out[l.source] = append(out[l.source], oracle.Step{Time: int64(l.at), Units: l.units, Value: l.value})
	}
	return out
}
