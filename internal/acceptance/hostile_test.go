package acceptance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// TestHostileEventsEndToEnd sends JSONTestSuite, and NUL, invalid UTF-8 and megabyte strings in every field, through the
// whole stream: what is JSON is found in history, what is not is a dead letter, and nothing stops.
func TestHostileEventsEndToEnd(t *testing.T) {
	t.Parallel()
	in := newInstall(t, [3]int{1, 3, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 0)
	in.Weir("rules", "apply", "-f", in.Write("rules.yaml", `
id: every-device
owner: tests
match: {}
key: [device]
limit: 0
window: 1s
lateness: 1h
`), "--reason", "tests")
	p := in.start("run")
	var records []*kgo.Record
	send := func(value []byte) {
		records = append(records, &kgo.Record{Value: value})
	}
	suite := jsonTestSuite(t)
	now := time.Now().UTC().Format(time.RFC3339Nano)
	accepted, refused := map[string]string{}, 0
	for name, raw := range suite {
		send([]byte(fmt.Sprintf(`{"v":1,"time":%q,"device":%q,"method":"GET","path":"/x","attrs":{"value":%s}}`, now, name, raw)))
		switch name[:2] {
		case "y_":
			accepted[name] = string(raw)
		case "n_":
			refused++
		}
	}
	fields := []string{"id", "ip", "device", "user", "api_key", "session", "method", "host", "path", "route", "user_agent", "plan", "gateway"}
	for _, field := range fields {
		for kind, text := range map[string]string{"nul": `a\u0000b`, "latin": "a\xff\xfeb", "long": strings.Repeat("x", 1_000_000)} {
			marker := "field-" + field + "-" + kind
			device := marker
			if field == "device" {
				send([]byte(fmt.Sprintf(`{"time":%q,"device":"%s","user":%q}`, now, text, marker)))
				continue
			}
			accepted[marker] = ""
			send([]byte(fmt.Sprintf(`{"time":%q,"device":%q,"%s":"%s"}`, now, device, field, text)))
		}
	}
	send(nil)
	send([]byte(strings.Repeat(" ", 1<<20) + "{}"))
	// What comes after all that on the way through every keyed partition and every partition of hits: where these are in history, so is
	// whatever was counted before.
	const last = 200
	for i := range last {
		marker := fmt.Sprint("last-", i)
		send([]byte(fmt.Sprintf(`{"time":%q,"device":%q}`, now, marker)))
		accepted[marker] = ""
	}
	produceAll(t, in, records)

	testbed.Eventually(t, 2*time.Minute, func() error {
		found := 0
		in.query(`SELECT count(*) FROM {ns}.hits_all WHERE device LIKE 'last-%'`, func(rows pgx.Rows) error { return rows.Scan(&found) })
		if found < last {
			return fmt.Errorf("%d of the last %d events are in history", found, last)
		}
		return nil
	})
	samples := map[string]string{}
	in.query(`SELECT device, array_to_string(samples, ',') FROM {ns}.hits_all WHERE device IS NOT NULL`, func(rows pgx.Rows) error {
		var device, sample string
		err := rows.Scan(&device, &sample)
		samples[device] = sample
		return err
	})
	for device, raw := range accepted {
		sample, ok := samples[device]
		if !ok {
			t.Errorf("%s is not in history", device)
		} else if raw != "" && !strings.Contains(sample, "attrs") {
			t.Errorf("%s: its attrs are not in the sample %s", device, sample)
		}
	}
	for device := range samples {
		if strings.HasPrefix(device, "n_") {
			t.Errorf("%s was counted", device)
		}
	}
	dead := deadLetters(t, in.stream([3]int{1, 3, 2}), refused+2) // the n_ files, the empty and the oversized event
	t.Logf("%d files of JSONTestSuite: %d n_ refused; %d events that had to be accepted are in history; %d dead letters in all",
		len(suite), refused, len(accepted), dead)
	p.stop()
	if log := p.Said(); strings.Contains(log, "panic") {
		t.Errorf("a panic:\n%s", log)
	}
}

// deadLetters waits until so many letters are there, looks at each, and gives their number. ROUTE writes those of a chunk after what it
// counts, so that they may come after hits of events behind them.
func deadLetters(t *testing.T, stream *exactness.Stream, least int) int {
	t.Helper()
	var letters []*kgo.Record
	testbed.Eventually(t, time.Minute, func() error {
		letters = nil
		err := stream.EachRecord(background(t), stream.Topic("dead"), 1, func(r *kgo.Record) error {
			letters = append(letters, r)
			return nil
		})
		if err == nil && len(letters) < least {
			err = fmt.Errorf("%d dead letters, want at least %d", len(letters), least)
		}
		return err
	})
	for _, r := range letters {
		var letter struct {
			Reason string `json:"reason"`
			Topic  string `json:"topic"`
		}
		if err := json.Unmarshal(r.Value, &letter); err != nil || letter.Reason == "" || letter.Topic != stream.Topic("requests") {
			t.Errorf("dead letter %s: %v", r.Value, err)
		}
	}
	return len(letters)
}

func produceAll(t *testing.T, in *install, records []*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.kafka...), kgo.DefaultProduceTopic(in.ns+".requests"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(background(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// jsonTestSuite is the suite that the decoder's own tests use: file name → bytes.
func jsonTestSuite(t *testing.T) map[string][]byte {
	t.Helper()
	files := testbed.Unpack(t, "../../traffic/format/testdata/JSONTestSuite/test_parsing.tar.gz")
	if len(files) < 300 {
		t.Fatalf("only %d files", len(files))
	}
	return files
}
