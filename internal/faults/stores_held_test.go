package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// expectations are what the test itself knows: which rules block, and who must be held.
type expectations struct {
	modes map[string]string          // by rule
	came  map[string][]string        // by rule, who went over its limit, ever
	held  map[string]map[string]bool // by rule, who must be held now
	next  int
	sent  int // events of abusers
}

func newExpectations() *expectations {
	e := &expectations{modes: map[string]string{}, came: map[string][]string{}, held: map[string]map[string]bool{}}
	for _, rule := range []string{steady, risen, fallen} {
		e.set(rule, "shadow")
	}
	return e
}

// set notes a rule's mode. Whoever was held before is so no longer: a block is of one promotion.
func (e *expectations) set(rule, mode string) { e.modes[rule], e.held[rule] = mode, map[string]bool{} }

// drop notes that the rule store does not have a rule any more.
func (e *expectations) drop(rule string) {
	delete(e.modes, rule)
	delete(e.held, rule)
}

// innocents have never come.
func innocents() []string { return []string{"198.51.101.1", "198.51.101.2"} }

// promote promotes a rule of which nobody is over the limit, nor was within max_lag without being known to have
// stopped: who is would be held at once. That history says so tells nothing while it does not have them yet.
func (b *stores) promote(rule string) {
	b.Helper()
	b.historyFollows()
	testbed.Eventually(b, workTimeout, func() error {
		open := 0
		err := b.stream.Query(b.Context(), `SELECT count(*) FROM {ns}.hits_all
			WHERE phase NOT IN (3, 4) AND last > now() - interval '75 seconds' AND rule = '`+rule+`'`,
			func(rows pgx.Rows) error { return rows.Scan(&open) })
		if err == nil && open > 0 {
			err = fmt.Errorf("%d sources are over the limit of rule %s", open, rule)
		}
		return err
	})
	b.in.Weir("rules", "promote", rule, "--reason", "tests", "--override", "tests", "--yes")
	if b.who.modes[rule] != "block" { // else it changes nothing
		b.who.set(rule, "block")
	}
}

// historyFollows waits until history has all that has become of what was sent before. Whatever goes through a partition
// does so in order: a probe that has come through all of requests says that they are routed; the next one, through all
// of keyed, that they are detected; and one that is in history, for each partition of hits, that these are recorded.
func (b *stores) historyFollows() {
	b.Helper()
	b.works(time.Now())
	b.works(time.Now())
	detected := time.Now()
	testbed.Eventually(b, workTimeout, func() error {
		ids, err := b.watch.first(detected)
		if err != nil {
			return err
		}
		missing := len(ids)
		err = b.stream.Query(b.Context(), fmt.Sprintf(`SELECT %d - count(*) FROM {ns}.hits_all WHERE id IN ('%s')`,
			len(ids), strings.Join(ids, "', '")), func(rows pgx.Rows) error { return rows.Scan(&missing) })
		if err == nil && missing > 0 {
			err = fmt.Errorf("history lacks %d of the probes %v", missing, ids)
		}
		return err
	})
}

func (b *stores) demote(rule string) {
	b.Helper()
	b.in.Weir("rules", "demote", rule, "--reason", "tests")
	b.who.set(rule, "shadow")
}

// abusersOf is how many come at a time.
const abusersOf = 4

// abuse has some who never came before go over a rule's limit.
func (b *stores) abuse(rule string) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.stream.Brokers...),
		kgo.DefaultProduceTopic(b.stream.Topic("requests")),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for range abusersOf {
		b.who.next++
		ip := fmt.Sprintf("198.51.100.%d", b.who.next)
		for range 4 {
			e := exactness.Event{
				Time: time.Now().Add(-behind).UTC().Format(time.RFC3339Nano), ID: fmt.Sprint("a", b.who.sent), IP: ip,
				Device: "of-" + ip, Method: "POST", Path: "/v1/" + rule, Status: 200,
			}
			value, err := json.Marshal(e)
			if err != nil {
				b.Fatal(err)
			}
			r := &kgo.Record{Partition: int32(b.who.next % b.stream.Requests), Value: value}
			if err := client.ProduceSync(b.Context(), r).FirstErr(); err != nil {
				b.Fatal(err)
			}
			b.who.sent++
		}
		b.who.came[rule] = append(b.who.came[rule], ip)
		if b.who.modes[rule] == "block" {
			b.who.held[rule][ip] = true
		}
	}
}

// agree waits until gates, console, command and rule store all say what they should, and notes how long that took.
func (b *stores) agree() {
	b.Helper()
	watch, begun := testbed.StartStopwatch(), time.Now()
	defer watch.Stop()
	testbed.Eventually(b, time.Minute, func() error {
		return errors.Join(b.gatesAgree(), b.consoleAgrees(), b.commandAgrees(), b.storeAgrees())
	})
	took := watch.Since(begun)
	b.r.agreed = max(b.r.agreed, took)
	if took > b.within && b.form.name == "full" {
		b.r.wrong++
		b.Errorf("gates, console, command and rule store agree after %v only", took)
	}
}

// door is a process that serves HTTP.
type door struct {
	*process
	address string
	args    []string
}

func (b *stores) door(what string, args ...string) *door {
	b.Helper()
	d := &door{process: &process{in: b.in, stage: what}, address: fmt.Sprint("127.0.0.1:", testbed.FreePort(b))}
	d.args = append([]string{what, "--" + listenFlag(what), d.address}, args...)
	d.again()
	return d
}

