package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
)

// replayBed is a migrated installation; a replay needs no Redis.
func replayBed(t *testing.T) *bed {
	b := newBed(t, testbed.RedisServer{})
	b.ok("migrate")
	return b
}

// small is a log of six requests of one client within a second, and one of another.
func small() string {
	var b strings.Builder
	for i := range 6 {
		fmt.Fprintf(&b, "198.51.100.7 - - [17/May/2015:10:05:0%d +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"curl\"\n", i)
	}
	b.WriteString("198.51.100.8 - - [17/May/2015:10:05:07 +0000] \"GET /b HTTP/1.1\" 200 12 \"-\" \"curl\"\n")
	return b.String()
}

const smallRule = "id: small\nowner: platform\nmatch: {}\nkey: [ip]\nlimit: 3\nwindow: 60s\nblock: {key: [ip], ttl: 10m}\n"

func TestReplayTwiceUnderOneName(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	file, rule := writeFile(t, "small.log", small()), writeFile(t, "small.yaml", smallRule)
	args := []string{"ingest", file, "--format", "combined", "--replay", "again", "--rules", rule}
	first := decode[stream.Summary](b, args...)
	if first.Rules[0].Sources != 1 || first.Rules[0].Events != 3 || first.Rules[0].Matched != 7 {
		t.Errorf("first: %+v", first.Rules)
	}
	o := b.weir(args...)
	if o.code != exitError || !strings.Contains(o.stderr, "replay again exists since") || !strings.Contains(o.stderr, "--on-exists replace") {
		t.Errorf("the second run: exit code %d, %s", o.code, o.stderr)
	}
	again := decode[stream.Summary](b, append(args, "--on-exists", "replace", "--partitions", "3")...)
	if !reflect.DeepEqual(again.Rules, first.Rules) || again.Partitions != 3 {
		t.Errorf("replaced: %+v of %d partitions, want %+v", again.Rules, again.Partitions, first.Rules)
	}
	if hits := decode[[]map[string]any](b, "history", "hits", "--replay", "again"); len(hits) != 1 {
		t.Errorf("history has %d hits after the replacement, want 1", len(hits))
	}
	if hits := decode[[]map[string]any](b, "history", "hits"); len(hits) != 0 {
		t.Errorf("the live stream has %d hits of a replay", len(hits))
	}
}

// A promoted rule that is replayed still blocks nobody, and without --rules the live ones are taken.
func TestReplayOfLiveRulesBlocksNobody(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	file := writeFile(t, "small.log", small())
	o := b.weir("ingest", file, "--format", "combined", "--replay", "none")
	if o.code != exitError || !strings.Contains(o.stderr, "there are no rules to replay") {
		t.Errorf("without any rule: exit code %d, %s", o.code, o.stderr)
	}
	b.ok("rules", "apply", "-f", writeFile(t, "small.yaml", smallRule))
	b.ok("rules", "promote", "small", "--reason", "seen enough", "--yes", "--override", "tests")
	s := decode[stream.Summary](b, "ingest", file, "--format", "combined", "--replay", "live-rules")
	if len(s.Rules) != 1 || s.Rules[0].Sources != 1 {
		t.Errorf("summary %+v", s.Rules)
	}
	if blocks := decode[[]any](b, "blocks", "list"); len(blocks) != 0 {
		t.Errorf("a replay has made blocks: %v", blocks)
	}
	if d := decode[[]any](b, "history", "decisions", "--replay", "live-rules"); len(d) != 0 {
		t.Errorf("a replay has made decisions: %v", d)
	}
}

func TestReplayRefusesWhatCannotBeBelieved(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	text := small() + "no line of a log\n\n" +
		`198.51.100.9 - - [17/May/2015:12:30:00 +0000] "GET /ahead HTTP/1.1" 200 1 "-" "-"` + "\n" +
		`198.51.100.9 - - [17/May/2015:10:05:08 +0000] "GET /a HTTP/1.1" 200 1 "-" "-"` + "\n" +
		`198.51.100.9 - - [17/May/2215:10:05:09 +0000] "GET /future HTTP/1.1" 200 1 "-" "-"` + "\n"
	s := decode[stream.Summary](b, "ingest", writeFile(t, "odd.log", text), "--format", "combined", "--replay", "odd",
		"--rules", writeFile(t, "small.yaml", smallRule))
	want := map[string]int64{"malformed": 1, "empty": 1, "ahead": 1, "future": 1}
	if !maps.Equal(s.Dead, want) || s.Events != 8 || s.Lines != 12 {
		t.Errorf("dead letters %v of %d lines with %d events, want %v of 12 with 8", s.Dead, s.Lines, s.Events, want)
	}
	if len(s.Examples) != 4 || !strings.Contains(strings.Join(s.Examples, "\n"), "odd.log:8: ") {
		t.Errorf("examples %q name no line 8", s.Examples)
	}
	if s.Rules[0].Behind != 0 {
		t.Errorf("%d events are late: one wrong clock has made them so", s.Rules[0].Behind)
	}
}

