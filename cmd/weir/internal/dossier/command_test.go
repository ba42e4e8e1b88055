package dossier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/traffic"
)

// answer is an installation that has one dossier, and remembers what it was asked.
type answer struct {
	d     *evidence.Dossier
	err   error
	asked evidence.Question
}

var _ Installation = (*answer)(nil)

func (a *answer) Gather(_ context.Context, q evidence.Question) (*evidence.Dossier, error) {
	a.asked = q
	return a.d, a.err
}

func run(t *testing.T, in *answer, format string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	h := &Host{
		Output: &terminal.Output{Stdout: &out, Stderr: &out, Format: format},
		Does:   func(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error { return work },
		Open: func(cmd *cobra.Command, work func(context.Context, Installation) error) error {
			return work(cmd.Context(), in)
		},
	}
	c := Command(h)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetContext(t.Context())
	err := c.Execute()
	return out.String(), err
}

// dossier is one with something in every part, and texts that nobody should have sent.
func dossierOf(naughty string) *evidence.Dossier {
	measured := func(n int64) evidence.Count { return evidence.Count{State: evidence.Measured, Value: n} }
	share := evidence.Share{State: evidence.Measured, Value: 0.5, Part: 1, Whole: 2}
	noon := traffic.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	return &evidence.Dossier{
		Format: 1, Stream: "live", Rule: "flood", Version: 3, Role: evidence.Acting, Since: noon, Until: noon.Add(time.Hour),
		Terms: evidence.Terms{Limit: 5, Window: "1m", Count: "events", Key: "ip", Block: "ttl 15m, extend on-hit", BlockKey: "ip"},
		Observed: evidence.Observed{Minutes: 50, Span: 60, Gaps: []evidence.Gap{{Since: noon, Until: noon.Add(10 * time.Minute), Reason: evidence.GapSilent}},
			Missing: []evidence.Missing{{Reason: evidence.GapSilent, Minutes: 10}}},
		Traffic: evidence.Traffic{All: measured(1000), Matched: measured(400), Counted: measured(400), WithReach: measured(500)},
		Held:    evidence.Held{Requests: measured(120), Sources: measured(2), Refusing: measured(2), Over: measured(3), Episodes: measured(4), ShareOfAll: share, ShareOfMatched: share, ShareOfReach: share},
		KnownGood: evidence.KnownGood{Sources: evidence.Count{State: evidence.NotMeasurable, Reason: "none could be judged"}, Requests: evidence.Count{State: evidence.NotMeasurable},
			Coverage: share, EventCoverage: share},
		Behind:  evidence.Behind{Users: evidence.Crowd{Most: evidence.Count{State: evidence.Bounded, Value: 64, Side: evidence.AtLeast}, Many: measured(1)}, Devices: evidence.Crowd{Most: measured(2), Many: measured(0)}},
		Overlap: evidence.Overlap{Sources: share, Requests: share},
		Ladder: evidence.Ladder{Exact: 128, Steps: []evidence.Step{{Limit: 5, Requests: 120}, {Limit: 7, Requests: 30}, {Limit: 9}, {Limit: 12}},
			Peaks: []evidence.Bucket{{From: 6, To: 6, Sources: 1}, {From: 9, To: 9, Sources: 1}}},
		Top: []evidence.Source{{Subject: traffic.Subject("ip=192.0.2.1%2F32"), Refused: 100, Events: 90, Peak: 9, First: noon, Last: noon, KnownGood: "yes", HeldBy: []string{"other"}, Hit: "0123",
			Samples: []string{`{"time":"2026-11-20T12:00:00Z","before":true,"method":"GET","path":"/on-the-way","user_agent":` + quoted(naughty) + `}`,
				`{"time":"2026-11-20T12:00:01Z","method":"POST","path":` + quoted("/"+naughty) + `,"status":401,"user_agent":` + quoted(naughty) + `}`, "no json " + naughty}}},
		Notes: []string{"a note"},
	}
}

func quoted(text string) string {
	b, _ := json.Marshal(text) // a text is never refused
	return string(b)
}

func TestTable(t *testing.T) {
	t.Parallel()
	out, err := run(t, &answer{d: dossierOf("x\x1b[2J\n\u202e'$(reboot)")}, "table", "flood")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rule flood version 3, acting: more than 5 events in 1m by ip\n", "its block: ip, ttl 15m, extend on-hit\n", "2026-11-20T12:00:00Z to 2026-11-20T13:00:00Z, dossier ",
		"50 min of 1.0 h", "silent 10 min", "would have refused", "50.0 %", "not measurable", "none could be judged", "at least 64", "192.0.2.1", "POST /x", "401", "note: a note",
		"ip=192.0.2.1/32: before the limit: 2026-11-20T12:00:00Z GET /on-the-way",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.ContainsAny(out, "\x1b\u202e") || strings.Contains(out, "no data yet") {
		t.Errorf("unsafe, or without data: %q", out)
	}
	if known := strings.Count(out, "known-good sources held"); known != 1 || strings.Contains(line(out, "known-good sources held"), " 0 ") {
		t.Errorf("what is not measurable is shown as a number: %q", line(out, "known-good sources held"))
	}
	// The ladder ends at the first step that holds nobody.
	for _, want := range []string{"5 2 120", "7 1 30", "9 0 0"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no limit %q in\n%s", want, out)
		}
	}
	if strings.Contains(strings.Join(strings.Fields(out), " "), "12 0 0") {
		t.Errorf("limits beyond that:\n%s", out)
	}
	if out, err = run(t, &answer{d: dossierOf("")}, "table", "flood", "--limits", "4,6"); err != nil || !strings.Contains(out, "below the limit of the version") || !strings.Contains(out, "30 to 120") {
		t.Errorf("%v\n%s", err, out)
	}
}

