package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/internal/browser"
	"github.com/weirhq/weir/internal/testbed"
)

// siegeRule has one step, so that a canary is over it within the minutes that a test has.
const siegeRule = `
id: %s
owner: identity
match: {method: POST, path: %s}
key: [ip]
limit: 2
window: 10m
lateness: 10m
max_lag: 20m
cooldown: 1s
block: {ttl: 1h}
promote: {min_shadow: 1m, max_traffic_share: 60%%}
canary: {steps: [50%%], hold: 4m}
`

const (
	besiegers = 20 // of each rule, all over its limit
	office    = 12 // of these, those whose requests are of people who pay, from its day on
)

// siege is of sources that never pause, and ask a gate each time. What it refuses comes back with its verdict, as from
// a gateway's log.
type siege struct {
	*replays
	rules  []string
	mu     sync.Mutex
	paying map[string]bool // rules that have an office among their sources
	ledger map[siegeKey]int
}

// siegeKey is how the gate's own refusals are counted.
type siegeKey struct {
	rule, block, ip string
	minute          time.Time
}

func (s *siege) pays(rule string, source int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return source < office && s.paying[rule]
}

// request is one request of a source, at the gate and in the log.
func (s *siege) request(rule, ip, plan string, at time.Time, asks bool) error {
	path, status, event := "/v1/"+rule, http.StatusOK, map[string]any{}
	if asks {
		// The proxy appends the peer that it saw.
		answer, header, err := s.ask("api.example.com", &raw{ip: ip + ", 10.0.0.1", path: path})
		if err != nil {
			return err
		}
		if status = answer; status == http.StatusTooManyRequests {
			block := header.Get("X-Weir-Block")
			event["verdict"] = map[string]string{"rule": header.Get("X-Weir-Rule"), "block": block}
			s.mu.Lock()
			s.ledger[siegeKey{header.Get("X-Weir-Rule"), block, ip, at.UTC().Truncate(time.Minute)}]++
			s.mu.Unlock()
		}
	}
	maps.Copy(event, map[string]any{
		"v": 1, "time": at.UTC().Format(time.RFC3339Nano), "ip": "10.0.0.1", "forwarded_for": ip,
		"method": http.MethodPost, "path": path, "status": status, "plan": plan,
	})
	value, err := json.Marshal(event)
	if err != nil {
		return err
	}
	s.producer.Produce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
		if err != nil {
			s.t.Error(err)
		}
	})
	return nil
}

func besieger(rule, source int) string { return fmt.Sprintf("203.0.%d.%d", rule, source+1) }

// offices are the addresses of the office among the sources of the second rule.
func offices() []string {
	all := make([]string, office)
	for source := range all {
		all[source] = besieger(1, source)
	}
	return all
}

