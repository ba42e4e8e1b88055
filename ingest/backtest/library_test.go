package backtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// Rules of the library that count by address leave ordinary people alone, and find an abuser among them: their match is widened
// to all requests of a log in which nobody is abusive, whatever their path, and then somebody is planted in it.
func TestTheLibraryLeavesOrdinaryTrafficAlone(t *testing.T) {
	t.Parallel()
	o := ofLogs()
	for _, d := range library(t) {
		if len(d.Key) == 1 && d.Key[0].Field == traffic.FieldIP {
			d.Match = rules.Match{Statuses: d.Match.Statuses}
			if d.Block != nil {
				d.Block.Match = nil
			}
			v, _ := rules.NextVersion(nil, d)
			o.Rules = append(o.Rules, v)
		}
	}
	if len(o.Rules) < 6 {
		t.Fatalf("%d rules by address", len(o.Rules))
	}
	log := contentOf(t, filepath.Join("..", "..", "internal", "acceptance", "testdata", "logs", "seart-api-nginx.jsonl.gz"))
	ordinary := run1(t, o, inMemory("log", log))
	for i := range ordinary.Rules {
		r := &ordinary.Rules[i]
		if r.Sources != 0 || r.Matched == 0 && len(o.Rules[i].Match.Statuses) == 0 {
			t.Errorf("%s: %d sources of ordinary people among %d events: %+v", r.Rule, r.Sources, r.Matched, r.Top)
		}
	}
	for i := range o.Rules {
		one := o
		one.Rules = o.Rules[i : i+1]
		r := &run1(t, one, inMemory("log", append(bytes.Clone(log), planted(&one.Rules[0], "203.0.113.66")...))).Rules[0]
		if r.Sources != 1 || r.Top[0].Subject != "ip=203.0.113.66%2F32" {
			t.Errorf("%s: %d sources, with somebody planted: %+v", r.Rule, r.Sources, r.Top)
		}
	}
}

// library are the rules of examples/rules.
func library(t *testing.T) []rules.Document {
	t.Helper()
	conditions, err := condition.New()
	if err != nil {
		t.Fatal(err)
	}
	env := rules.Environment{Identity: traffic.DefaultIdentityMap(), Conditions: conditions}
	docs, err := rules.LoadDir(os.DirFS(filepath.Join("..", "..", "examples", "rules")), "examples/rules", env)
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// ofLogs are the options for logs with the names of the committed ones.
func ofLogs() Options {
	return Options{Format: "json", Fields: map[string]string{"time": "ts", "user_agent": "ua"}, Identity: traffic.DefaultIdentityMap(), Reorder: time.Minute}
}

// path-probing as it stands finds the sources that a peer's scenario of the same name finds, in the peer's own tests and in a
// log of a real server, and nobody in logs in which that peer finds nobody. What the peer found is in its files, not in ours.
func TestPathProbingFindsWhatAPeerFinds(t *testing.T) {
	t.Parallel()
	const scenario = "crowdsecurity/http-probing"
	docs := library(t)
	at := slices.IndexFunc(docs, func(d rules.Document) bool { return d.ID == "path-probing" })
	if at < 0 {
		t.Fatal("there is no path-probing")
	}
	v, _ := rules.NextVersion(nil, docs[at])
	o := ofLogs()
	o.Rules = []rules.Version{v}
	cases, found, wanted, ordinary, others := 0, 0, 0, 0, 0
	for name, c := range peerCases(t) {
		var want []string
		asked := false
		for _, r := range c.Rules {
			asked = asked || r.Name == scenario
		}
		for _, overflow := range c.Overflows {
			for _, s := range overflow.Sources {
				if overflow.Rule == scenario {
					want = append(want, "ip="+s.Value+"%2F32")
				}
			}
		}
		if !asked {
			continue
		}
		cases++
		r := run1(t, o, inMemory("events", c.events)).Rules[0]
		var got []string
		for i := range r.Top {
			got = append(got, string(r.Top[i].Subject))
		}
		if r.Sources != int64(len(got)) {
			t.Fatalf("%s: %d sources, of which %d are named", name, r.Sources, len(got))
		}
		slices.Sort(want)
		for _, s := range slices.Compact(want) {
			wanted++
			if slices.Contains(got, s) {
				found++
			} else {
				t.Logf("%s: %s is not found", name, s)
			}
		}
		for _, s := range got {
			if !slices.Contains(want, s) {
				others++
				t.Errorf("%s: %s is found, and not by the peer", name, s)
			}
		}
		if len(want) == 0 && strings.HasPrefix(name, "crowdsec-real/") {
			ordinary += bytes.Count(c.events, []byte("{\"seq\""))
		}
	}
	if cases < 8 || wanted < 6 || found*100 < wanted*95 || ordinary != 16_330 || others != 0 {
		t.Errorf("%d cases: %d of %d sources found, and %d others; %d ordinary requests", cases, found, wanted, others, ordinary)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "rules", "path-probing.yaml"))
	if err != nil || !strings.Contains(string(text), "Of the six sources") || wanted != 6 || found != 6 || !strings.Contains(string(text), "16,330 requests") {
		t.Errorf("the numbers of the example are not %d of %d, and %d requests: %v", found, wanted, ordinary, err)
	}
}

// peerCase is what a peer found in some events.
type peerCase struct {
	Rules     []struct{ Name string }
	Overflows []struct {
		Rule    string
		Sources []struct{ Value string }
	} `json:"expected_overflows"`
	events []byte
}

// peerCases are those of the peer's archive, by folder.
func peerCases(t *testing.T) map[string]*peerCase {
	t.Helper()
	out := map[string]*peerCase{}
	archive := contentOf(t, filepath.Join("..", "..", "internal", "peers", "testdata", "crowdsec.tar.gz"))
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		var content io.Reader = r
		if strings.HasSuffix(h.Name, ".gz") {
			if content, err = gzip.NewReader(r); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(h.Name)
		c := out[folder]
		if c == nil {
			c = &peerCase{}
			out[folder] = c
		}
		switch strings.TrimSuffix(path.Base(h.Name), ".gz") {
		case "case.json":
			if err := json.Unmarshal(text, c); err != nil {
				t.Fatalf("%s: %v", h.Name, err)
			}
		case "events.jsonl":
			c.events = text
		}
	}
}

// planted are events that are one too many for a rule, within half of its window, behind the end of the log.
func planted(v *rules.Version, ip string) []byte {
	var b strings.Builder
	status := "200"
	if len(v.Match.Statuses) > 0 {
		status = v.Match.Statuses[0]
	}
	begin := time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range v.Limit + 1 {
		at := begin.Add(time.Duration(i) * v.Window / 2 / time.Duration(v.Limit+1))
		fmt.Fprintf(&b, `{"ts":%q,"ip":%q,"method":"POST","path":"/%d","status":%s,"user":"u%d","device":"d%d"}`+"\n", at.Format(time.RFC3339Nano), ip, i, status, i, i)
	}
	return []byte(b.String())
}

func contentOf(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unzip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
