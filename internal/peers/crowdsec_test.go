package peers

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// crowdsecRow is one rule of one test: of its own hub, or of a real log.
type crowdsecRow struct {
	set, test, rule string
	kind            string // leaky, or what is no window
	distinct        bool
	capacity        int
	leak            time.Duration // for one event
	strict          bool          // the test names every source that must be flagged
	sources         []string      // ascending
	events          []crowdsecEvent
}

// crowdsecEvent is one event that the row's rule accepts.
type crowdsecEvent struct {
	Seq   int       `json:"seq"`
	Time  time.Time `json:"ts"`
	IP    string    `json:"ip"`
	Rules map[string]struct {
		Key      string `json:"key"`
		Distinct string `json:"distinct"`
	} `json:"rules"`
}

// document is the row's rule as weir counts it.
func (r *crowdsecRow) document() rules.Document {
	d := rules.Document{
		ID: "row", Algorithm: rules.AlgorithmLeakyBucket, Limit: r.capacity, Window: time.Duration(r.capacity) * r.leak,
	}
	if r.distinct {
		d.Count.Distinct = &traffic.KeyField{Field: traffic.FieldDevice}
	}
	return d
}

// excused is why a row is not asserted.
func (r *crowdsecRow) excused() string {
	switch {
	case r.kind != "leaky":
		return "a " + r.kind + " fires at every event: no rate, and no window"
	case !r.strict:
		return "the peer's test does not name the sources that it expects"
	}
	return ""
}

// flagged are the sources over the limit, ascending: each event in the order of seq straight into its key's window.
func (r *crowdsecRow) flagged(t *testing.T, empty maker) []string {
	windows, over := map[string]window{}, map[string]bool{}
	last := 0
	for _, e := range r.events {
		if e.Seq <= last {
			t.Fatalf("%s: seq %d after %d", r.test, e.Seq, last)
		}
		last = e.Seq
		at := e.Rules[r.rule]
		w, ok := windows[at.Key]
		if !ok {
			w = empty(r.document())
			windows[at.Key] = w
		}
		if isOver, _ := w.add(e.Time.UnixMicro(), 1, at.Distinct); isOver {
			over[e.IP] = true
		}
	}
	return slices.Sorted(maps.Keys(over))
}

// crowdsecFiles unpacks the archive: path → content, what is compressed within it unpacked too.
func crowdsecFiles(t *testing.T) map[string][]byte {
	t.Helper()
	archive, err := os.ReadFile("testdata/crowdsec.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(unzipped(t, archive))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name, packed := strings.CutSuffix(h.Name, ".gz")
		if packed {
			content = unzipped(t, content)
		}
		files[name] = content
	}
}

func unzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// crowdsecEvents are the events of a file by the rules that accept them.
func crowdsecEvents(t *testing.T, text []byte) map[string][]crowdsecEvent {
	t.Helper()
	byRule := map[string][]crowdsecEvent{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e crowdsecEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		for rule := range e.Rules {
			byRule[rule] = append(byRule[rule], e)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return byRule
}

// crowdsecCases are the rows of the index: the peer's own tests.
func crowdsecCases(t *testing.T, files map[string][]byte) (rows []*crowdsecRow) {
	t.Helper()
	r := csv.NewReader(bytes.NewReader(files["crowdsec-cases/index.tsv"]))
	r.Comma = '\t'
	table, err := r.ReadAll()
	if err != nil || len(table) == 0 {
		t.Fatalf("index.tsv: %d rows, %v", len(table), err)
	}
	for _, cells := range table[1:] {
		cell := func(name string) string { return cells[slices.Index(table[0], name)] }
		row := &crowdsecRow{
			set: "crowdsec-cases", test: cell("test"), rule: cell("rule"), kind: cell("type"), distinct: cell("distinct") != "", strict: cell("strict") == "True",
		}
		if cell("sources") != "" {
			row.sources = slices.Sorted(slices.Values(strings.Split(cell("sources"), ",")))
		}
		row.rate(t, cell("capacity"), cell("leakspeed"))
		row.events = crowdsecEvents(t, files[path.Join("crowdsec-cases", row.test, "events.jsonl")])[row.rule]
		if want, err := strconv.Atoi(cell("accepted")); err != nil || len(row.events) != want {
			t.Errorf("%s %s: read %d events, the index says %s", row.test, row.rule, len(row.events), cell("accepted"))
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *crowdsecRow) rate(t *testing.T, capacity, leak string) {
	t.Helper()
	var err, err2 error
	r.capacity, err = strconv.Atoi(capacity)
	if leak != "" {
		r.leak, err2 = time.ParseDuration(leak)
	}
	if err != nil || err2 != nil {
		t.Fatalf("%s %s: %v, %v", r.test, r.rule, err, err2)
	}
}

// crowdsecLogs are the twelve rules over each of the real logs.
func crowdsecLogs(t *testing.T, files map[string][]byte) (rows []*crowdsecRow) {
	t.Helper()
	for _, log := range []string{"elastic-apache", "farmwork", "saunathinker", "seart-api"} {
		var c struct {
			Rules []struct {
				Name, Type, Distinct, Leakspeed string
				Capacity                        int
				Accepted                        int `json:"accepted_events"`
			}
			Overflows []struct {
				Rule    string
				Sources []struct{ Value string }
			} `json:"expected_overflows"`
		}
		if err := json.Unmarshal(files[path.Join("crowdsec-real", log, "case.json")], &c); err != nil {
			t.Fatal(err)
		}
		events := crowdsecEvents(t, files[path.Join("crowdsec-real", log, "events.jsonl")])
		for _, rule := range c.Rules {
			row := &crowdsecRow{set: "crowdsec-real", test: log, rule: rule.Name, kind: rule.Type, distinct: rule.Distinct != "", strict: true}
			row.rate(t, strconv.Itoa(rule.Capacity), rule.Leakspeed)
			for _, o := range c.Overflows {
				for _, s := range o.Sources {
					if o.Rule == rule.Name && !slices.Contains(row.sources, s.Value) {
						row.sources = append(row.sources, s.Value)
					}
				}
			}
			slices.Sort(row.sources)
			row.events = events[rule.Name]
			if len(row.events) != rule.Accepted {
				t.Errorf("%s %s: read %d events, the case says %d", log, rule.Name, len(row.events), rule.Accepted)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// TestCrowdsec flags the sources that CrowdSec flags, with its own tests and on real logs.
func TestCrowdsec(t *testing.T) {
	files := crowdsecFiles(t)
	rows := append(crowdsecCases(t, files), crowdsecLogs(t, files)...)
	for who, empty := range makers() {
		t.Run(who, func(t *testing.T) {
			asserted, distinct, flagged := map[string]int{}, 0, 0
			for _, r := range rows {
				if r.excused() != "" {
					continue
				}
				asserted[r.set]++
				got := r.flagged(t, empty)
				if !slices.Equal(got, r.sources) {
					t.Errorf("%s %s: flagged %v, want %v", r.test, r.rule, got, r.sources)
				}
				flagged += len(got)
				if r.distinct && r.set == "crowdsec-cases" {
					distinct++
				}
			}
			if got := fmt.Sprint(asserted, distinct); got != "map[crowdsec-cases:145 crowdsec-real:48] 56" || flagged < 150 {
				t.Errorf("asserted %s with %d sources, want all 145 (56 of distinct values) and 48", got, flagged)
			}
		})
	}
}