func TestReplayInTheWrongFormatKeepsItsName(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	file := writeFile(t, "small.log", strings.Repeat(small(), 4))
	args := []string{"ingest", file, "--replay", "n", "--rules", writeFile(t, "small.yaml", smallRule)}
	o := b.weir(append(args, "--format", "json")...)
	if o.code != exitError || !strings.Contains(o.stderr, file+":1: not in format \"json\"") || !strings.Contains(o.stderr, "weir, json, combined") {
		t.Errorf("exit code %d, %s", o.code, o.stderr)
	}
	b.ok(append(args, "--format", "combined")...)
}

// Whatever bytes a client sends, they come through to history, or become a dead letter.
func TestReplayOfHostileStrings(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	huge := strings.Repeat("A", 900_000)
	var text strings.Builder
	for i, device := range []string{"nul\\u0000byte", "bad\xff\xfeutf8", "\\ud800", huge, "'; DROP TABLE hits; --", "\\u202e", "<script>"} {
		for n := range 5 {
			fmt.Fprintf(&text, `{"v":1,"time":"2024-05-01T10:%02d:%02dZ","ip":"198.51.100.7","device":"%s","user":"%s","user_agent":"%s","path":"/%s"}`+"\n",
				i, n, device, device, device, device)
		}
	}
	rule := "id: small\nowner: platform\nmatch: {}\nkey: [device]\nlimit: 3\nwindow: 60s\n"
	s := decode[stream.Summary](b, "ingest", writeFile(t, "hostile.jsonl", text.String()), "--format", "weir", "--replay", "h",
		"--rules", writeFile(t, "small.yaml", rule))
	var dead int64
	for _, n := range s.Dead {
		dead += n
	}
	if s.Events+dead < 35 || s.Lines != 35 {
		t.Errorf("%d events and %d dead letters %v of %d lines", s.Events, dead, s.Dead, s.Lines)
	}
	if got := s.Rules[0].Sources; got < 6 {
		t.Errorf("%d hostile sources were found, want 6 or more", got)
	}
	if shown := b.ok("history", "hits", "--replay", "h"); !utf8.ValidString(shown) || strings.ContainsAny(shown, "\x00\x1b\u202e") {
		t.Errorf("the table carries raw bytes: %q", shown)
	}
}

