package detect_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// The load of the pipeline benchmark: JSON events of some 350 bytes in a time shorter than the rules' window, so that a
// source is over exactly if it has more events than the limit, and by how much is a subtraction.
const (
	pipeSources = 8
	pipeKeyed   = 64
	pipeHits    = 8
	pipeLimit   = 20
	pipeSpacing = 100 * time.Microsecond // between two events
	pipeAbusers = 50                     // of each kind
)

// pipeRouting has three rules, each in a dimension of its own: three keyed windows for an event.
func pipeRouting() *rules.Routing {
	rule := func(id string, key traffic.KeyField) rules.Version {
		return rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
			ID: id, Owner: "team", Match: rules.Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}, Key: []traffic.KeyField{key},
			Missing: rules.MissingSkip, Limit: pipeLimit, Window: 5 * time.Minute, Lateness: time.Minute, MaxLag: time.Minute,
		}}
	}
	return &rules.Routing{
		Stream: "replay/bench", Number: 1, RecordFormat: detectors.RecordFormat, SecretID: "s", Identity: traffic.DefaultIdentityMap(),
		Format: rules.Format{Name: traffic.FormatWeir, MaxEventBytes: 4096},
		Rules: []rules.Version{
			rule("by-ip", traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}),
			rule("by-device", traffic.KeyField{Field: traffic.FieldDevice}),
			rule("by-user", traffic.KeyField{Field: traffic.FieldUser}),
		},
	}
}

// pipeLoad makes events, and counts what must come of them. An abuser's events lie on one partition: so they are in
// order, and how far he is over is exact.
type pipeLoad struct {
	dice   *rand.Rand
	at     traffic.Time
	many   [3]uint32         // sources of each kind that are no abusers; each has two or three events
	counts [3]map[uint32]int // by rule and source
	bytes  int
	events int
}

func newPipeLoad(events int) *pipeLoad {
	n := uint32(events)
	l := &pipeLoad{dice: rand.New(rand.NewPCG(5, 8)), at: detectOrigin, many: [3]uint32{n / 5 * 2, n / 5 * 3, n / 2}, events: events}
	for i := range l.counts {
		l.counts[i] = map[uint32]int{}
	}
	return l
}

// sources draws who an event is from, and its partition. One in 33 events is from one of few abusers, of one kind.
func (l *pipeLoad) sources() (who [3]uint32, partition int) {
	abused := l.dice.IntN(100)
	partition = l.dice.IntN(pipeSources)
	for rule := range who {
		if rule == abused {
			who[rule] = l.dice.Uint32N(pipeAbusers)
			partition = int(who[rule]) % pipeSources
		} else {
			who[rule] = pipeAbusers + l.dice.Uint32N(l.many[rule])
		}
		l.counts[rule][who[rule]]++
	}
	return who, partition
}

func (l *pipeLoad) event() (raw []byte, partition int) {
	l.at += traffic.Time(pipeSpacing.Microseconds())
	who, partition := l.sources()
	ip, device, user := who[0], who[1], who[2]
	b := fmt.Appendf(nil, `{"v":1,"id":"4f1c9d%08x","time":"%s","ip":"10.%d.%d.%d","device":"tv-%08x","user":"user-%d","method":"POST",`+
		`"host":"api.example.com","path":"/v1/guest-tokens","route":"guest-tokens","status":201,"gateway":"edge-%d","plan":"free",`+
		`"user_agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0"}`,
		l.at, l.at, ip>>16, ip>>8&255, ip&255, device, user, ip%5)
	l.bytes += len(b)
	return b, partition
}

// truth is how many sources are over, and by how many events all of them together.
func (l *pipeLoad) truth() (sources, over int) {
	for _, counts := range l.counts {
		for _, n := range counts {
			if n > pipeLimit {
				sources++
				over += n - pipeLimit
			}
		}
	}
	return sources, over
}

// preload fills a topic with all events, and an end mark on each partition.
func (l *pipeLoad) preload(b *testing.B, to ingest.Appender) {
	b.Helper()
	const each = 8000
	for sent := 0; sent < l.events; {
		batches := make([]ingest.Batch, pipeSources)
		for n := 0; n < each && sent < l.events; n, sent = n+1, sent+1 {
			raw, p := l.event()
			batches[p].Partition, batches[p].Values = p, append(batches[p].Values, raw)
		}
		for p := range batches {
			batches[p].Partition = p
		}
		if err := to.Append(b.Context(), batches); err != nil {
			b.Fatal(err)
		}
	}
	var marks []ingest.Batch
	for p := range pipeSources {
		marks = append(marks, ingest.Batch{Partition: p, Values: [][]byte{traffic.EndMark()}})
	}
	if err := to.Append(b.Context(), marks); err != nil {
		b.Fatal(err)
	}
}

// judge compares what lies on the hits topic with the truth: exactly the sources that are over, each in one episode, by
// exactly so many events.
func (l *pipeLoad) judge(b *testing.B, hits []detectors.Hit) {
	b.Helper()
	sources, over := l.truth()
	counts, subjects := map[string]int64{}, map[string]bool{}
	for i := range hits {
		switch h := &hits[i]; h.Kind {
		case detectors.KindHit:
			counts[h.ID] = max(counts[h.ID], h.Count)
			subjects[h.Rule+" "+string(h.Subject)] = true
			for _, text := range h.Samples {
				var s traffic.Sample
				if err := json.Unmarshal([]byte(text), &s); err != nil || s.Path != "/v1/guest-tokens" || s.IP == "" || s.Time < h.First || s.Time > h.Last {
					b.Fatalf("evidence %s, %v, of %v to %v", text, err, h.First, h.Last)
				}
			}
		default:
			b.Errorf("a record of kind %s: %+v", h.Kind, h)
		}
	}
	var sum int64
	for _, n := range counts {
		sum += n
	}
	if len(counts) != sources || len(subjects) != sources {
		b.Fatalf("%d episodes of %d sources, want %d", len(counts), len(subjects), sources)
	}
	if sum != int64(over) {
		b.Fatalf("they are over by %d events, want %d", sum, over)
	}
	if sources < 3*pipeAbusers {
		b.Fatalf("only %d sources are over: the load is too small", sources)
	}
}