// before is what had come five minutes ago, in shadow.
func (s *siege) before() {
	s.t.Helper()
	then := time.Now().Add(-5 * time.Minute)
	for i, rule := range s.rules {
		for source := range besiegers {
			for range 6 {
				if err := s.request(rule, besieger(i, source), "free", then, false); err != nil {
					s.t.Fatal(err)
				}
			}
		}
		for viewer := range 100 {
			if err := s.request(rule, fmt.Sprintf("198.51.100.%d", viewer+1), "paid", then, false); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	if err := s.producer.Flush(background(s.t)); err != nil {
		s.t.Fatal(err)
	}
}

// goesOn until ctx ends, or 20 minutes have passed.
func (s *siege) goesOn(ctx context.Context) {
	for round := 0; ctx.Err() == nil && round < 1200; round++ {
		for i, rule := range s.rules {
			for source := range besiegers {
				plan := "free"
				if s.pays(rule, source) {
					plan = "paid"
				}
				if err := s.request(rule, besieger(i, source), plan, time.Now(), true); err != nil && ctx.Err() == nil {
					s.t.Errorf("the attack: %v", err)
					return
				}
			}
			if err := s.request(rule, fmt.Sprintf("198.51.%d.%d", 101+round/200, round%200+1), "paid", time.Now(),
				true); err != nil && ctx.Err() == nil {
				s.t.Errorf("a viewer: %v", err)
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// TestCanariesUnderAnAttackThatGoesOn promotes two rules by their pages as canaries while their sources never pause.
// One has the same sources on: it goes through its step, and blocks. Of the other one some turn out to be an office: it
// falls back, and its pages say so. What the gate refused is then what history says that it refused, by rule, block,
// source and minute.
func TestCanariesUnderAnAttackThatGoesOn(t *testing.T) {
	testbed.Night(t, "a canary is judged by its traffic from its third minute on")
	t.Parallel()
	chromium := browser.Start(t)
	port := testbed.FreePort(t)
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	in := newInstall(t, [3]int{2, 4, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 1, consoleOf(port, address,
		signintest.Start(t, address)))
	s := &siege{replays: newReplays(t, in), rules: []string{"steady", "joined"}, paying: map[string]bool{},
		ledger: map[siegeKey]int{}}
	for _, rule := range s.rules {
		in.Weir("rules", "apply", "-f", in.Write(rule+".yaml", fmt.Sprintf(siegeRule, rule, "/v1/"+rule)), "--reason",
			"tests")
		in.watches(rule)
	}
	stages, gate := in.start("run", "--console"), in.start("gate")
	waitForGate(t, in)
	awaitConsole(t, address)
	s.before()
	ctx, stop := context.WithCancel(background(t))
	var going sync.WaitGroup
	going.Go(func() { s.goesOn(ctx) })
	defer going.Wait()
	defer stop()

	olga := newPerson(chromium, t, address, signintest.Owner)
	for _, rule := range s.rules { // the form has the canary as its preset
		olga.opens("/rules/"+rule+"/promote",
			`[...document.querySelectorAll('main td .tag')].map((tag) => tag.innerText).join() == 'passed,passed,passed,passed'`)
		olga.decides("an attack that goes on")
		olga.until(`location.search.includes('did=canary') && says('[data-part=canary]').includes('50%')`)
	}
	// Its blocks hold by then: who pays is known by what they refuse alone.
	testbed.Eventually(t, 2*time.Minute, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for key := range s.ledger {
			if key.rule == "joined" && slices.Contains(offices(), key.ip) {
				s.paying["joined"] = true
				return nil
			}
		}
		return errors.New("no block holds any of the office")
	})
	in.becomes("joined", "shadow")
	olga.opens("/rules/joined", `says('.note-warn').includes('canary fell back') && says('.note-warn').includes('known-good sources')`)
	olga.opens("/", `row('joined', 'canary fell back') || says('main').includes('canary fell back')`)
	if list := in.Weir("rules", "list"); !strings.Contains(list, "shadow, fell back") {
		t.Errorf("the list of rules does not say that a canary fell back:\n%s", list)
	}
	in.becomes("steady", "block")
	stop()
	going.Wait()
	if err := s.producer.Flush(background(t)); err != nil {
		t.Fatal(err)
	}
	s.compare()
	stages.stop()
	gate.stop()
}

// becomes waits until a canary has come to a mode, for as long as one may take under a night's load.
func (in *install) becomes(rule, want string) {
	in.t.Helper()
	testbed.Eventually(in.t, 12*time.Minute, func() error {
		var mode, reason string
		in.query("SELECT mode, reason FROM {ns}.rule_modes WHERE rule = '"+rule+"'",
			func(rows pgx.Rows) error { return rows.Scan(&mode, &reason) })
		switch mode {
		case want:
			return nil
		case "canary":
			return fmt.Errorf("%s is in canary", rule)
		}
		in.t.Fatalf("%s is in %s, want %s: %s", rule, mode, want, reason)
		return nil
	})
}

// compare waits until history has what the gate refused, and holds both against each other.
func (s *siege) compare() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := map[string]int{}
	for key, n := range s.ledger {
		refused[key.rule] += n
	}
	if refused["steady"] == 0 || refused["joined"] == 0 {
		s.t.Fatalf("the gate refused %v: the test proves nothing", refused)
	}
	testbed.Eventually(s.t, 5*time.Minute, func() error {
		var answer []struct {
			Rule, Block, Subject string
			Minute               time.Time
			Events               int
		}
		s.in.json(&answer, "history", "refused", "--since", "1h", "--limit", "0")
		got := map[siegeKey]int{}
		for _, sum := range answer {
			got[siegeKey{sum.Rule, sum.Block, strings.TrimSuffix(strings.TrimPrefix(sum.Subject, "ip="), "%2F32"),
				sum.Minute.UTC()}] += sum.Events
		}
		if maps.Equal(got, s.ledger) {
			return nil
		}
		var lines []string
		for _, key := range slices.Collect(maps.Keys(s.ledger)) {
			if got[key] != s.ledger[key] {
				lines = append(lines, fmt.Sprintf("%v: %d, the gate refused %d", key, got[key], s.ledger[key]))
			}
		}
		return fmt.Errorf("of %d sums %d differ, %d are told: %s", len(s.ledger), len(lines), len(got),
			strings.Join(lines[:min(5, len(lines))], "; "))
	})
	s.t.Logf("the gate refused %v, in %d sums of rule, block, source and minute", refused, len(s.ledger))
}
