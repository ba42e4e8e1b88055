package gate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

const (
	rule   = "guest-token-flood"
	target = "/v1/guest-tokens"
)

// office stands in for everything behind the stages: rule store, blocks topic, history, dead letters.
type office struct {
	mu        sync.Mutex
	mode      rules.ModeState
	decisions []blocklist.Decision
	letters   []traffic.DeadLetter
}

func (o *office) Modes(context.Context) ([]rules.ModeState, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return []rules.ModeState{o.mode}, nil
}

func (o *office) RuleVersion(_ context.Context, id string, number int) (*rules.Version, bool, error) {
	return &rules.Version{Number: number, Document: rules.Document{
		ID: id, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute,
		Block: &rules.Block{TTL: 10 * time.Minute, Extend: rules.ExtendOnHit},
	}}, true, nil
}

func (o *office) Append(_ context.Context, _ int, decisions []blocklist.Decision) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.decisions = append(o.decisions, decisions...)
	return nil
}

func (o *office) ActiveBlocks(_ context.Context, q blocklist.ActiveQuery) ([]blocklist.Decision, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var page []blocklist.Decision // of few decisions: the first is the last
	for _, d := range o.decisions {
		if q.After == nil && d.Action != blocklist.ActionWithheld && (d.Action == blocklist.ActionReleased) == q.Released {
			page = append(page, d)
		}
	}
	return page, nil
}

func (o *office) Put(_ context.Context, letters []traffic.DeadLetter) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.letters = append(o.letters, letters...)
	return nil
}

func (o *office) set(mode rules.Mode) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mode = rules.ModeState{
		Rule: rule, Mode: mode, Generation: o.mode.Generation + 1, Match: rules.Held{Methods: []string{"POST"}, Path: target},
	}
}

var _ gate.Blocklist = (*replica.Replica)(nil)

// site is an API behind weir: ENFORCE and reconciler on a Redis, and a gate in both its forms.
type site struct {
	t          testing.TB
	office     *office
	store      *blocklist.Store
	enforcer   *enforce.Enforcer
	reconciler *reconcile.Reconciler
	publisher  *reconcile.Publisher
	auth, api  *httptest.Server
	identifier *traffic.Identifier
}

func now() traffic.Time { return traffic.At(time.Now()) }

func newSite(t testing.TB, server testbed.RedisServer) *site {
	t.Helper()
	store, err := blocklist.NewStore(server.Client(t), testbed.Namespace(t))
	must(t, err)
	s := &site{t: t, office: &office{}, store: store}
	s.office.set(rules.ModeShadow)
	s.restart()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	s.reconciler, err = reconcile.New(reconcile.Options{
		Store: store, Modes: s.office, Active: s.office, Clock: now, Logger: logger, Registerer: prometheus.NewRegistry(),
	})
	must(t, err)
	s.publisher, err = reconcile.NewPublisher(reconcile.PublisherOptions{
		Store: store, Modes: s.office, Clock: now, Logger: logger, Registerer: prometheus.NewRegistry(),
	})
	must(t, err)
	replica, err := replica.New(replica.Options{Store: store, Clock: now, Logger: logger, Registerer: prometheus.NewRegistry()})
	must(t, err)
	identity := traffic.DefaultIdentityMap()
	s.identifier, err = identity.Compile()
	must(t, err)
	g, err := gate.New(gate.Options{Blocklist: replica, Identifier: s.identifier, Clock: now, Logger: logger, Registerer: prometheus.NewRegistry()})
	must(t, err)
	s.serve(g, replica)
	return s
}

func (s *site) serve(g *gate.Gate, replica *replica.Replica) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{s.reconciler.Run, s.publisher.Run, replica.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				s.t.Error(err)
			}
		})
	}
	s.auth = httptest.NewServer(g.ForwardAuth())
	s.api = httptest.NewServer(g.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })))
	s.t.Cleanup(func() {
		s.auth.Close()
		s.api.Close()
		cancel()
		running.Wait()
	})
	testbed.Eventually(s.t, 10*time.Second, func() error {
		if !replica.Ready() {
			return errors.New("the blocklist is not loaded")
		}
		return nil
	})
}

// restart makes ENFORCE anew, as after a crash.
func (s *site) restart() {
	s.t.Helper()
	e, err := enforce.New(enforce.Options{
		Secret: []byte("secret"),
		Store:  s.store, Stream: blocklist.StreamLive, Topic: "weir.hits", Modes: s.office, Rules: s.office, Decisions: s.office,
		DeadLetters: s.office, Clock: now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry(),
	})
	must(s.t, err)
	s.enforcer = e
}

func (s *site) turn(mode rules.Mode) {
	s.office.set(mode)
	s.enforcer.ModesChanged()
	s.publisher.ModesChanged()
}

