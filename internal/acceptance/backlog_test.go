package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/internal/testbed"
)

const (
	backlogOutage     = 390 * time.Second
	backlogPartitions = 8
	backlogTTL        = 15 * time.Minute
	backlogMaxLag     = time.Minute
	backlogDisorder   = 200 * time.Millisecond // of what is in one partition, at most
)

// TestABacklogBlocksNobodyWhoWasNotOver: weir is down for six and a half minutes, while clients of all kinds go on over
// eight partitions, unevenly. When it is up again, each source that is flagged was over, by the definition of the rule's
// algorithm on the events in the order of their time; of the algorithms that do not depend on order each one that was
// over is flagged; nobody is blocked for what lay in the backlog; and whoever is over now is blocked at once.
func TestABacklogBlocksNobodyWhoWasNotOver(t *testing.T) {
	t.Parallel()
	in := newInstall(t, [3]int{backlogPartitions, 1, 1}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 0)
	all := backlogRules()
	var text []string
	for _, r := range all {
		text = append(text, r.document())
	}
	in.Weir("rules", "apply", "-f", in.Write("rules.yaml", strings.Join(text, "---\n")), "--reason", "tests")
	for _, r := range all {
		in.Weir("rules", "promote", r.id, "--reason", "tests", "--yes", "--override", "tests")
	}
	b := newBacklog(t, in)
	b.preload()
	p := in.start("run")
	b.blocked(all, "203.0.113.200")
	b.blocked(all, "203.0.113.201") // all that came before it is judged once it is blocked
	b.recorded(all, "203.0.113.201")

	b.judgeHits(all)
	b.judgeBlocks(all)
	p.stop()
}

// backlogEvent is an event as the test has sent it.
type backlogEvent struct {
	at     time.Time
	ip     string
	device string
}

// backlog is what is in the requests topic.
type backlog struct {
	t      *testing.T
	in     *install
	client *kgo.Client
	begin  time.Time
	rnd    *rand.Rand
	events map[string][]backlogEvent // by address
}

func newBacklog(t *testing.T, in *install) *backlog {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.kafka...), kgo.DefaultProduceTopic(in.ns+".requests"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &backlog{
		t: t, in: in, client: client, begin: time.Now().Add(-backlogOutage), rnd: rand.New(rand.NewPCG(5, 6)),
		events: map[string][]backlogEvent{},
	}
}

// record notes an event, and makes its record. It was appended a little after it happened.
func (b *backlog) record(partition int, at time.Time, ip, device string) *kgo.Record {
	at = at.Truncate(time.Microsecond)
	b.events[ip] = append(b.events[ip], backlogEvent{at, ip, device})
	return &kgo.Record{
		Partition: int32(partition), Timestamp: at.Add(time.Duration(b.rnd.Int64N(int64(backlogDisorder)))),
		Value: fmt.Appendf(nil, `{"v":1,"time":%q,"ip":%q,"device":%q,"method":"GET","path":"/v1/x","status":200}`,
			at.UTC().Format(time.RFC3339Nano), ip, device),
	}
}

// preload fills the topic as if gateways had written it during the outage. Kafka gives its own append times unless the
// topic says otherwise, so it says so for as long as this takes.
func (b *backlog) preload() {
	b.t.Helper()
	var records []*kgo.Record
	add := func(partition int, at time.Duration, ip, device string) {
		records = append(records, b.record(partition, b.begin.Add(at), ip, device))
	}
	anywhere := func() int { return b.rnd.IntN(backlogPartitions) }
	for i := range int(backlogOutage / time.Second) { // one a second, over all partitions: never over
		add(i%backlogPartitions, time.Duration(i)*time.Second, "198.51.100.1", fmt.Sprint("d", i))
	}
	for c := range 20 { // around the limits, in bursts and pauses; some with few devices
		ip, rate := fmt.Sprint("198.51.100.", 10+c), 40+8*c
		for at := time.Duration(0); at < backlogOutage-5*time.Second; {
			for k := range 10 {
				add(anywhere(), at+time.Duration(k*b.rnd.IntN(80))*time.Millisecond, ip, fmt.Sprint("d", b.rnd.IntN(20+60*(c%4))))
			}
			at += time.Duration(b.rnd.IntN(int(20*time.Minute) / rate))
		}
	}
	for c := range 5 { // over by far, but long ago: over all partitions, or in one
		for k := range 400 {
			partition := c
			if c%2 == 0 {
				partition = anywhere()
			}
			add(partition, time.Minute+time.Duration(k)*100*time.Millisecond, fmt.Sprint("203.0.113.", 10+c), fmt.Sprint("d", k))
		}
	}
	for k := range 400 { // over when weir comes back
		add(anywhere(), backlogOutage-30*time.Second+time.Duration(k)*70*time.Millisecond, "203.0.113.100", fmt.Sprint("d", k))
	}
	for i := range 30_000 { // and partitions that have much, little, or next to nothing
		at := backlogOutage * time.Duration(i) / 30_000
		add([]int{0, 0, 0, 0, 0, 0, 0, 1, 1, 2, i % 6}[i%11], at, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "d")
	}
	slices.SortStableFunc(records, func(a, c *kgo.Record) int { return a.Timestamp.Compare(c.Timestamp) })
	b.takeTimes()
	if err := b.client.ProduceSync(b.t.Context(), records...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
	b.configure(b.in.ns+".requests", "LogAppendTime")
	b.t.Logf("%d events lie in the backlog", len(records))
}

// takeTimes has records of the topic keep the times that they come with. A broker hears of a topic's configuration a moment after it was changed, but of
// one change after the other: when a change of another topic shows in records, and then one of a third topic that was made after that, this one has
// come, too. (Records of the topic itself must not be tried and deleted: what is deleted before it was routed is a hole, which stops its partition.)
func (b *backlog) takeTimes() {
	b.t.Helper()
	b.configure(b.in.ns+".requests", "CreateTime")
	for n := range 2 {
		probe := fmt.Sprint(b.in.ns, ".probe", n)
		b.create(probe)
		b.configure(probe, "CreateTime")
		testbed.Eventually(b.t, time.Minute, func() error { return b.keepsTime(probe) })
	}
}

// configure says which times the records of a topic have.
func (b *backlog) configure(topic, kind string) {
	b.t.Helper()
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	resource.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "message.timestamp.type", Value: &kind}}
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(b.t.Context(), b.client)
	if err != nil || answer.Resources[0].ErrorCode != 0 {
		b.t.Fatalf("times of %s: %v, %+v", topic, err, answer)
	}
}