func gzippedText(t *testing.T, text string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

func TestReplayFromStandardInputAndGzip(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	rule := writeFile(t, "small.yaml", smallRule)
	for name, stdin := range map[string]string{"plain": small(), "gzip": gzippedText(t, small())} {
		o := b.weirWith(stdin, "ingest", "-", "--format", "combined", "--replay", name, "--rules", rule)
		if o.code != exitOK || !strings.Contains(o.stdout, "7 events of 7 lines") {
			t.Errorf("%s: exit code %d\n%s%s", name, o.code, o.stdout, o.stderr)
		}
	}
}

// A file that was cut off is told loudly, with what there was of it in the replay, and so are the files behind it. Only where nothing at
// all could be read is that a failure.
func TestReplayOfAFileThatBreaksOff(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	rule, good := writeFile(t, "small.yaml", smallRule), writeFile(t, "small.log.zst", string(z.EncodeAll([]byte(small()), nil)))
	packed := gzippedText(t, small())
	cut := writeFile(t, "cut.gz", packed[:len(packed)-2])
	place := cut + ":8: truncated: unexpected EOF"

	o := b.weir("ingest", cut, good, "--format", "combined", "--replay", "cut", "--rules", rule)
	if o.code != exitOK || !strings.Contains(o.stdout, "14 events of 14 lines") || !strings.Contains(o.stdout, "dead letters, truncated: 1\n  truncated: "+cut[:8]) ||
		!strings.Contains(o.stderr, "weir: not read from there on: "+place) {
		t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	s := decode[stream.Summary](b, "ingest", cut, "--format", "combined", "--replay", "alone", "--rules", rule)
	if len(s.Broken) != 1 || s.Broken[0].String() != place || s.Dead["truncated"] != 1 || s.Events != 7 || !s.Complete {
		t.Errorf("summary %+v", s)
	}
	torn := writeFile(t, "torn.gz", packed[:5])
	o = b.weir("ingest", torn, "--format", "combined", "--replay", "torn", "--rules", rule)
	if o.code != exitError || !strings.Contains(o.stderr, torn+":1: truncated: not readable as gzip: unexpected EOF") || !strings.Contains(o.stderr, "not one line could be read") {
		t.Errorf("nothing but a header: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// Prometheus, which cannot know that a replay is one, must not take it for a live stream that is behind.
func TestMetricsOfAReplayAreNotOfTheLiveStream(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	address := fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(t))
	p := b.startAt(address, "ingest", writeFile(t, "small.log", small()), "--format", "combined", "--replay", "past", "--speed", "0.1",
		"--rules", writeFile(t, "small.yaml", smallRule))
	testbed.Eventually(t, 30*time.Second, func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		page, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		got, err := series(b.flag("--namespace"), "replay", string(page))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			`weir_stage_lag_records{partition="0",stage="route"}`, `weir_stage_lag_seconds{partition="0",stage="detect"}`,
			`weir_stage_partition_halted{partition="0",stage="record"}`, `weir_rule_uncounted_events_total{reason="late",rule="small",stage="detect"}`,
			`weir_route_rule_events_total{outcome="matched",rule="small"}`, `weir_detect_hits_total{kind="hit",phase="open",rule="small"}`,
			`weir_dead_letters_total{reason="malformed",stage="route"}`, `weir_history_rows_recorded_total{table="hits"}`,
		} {
			if _, ok := got[name]; !ok {
				err = errors.Join(err, fmt.Errorf("no series %s", name))
			}
		}
		return err
	})
	p.stop()
	p.awaitEnd()
}

func TestReplayStoppedByItsUserSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	p := b.start("ingest", writeFile(t, "small.log", small()), "--format", "combined", "--replay", "slow", "--speed", "0.02",
		"--rules", writeFile(t, "small.yaml", smallRule))
	requests := b.kafka().Log(ingest.Replay("slow").Topics(b.flag("--namespace")).Requests)
	testbed.Eventually(t, 30*time.Second, func() error {
		bounds, err := requests.Bounds(t.Context(), []int{0})
		if err == nil && bounds[0].End == 0 {
			err = errors.New("nothing has been sent yet")
		}
		return err
	})
	p.stop()
	p.awaitEnd()
	if p.code != exitError || !strings.Contains(p.log.String(), "stopped: context canceled; ") || !strings.Contains(p.log.String(), "acknowledged by Kafka") {
		t.Errorf("exit code %d\n%s", p.code, p.log)
	}
}

// A replay that ends before it has sent anything leaves nothing behind, and above all not its name. Here a port that is
// taken ends it, after stream, topics and commits were made.
func TestReplayThatSentNothingLeavesItsNameFree(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	args := []string{"ingest", writeFile(t, "small.log", small()), "--format", "combined", "--replay", "early",
		"--rules", writeFile(t, "small.yaml", smallRule)}
	o := b.weir(append(args, "--http-listen", taken.Addr().String())...)
	if o.code != exitError || !strings.Contains(o.stderr, "http.listen: cannot listen on "+taken.Addr().String()) {
		t.Errorf("exit code %d, %s", o.code, o.stderr)
	}
	if replays := decode[[]map[string]any](b, "history", "replays"); len(replays) != 0 {
		t.Errorf("left behind: %v", replays)
	}
	testbed.Eventually(t, 30*time.Second, func() error { // a broker removes a topic after it has answered
		if there, err := b.kafka().TopicExists(t.Context(), ingest.Replay("early").Topics(b.flag("--namespace")).Keyed); err != nil || there {
			return fmt.Errorf("its topics exist: %v, %v", there, err)
		}
		return nil
	})
	b.ok(args...)
}