func line(out, with string) string {
	for l := range strings.SplitSeq(out, "\n") {
		if strings.Contains(l, with) {
			return l
		}
	}
	return ""
}

func TestJSON(t *testing.T) {
	t.Parallel()
	d := dossierOf("<&>")
	out, err := run(t, &answer{d: d}, "json", "flood", "--limits", "8")
	if err != nil {
		t.Fatal(err)
	}
	var got shown
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	if err := json.Compact(&plain, got.Dossier); err != nil {
		t.Fatal(err)
	}
	if evidence.Hash(plain.Bytes()) != got.Hash || len(got.Would) != 1 || got.Would[0].Limit != 8 || got.Next != "" {
		t.Errorf("hash %s of %s, would %+v", got.Hash, plain.Bytes(), got.Would)
	}
	if !strings.Contains(out, `"value": null`) {
		t.Errorf("what is not measurable has a number:\n%s", out)
	}
}

func TestNoDataYet(t *testing.T) {
	t.Parallel()
	none := evidence.Count{State: evidence.NotMeasurable, Reason: "none"}
	for name, c := range map[string]struct {
		edit func(*evidence.Dossier)
		want string
	}{
		"nobody routed":  {func(d *evidence.Dossier) { d.Traffic.All, d.Traffic.Counted, d.Held.Over = none, none, none }, "weir doctor"},
		"nobody counted": {func(d *evidence.Dossier) { d.Traffic.Counted = none }, "weir migrate --record-format 6"},
		"warming":        {func(d *evidence.Dossier) { d.Observed.Minutes = 0 }, "windows are full"},
	} {
		d := dossierOf("")
		c.edit(d)
		out, err := run(t, &answer{d: d}, "table", "flood")
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"flood", "--version", "-1"}, "--version: got -1"},
		{[]string{"flood", "--pending", "--candidate"}, "got two of"},
		{[]string{"flood", "--pending", "--version", "2"}, "got two of"},
		{[]string{"flood", "--since", "yes"}, `--since: got "yes"; allowed`},
		{[]string{"flood", "--until", "9d", "--since", "1d"}, "--since, --until: got"},
		{[]string{"flood", "--since", "101d"}, "at most 100d"},
		{[]string{"flood", "--limits", "-3"}, "--limits: got -3"},
	} {
		_, err := run(t, &answer{d: dossierOf("")}, "table", c.args...)
		var mistake *usage.Error
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
	in := &answer{d: dossierOf("")}
	if _, err := run(t, in, "json", "flood", "--since", "2026-11-01T00:00:00Z", "--until", "2026-11-02T00:00:00Z", "--version", "2", "--candidate"); err != nil {
		t.Fatal(err)
	}
	if q := in.asked; q.Rule != "flood" || q.Version != 2 || q.Role != evidence.Candidate || q.Until.Sub(q.Since) != 24*time.Hour {
		t.Errorf("asked %+v", q)
	}
	if _, err := run(t, in, "json", "flood", "--pending"); err != nil || in.asked.Role != evidence.Pending || in.asked.Until.Sub(in.asked.Since) != 7*24*time.Hour {
		t.Errorf("asked %+v, %v", in.asked, err)
	}
	var mistake *usage.Error
	if _, err := run(t, &answer{err: fmt.Errorf("rule flood: %w: no version is pending", evidence.ErrNoVersion)}, "json", "flood", "--pending"); !errors.As(err, &mistake) {
		t.Errorf("no such version: %v", err)
	}
}