// create makes a topic of one partition, whose records get the times of their append.
func (b *backlog) create(name string) {
	b.t.Helper()
	request := kmsg.NewPtrCreateTopicsRequest()
	topic, setting, value := kmsg.NewCreateTopicsRequestTopic(), kmsg.NewCreateTopicsRequestTopicConfig(), "LogAppendTime"
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
	setting.Name, setting.Value = "message.timestamp.type", &value
	topic.Configs = append(topic.Configs, setting)
	request.Topics, request.TimeoutMillis = append(request.Topics, topic), 30_000
	answer, err := request.RequestWith(b.t.Context(), b.client)
	if err != nil || answer.Topics[0].ErrorCode != 0 {
		b.t.Fatalf("making %s: %v, %+v", name, err, answer)
	}
}

// keepsTime appends a record to a topic of one partition, and is an error if it has another time then than the one that it came with, of an hour ago.
func (b *backlog) keepsTime(topic string) error {
	ago := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	sent := &kgo.Record{Topic: topic, Timestamp: ago, Value: []byte("{}")}
	if err := b.client.ProduceSync(b.t.Context(), sent).FirstErr(); err != nil {
		return err
	}
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(sent.Offset)}}
	reader, err := kgo.NewClient(kgo.SeedBrokers(b.in.kafka...), kgo.ConsumePartitions(from))
	if err != nil {
		return err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	fetched := reader.PollFetches(ctx)
	if err := fetched.Err0(); err != nil {
		return err
	}
	for _, r := range fetched.Records() {
		if !r.Timestamp.Equal(ago) {
			return fmt.Errorf("a record of %s has the time %s, not the %s that it came with", topic, r.Timestamp, ago)
		}
	}
	return nil
}

// live sends n events of the present, over all partitions.
func (b *backlog) live(ip string, n int) {
	b.t.Helper()
	for k := range n {
		err := b.client.ProduceSync(b.t.Context(), b.record(k%backlogPartitions, time.Now(), ip, fmt.Sprint("d", k))).FirstErr()
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

func subjectOf(ip string) string { return "ip=" + ip + "%2F32" }

// blocked has a source be over, again and again as abusers are, until it is blocked by every rule whose algorithm does
// not depend on order: what it did while weir was further behind than max_lag blocks nobody.
func (b *backlog) blocked(all []backlogRule, ip string) {
	b.t.Helper()
	var again time.Time
	testbed.Eventually(b.t, 3*time.Minute, func() error {
		if time.Now().After(again) {
			b.live(ip, 400)
			again = time.Now().Add(20 * time.Second)
		}
		by := map[string]bool{}
		for _, d := range b.decisions() {
			if d.subject == subjectOf(ip) && d.action == "written" {
				by[d.rule] = true
			}
		}
		for _, r := range all {
			if r.complete() && !by[r.id] {
				return fmt.Errorf("%s is not blocked by %s, only by %d rules", ip, r.id, len(by))
			}
		}
		return nil
	})
}

// recorded waits until history has the hits of a source that is blocked, and with them all that were told before: hits and
// decisions are stored each by a consumer of its own.
func (b *backlog) recorded(all []backlogRule, ip string) {
	b.t.Helper()
	testbed.Eventually(b.t, 60*time.Second, func() error {
		flagged := b.flagged()
		for _, r := range all {
			if r.complete() && !flagged[[2]string{r.id, subjectOf(ip)}] {
				return fmt.Errorf("history has no hit of %s by %s", ip, r.id)
			}
		}
		return nil
	})
}

// backlogDecision is what ENFORCE decided about a hit.
type backlogDecision struct {
	action, reason, rule, subject string
	at, until                     time.Time
}

func (b *backlog) decisions() []backlogDecision {
	b.t.Helper()
	var out []backlogDecision
	b.in.query(`SELECT action, reason, rule, subject, at, coalesce(until, at) FROM {ns}.block_decisions_all WHERE stream = 'live'`,
		func(rows pgx.Rows) error {
			var d backlogDecision
			err := rows.Scan(&d.action, &d.reason, &d.rule, &d.subject, &d.at, &d.until)
			out = append(out, d)
			return err
		})
	return out
}
