package report

import (
	"bytes"
	"encoding/csv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest/backtest"
)

// Each form of a report is as recorded: WEIR_TEST_UPDATE=1 go test ./cmd/weir/internal/report writes it anew.
func TestFormsAreAsRecorded(t *testing.T) {
	window := sweep(t)
	window.Sweep = backtest.SweepWindow
	for i, value := range []string{"window=1m", "window=5m", "window=1h"} {
		window.Result.Rules[i].Swept = value
	}
	window.Result.Rules[2].Block, window.Result.Rules[2].First, window.Result.Rules[2].Last = nil, 0, 0
	quiet := scene(t)
	quiet.Result = &backtest.Result{Lines: 3, Events: 3, First: quiet.Result.First, Last: quiet.Result.Last, Rules: quiet.Result.Rules[2:]}
	nothing := scene(t)
	nothing.Result = &backtest.Result{Lines: 3, Refused: map[string]int64{"malformed": 3}, Examples: []string{"stdin:1: malformed: " + strings.Repeat("x", 200)}, Rules: nothing.Result.Rules[2:]}
	for name, r := range map[string]*Report{"nothing": nothing, "rules": scene(t), "limits": sweep(t), "windows": window, "quiet": quiet} {
		for form, write := range map[string]func(*terminal.Output) error{
			"txt": r.Table, "json": r.JSON, "csv": r.CSV,
		} {
			var out, said bytes.Buffer
			o := &terminal.Output{Stdout: &out, Stderr: &said, Format: map[string]string{"txt": "table", "json": "json"}[form]}
			if err := write(o); err != nil {
				t.Fatal(err)
			}
			recorded(t, name+"."+form, out.Bytes())
			if form == "csv" {
				recorded(t, name+".csv.stderr", said.Bytes())
			} else if said.Len() > 0 {
				t.Errorf("%s as %s says %s", name, form, said.String())
			}
		}
	}
}

func recorded(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("WEIR_TEST_UPDATE") != "" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\n%s", file, got)
	}
}

// Nothing that a client has sent moves the cursor of the one who reads the table.
func TestTableIsSafeForTerminals(t *testing.T) {
	var out bytes.Buffer
	if err := scene(t).Table(&terminal.Output{Stdout: &out, Format: "table"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range strings.ReplaceAll(out.String(), "\n", "") {
		if !unicode.IsPrint(c) {
			t.Errorf("the table has %U:\n%s", c, out.String())
		}
	}
}

// A spreadsheet takes what begins with = + - @, a tab or a line break for a formula. No cell begins so, whatever a client is called.
func TestNoCellIsAFormula(t *testing.T) {
	for _, r := range []*Report{scene(t), sweep(t)} {
		var out bytes.Buffer
		if err := r.CSV(&terminal.Output{Stdout: &out, Stderr: io.Discard}); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil || len(rows) < 4 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for _, row := range rows {
			for _, cell := range row {
				if strings.IndexFunc(cell, func(c rune) bool { return c > unicode.MaxASCII || !unicode.IsPrint(c) }) >= 0 || strings.ContainsAny(cell, "\"';,\\") {
					t.Errorf("%q has what CSV readers differ about", cell)
				}
				if cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) {
					t.Errorf("%q may be a formula", cell)
				}
			}
		}
	}
}

func TestLimited(t *testing.T) {
	const head = "id: x\nowner: tests\nmatch: {method: [GET, HEAD], path: '/a*'}\nlimit: 3\nwindow: 90s\n"
	for text, want := range map[string]string{
		"key: [device, ip]\n":                     "more than 3 events in 1m30s, by device, ip",
		"key: []\ncount: {sum: attrs.cost}\n":     "more than 3 in the sum of attrs.cost in 1m30s, all together",
		"key: [ip]\ncount: {distinct: api_key}\n": "more than 3 distinct values of api_key in 1m30s, by ip",
	} {
		v := version(t, head+text)
		if got := limited(&v, "3"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := watched(&v.Match); got != "GET or HEAD /a*" {
			t.Errorf("watches %s", got)
		}
	}
	odd := version(t, head+"key: [ip]\n")
	odd.Match.Path, odd.Count.Sum = "/\u202e", "attrs.\u202e"
	if got := watched(&odd.Match) + limited(&odd, "3"); strings.Contains(got, "\u202e") {
		t.Errorf("it turns text around: %q", got)
	}
	for want, lines := range map[string][]line{"5": {{limit: 5}}, "5 or 10": {{limit: 5}, {limit: 10}}, "1, 5 or 10": {{limit: 1}, {limit: 5}, {limit: 10}}} {
		if got := limitsOf(lines); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestEvidence(t *testing.T) {
	for text, want := range map[string]string{`{"method":"GET","path":"/a","status":404}`: "GET /a 404", `{"path":"/a"}`: "/a", `{}`: "", `{`: ""} {
		if got := evidence([]string{text}); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if got := evidence(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestShare(t *testing.T) {
	for of, want := range map[float64]string{0: "0 %", 0.0004: "< 0.1 %", 0.001: "0.1 %", 0.1234: "12.3 %", 0.9999: "> 99.9 %", 1: "100 %"} {
		if got := share(of); got != want {
			t.Errorf("%v: got %s, want %s", of, got, want)
		}
	}
}

// A chart has a line for each limit where it lies, and tells how many sources came as high or higher.
func TestChart(t *testing.T) {
	r := sweep(t)
	c := newChart(&r.Result.Rules[0], []line{{1, 335}, {5, 1}, {20, 0}})
	var got strings.Builder
	for _, row := range c.Rows {
		if row.Limit != "" {
			got.WriteString("-- " + row.Limit + "\n")
			continue
		}
		over := map[bool]string{true: " over"}[row.Over]
		got.WriteString(row.Range + " " + row.Width + " " + row.Share + over + "\n")
	}
	const want = `1 100.0% 100 %
-- limit 1: 335 sources over it
2 80.9% 21.8 % over
3 to 5 45.4% 1.6 % over
-- limit 5: 1 source over it
6 to 8 0 < 0.1 % over
9 to 16 9.8% < 0.1 % over
-- limit 20: 0 sources over it
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if c := newChart(&r.Result.Rules[0], nil); c.Rows[4].Over || c.Rows[1].Above != 335 {
		t.Errorf("without a limit: %+v", c.Rows)
	}
	of := r.Result.Rules[0]
	of.Version.Count.Sum, of.Peaks = "attrs.cost", []backtest.PeakBucket{{From: 0, To: 0}}
	if c := newChart(&of, nil); c.Unit != "sum of attrs.cost within 1m" || c.Rows[0].Width != "0" || c.Rows[0].Share != "0 %" {
		t.Errorf("of no source: %+v", c)
	}
	if newChart(&backtest.RuleResult{}, nil) != nil {
		t.Error("a chart of nothing")
	}
}