// offence is an episode of the device behind 127.0.0.1, from where the test's clients come.
func (s *site) offence(id string) detectors.Hit {
	at := now()
	return detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: strings.Repeat(id, 32), Rule: rule, RuleVersion: 1, Phase: detectors.PhaseOpen,
		BlockSubject: "ip=127.0.0.1%2F32&device=tv-7", First: at, Last: at, Seen: at,
	}
}

func (s *site) apply(hits ...detectors.Hit) {
	s.t.Helper()
	var batch []traffic.Message
	for i := range hits {
		value, err := detectors.EncodeHit(&hits[i])
		must(s.t, err)
		batch = append(batch, traffic.Message{Partition: hits[i].Partition(4), Appended: now(), Value: value})
	}
	must(s.t, s.enforcer.Apply(s.t.Context(), batch))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// statuses asks both forms of the gate for a request of device, and waits for both to answer want.
func (s *site) eventually(device, method, path string, want int) {
	s.t.Helper()
	testbed.Eventually(s.t, 10*time.Second, func() error { return s.check(device, method, path, want) })
}

func (s *site) check(device, method, path string, want int) error {
	direct, err := http.NewRequestWithContext(s.t.Context(), method, s.api.URL+path, nil)
	must(s.t, err)
	asked, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.auth.URL, nil)
	must(s.t, err)
	asked.Header.Set("X-Forwarded-Method", method)
	asked.Header.Set("X-Forwarded-Uri", path)
	asked.Header.Set("X-Forwarded-For", "198.51.100.99, 127.0.0.1")
	for form, r := range map[string]*http.Request{"middleware": direct, "forward auth": asked} {
		r.Header.Set("X-Device-Id", device)
		answer, err := s.api.Client().Do(r)
		must(s.t, err)
		must(s.t, answer.Body.Close())
		if answer.StatusCode != want {
			return fmt.Errorf("%s of %s %s by %s: got %d, want %d", form, method, path, device, answer.StatusCode, want)
		}
	}
	return nil
}

func TestFromPromotionToRelease(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newSite(t, server)

		shadow := s.offence("a")
		s.apply(shadow) // not promoted: not one refusal
		must(t, s.check("tv-7", "POST", target, 200))

		s.turn(rules.ModeBlock)
		open := s.offence("b")
		s.apply(open)
		s.eventually("tv-7", "POST", target, 429)
		must(t, s.check("tv-8", "POST", target, 200))        // an ordinary viewer behind the same address
		must(t, s.check("tv-7", "GET", target, 200))         // what the rule does not watch
		must(t, s.check("tv-7", "POST", "/v1/films", 200))   // nor this
		must(t, s.check("tv-7", "POST", target+"?a=1", 429)) // a query makes no difference

		request, err := blocklist.NewRelease(open.BlockSubject, rule, "ops", "false alarm", now())
		must(t, err)
		s.apply(request)
		s.eventually("tv-7", "POST", target, 200)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = s.store.WaitReleased(ctx, &request)
		must(t, err)

		s.restart()
		goesOn := open
		goesOn.Phase, goesOn.Last = detectors.PhaseUpdate, now()
		s.apply(shadow, open, request, goesOn) // the log again, and the released episode's next update
		marker := s.offence("c")
		marker.BlockSubject = "device=marker"
		s.apply(marker) // when its block has arrived, all before it has
		s.eventually("marker", "POST", target, 429)
		must(t, s.check("tv-7", "POST", target, 200))

		s.apply(s.offence("d")) // a new offence after the release
		s.eventually("tv-7", "POST", target, 429)
		s.turn(rules.ModeShadow)
		s.eventually("tv-7", "POST", target, 200)
		must(t, s.check("marker", "POST", target, 200))
		if len(s.office.letters) != 0 {
			t.Errorf("dead letters: %+v", s.office.letters)
		}
	})
}

// Many clients ask while blocks come and go; nobody but the abusers is ever refused.
func TestGateUnderTraffic(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newSite(t, server)
		s.turn(rules.ModeBlock)
		var clients sync.WaitGroup
		stop := make(chan struct{})
		for i := range 4 {
			clients.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if err := s.check(fmt.Sprint("viewer-", i), "POST", target, 200); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for i := range 20 {
			h := s.offence("e")
			h.ID = fmt.Sprintf("%032x", i)
			h.BlockSubject = traffic.Subject(fmt.Sprintf("ip=127.0.0.1%%2F32&device=abuser-%d", i))
			s.apply(h)
		}
		for i := range 20 {
			s.eventually(fmt.Sprint("abuser-", i), "POST", target, 429)
		}
		close(stop)
		clients.Wait()
	})
}
