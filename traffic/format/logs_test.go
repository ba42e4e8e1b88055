package format

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// logPairs finds raw logs and, beside each, the same log as one JSON event a line. WEIR_LOGS may name a folder with
// more of them, gzipped: its apache_logs.gz and access.txt.gz files.
func logPairs(t *testing.T) map[string]string {
	t.Helper()
	pairs := make(map[string]string)
	raw, err := filepath.Glob("testdata/logs/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range raw {
		pairs[name] = strings.TrimSuffix(name, ".txt") + ".jsonl"
	}
	if len(pairs) != 2 {
		t.Fatalf("testdata/logs has %d logs, want 2", len(pairs))
	}
	if dir := os.Getenv("WEIR_LOGS"); dir != "" {
		for _, pattern := range []string{"*/apache_logs.gz", "*/access.txt.gz"} {
			more, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(more) == 0 {
				t.Fatalf("WEIR_LOGS=%s: no %s (%v)", dir, pattern, err)
			}
			for _, name := range more {
				pairs[name] = filepath.Join(filepath.Dir(name), "events.jsonl.gz")
			}
		}
	}
	return pairs
}

func logLines(t *testing.T, name string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	var lines [][]byte
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		lines = append(lines, bytes.Clone(s.Bytes()))
	}
	return lines
}

// TestRealLogs reads each line of real logs as combined, compares it with the event that others have made of it, and
// reads that event by a field map to the same request.
func TestRealLogs(t *testing.T) {
	combined := mustDecoder(t, Combined, nil)
	mapped := mustDecoder(t, JSON, map[string]string{"time": "ts", "user_agent": "ua"})
	for rawName, eventsName := range logPairs(t) {
		raw, events := logLines(t, rawName), logLines(t, eventsName)
		if len(raw) != len(events) || len(raw) == 0 {
			t.Fatalf("%s has %d lines, %s has %d", rawName, len(raw), eventsName, len(events))
		}
		for i := range raw {
			var fromLine, fromEvent traffic.Request
			if err := combined.Decode(raw[i], &fromLine); err != nil {
				t.Fatalf("%s:%d: %v", rawName, i+1, err)
			}
			if err := mapped.Decode(events[i], &fromEvent); err != nil {
				t.Fatalf("%s:%d: %v", eventsName, i+1, err)
			}
			compareWithEvent(t, events[i], &fromLine)
			compareWithEvent(t, events[i], &fromEvent)
		}
		t.Logf("%s: %d lines", rawName, len(raw))
	}
}

func compareWithEvent(t *testing.T, event []byte, r *traffic.Request) {
	t.Helper()
	var want struct {
		TS     traffic.Time
		IP     string
		Method string
		Path   string
		Status int
		Bytes  int64
		UA     string
	}
	if err := json.Unmarshal(event, &want); err != nil {
		t.Fatal(err)
	}
	want.Path, _, _ = strings.Cut(want.Path, "?")
	if !r.HasTime || r.Time != want.TS || r.IP != want.IP || r.Method != want.Method || r.Path != want.Path ||
		r.Status != want.Status || r.Bytes != want.Bytes || r.UserAgent != want.UA {
		t.Fatalf("%s\ngot %+v", event, r)
	}
}