func listenFlag(what string) string {
	if what == "gate" {
		return "listen"
	}
	return "console-listen"
}

func (d *door) again() {
	d.in.t.Helper()
	d.cmd = d.in.Command(context.Background(), d.args...)
	d.running = testbed.Run(d.in.t, d.cmd)
}

// get asks for a path and gives the status and the body.
func (d *door) get(path string, header http.Header) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header = header
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, errors.Join(err, d.running.Alive())
	}
	defer func() { _ = answer.Body.Close() }() // all of it was read
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

// refuses asks a gate about a request.
func (d *door) refuses(rule, ip string) (bool, error) {
	status, body, err := d.get("/v1/forward-auth", http.Header{
		"X-Forwarded-Method": {"POST"}, "X-Forwarded-Uri": {"/v1/" + rule}, "X-Forwarded-For": {ip},
	})
	if err == nil && status != http.StatusOK && status != http.StatusTooManyRequests {
		err = fmt.Errorf("a gate answers %d: %s", status, body)
	}
	return status == http.StatusTooManyRequests, err
}

// gatesAgree asks each gate for everybody who ever came, and for who never did.
func (b *stores) gatesAgree() error {
	for n, gate := range b.gates {
		for _, rule := range []string{steady, risen, fallen, edited} {
			for _, ip := range slices.Concat(b.who.came[rule], innocents()) {
				refused, err := gate.refuses(rule, ip)
				if err != nil {
					return err
				}
				if want := b.who.held[rule][ip]; refused != want {
					return fmt.Errorf("gate %d, rule %s, %s: refused is %t, want %t", n, rule, ip, refused, want)
				}
			}
		}
	}
	return nil
}

// agrees compares who is said to be held with who must be.
func (b *stores) agrees(who string, got map[string]bool) error {
	var wrong []string
	for name := range got {
		rule, ip, _ := strings.Cut(name, " ")
		if !b.who.held[rule][ip] {
			wrong = append(wrong, name+" is held")
		}
	}
	for rule, held := range b.who.held {
		for ip := range held {
			if !got[rule+" "+ip] {
				wrong = append(wrong, rule+" "+ip+" is not held")
			}
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("%s: %s", who, strings.Join(wrong, ", "))
	}
	return nil
}

// heldName is a block of a rule by the address in its subject.
func heldName(rule, subject string) string {
	return rule + " " + strings.TrimSuffix(strings.TrimPrefix(subject, "ip="), "%2F32")
}

func (b *stores) consoleAgrees() error {
	var blocks struct {
		Blocks []struct {
			Rule    string `json:"rule"`
			InForce bool   `json:"in_force"`
			Source  struct {
				Subject string `json:"subject"`
			} `json:"source"`
		} `json:"blocks"`
	}
	var book struct {
		Rules []struct {
			ID   string `json:"id"`
			Mode string `json:"mode"`
		} `json:"rules"`
	}
	for path, into := range map[string]any{"/api/v1/blocks": &blocks, "/api/v1/rules": &book} {
		status, body, err := b.console.get(path, nil)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, into); err != nil || status != http.StatusOK {
			return fmt.Errorf("the console answers %s with %d: %s", path, status, body)
		}
	}
	got, modes := map[string]bool{}, map[string]string{}
	for _, block := range blocks.Blocks {
		if block.InForce {
			got[heldName(block.Rule, block.Source.Subject)] = true
		}
	}
	for _, r := range book.Rules {
		modes[r.ID] = r.Mode
	}
	return errors.Join(b.agrees("console", got), b.modesAgree("console", modes))
}

func (b *stores) modesAgree(who string, modes map[string]string) error {
	for _, rule := range []string{steady, risen, fallen, edited} {
		if modes[rule] != b.who.modes[rule] {
			return fmt.Errorf("%s: rule %s has mode %q, want %q", who, rule, modes[rule], b.who.modes[rule])
		}
	}
	return nil
}

func (b *stores) commandAgrees() error {
	var blocks []struct {
		Rule    string `json:"rule"`
		Subject string `json:"subject"`
		InForce bool   `json:"in_force"`
	}
	out := b.in.Weir("blocks", "list", "--output", "json")
	if err := json.Unmarshal([]byte(out), &blocks); err != nil {
		return fmt.Errorf("weir blocks list: %w: %s", err, out)
	}
	got := map[string]bool{}
	for _, block := range blocks {
		if block.InForce {
			got[heldName(block.Rule, block.Subject)] = true
		}
	}
	return b.agrees("weir blocks list", got)
}

func (b *stores) storeAgrees() error {
	modes, held := map[string]string{}, map[string]bool{}
	err := b.stream.Query(b.Context(), `SELECT rule, mode FROM {ns}.rules_v WHERE NOT removed`,
		func(rows pgx.Rows) error {
			var rule, mode string
			err := rows.Scan(&rule, &mode)
			modes[rule] = mode
			return err
		})
	if err != nil {
		return err
	}
	err = b.stream.Query(b.Context(), `SELECT rule, subject FROM {ns}.blocks_v WHERE stream = 'live'`,
		func(rows pgx.Rows) error {
			var rule, subject string
			err := rows.Scan(&rule, &subject)
			held[heldName(rule, subject)] = true
			return err
		})
	return errors.Join(err, b.modesAgree("rule store", modes), b.agrees("blocks_v", held))
}
