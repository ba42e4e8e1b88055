package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// bed is an API over a real PostgreSQL and a Redis. Who asks is told by the name in Authorization, as sign-in would find it out.
type bed struct {
	*historytest.Bed
	redis    *blocklist.Store
	api      *api.API
	server   *httptest.Server
	validate validator.Validator
	judging  sync.Mutex // validate reads its schemas when they are asked for, and not for two at once
	appended []detectors.Hit
	refuses  error // of the log that takes releases
	gates    error
	away     bool // the brokers that have dead letters
}

// cast are those who ask.
func cast() map[string]access.Actor {
	return map[string]access.Actor{
		"vera": {Name: "vera", Role: access.Viewer, Via: access.ViaToken}, "anna": {Name: "anna", Role: access.Analyst, Via: access.ViaToken},
		"otto": {Name: "otto", Role: access.Owner, Owners: []string{"identity"}, Via: access.ViaToken},
		"olga": {Name: "olga", Role: access.Owner, Owners: []string{"payments"}, Via: access.ViaToken}, "adam": {Name: "adam", Role: access.Admin, Via: access.ViaToken},
	}
}

func (b *bed) Append(_ context.Context, release *detectors.Hit) error {
	if b.refuses == nil {
		b.appended = append(b.appended, *release)
	}
	return b.refuses
}

func (b *bed) Publish(ctx context.Context, modes []rules.ModeState) (int, string, error) {
	if b.gates != nil {
		return 0, "", b.gates
	}
	news, err := b.redis.SyncModes(ctx, traffic.At(time.Now()), modes)
	return news, b.redis.Address(), err
}

// Grown has nothing to tell of.
func (b *bed) Grown(context.Context, string, int, time.Time, time.Time) (acts.Grown, error) {
	return acts.Grown{}, nil
}

// ForPromotion has no evidence to tell of: the stages do not run here.
func (b *bed) ForPromotion(context.Context, string, int, time.Time, string) (*rulestore.Dossier, []string, error) {
	return nil, []string{"there is no evidence yet"}, nil
}

// Letters is one dead letter: an event that could not be read.
func (b *bed) Letters(_ context.Context, f letters.Filter, p explore.Page) (letters.Letters, error) {
	if b.away {
		return letters.Letters{}, errors.New("dial broker-1.internal: refused")
	}
	text := `{"ip":"203.0.113.9","device":"tv-7" alice`
	l := letters.Letter{At: 1_790_000_000_000_000, DeadLetter: traffic.DeadLetter{Stage: "route", Reason: "malformed", Detail: "after alice", Value: []byte(text)}, Text: text}
	if f.Stage == "record" {
		return letters.Letters{}, &explore.BadFilterError{Field: "stage", Got: f.Stage, Allowed: "route"}
	}
	return letters.Letters{Letters: []letters.Letter{l}, Total: explore.Total{N: int64(p.Limit)}}, nil
}

// Count is of a process that has counted each source twice, but that which is away.
func (b *bed) Count(_ context.Context, rule string, who traffic.Subject) (api.Count, error) {
	if b.away {
		return api.Count{}, &acts.AwayError{Store: "The process that counts this source",
			Consequence: "it is not known",
			Cause:       errors.New("dial detector-1.internal: refused")}
	}
	windows := []detectors.LookWindow{{Of: "limit", Count: 2, Held: true, Limit: 5}}
	return api.Count{Look: detectors.Look{Rule: rule, Subject: who, Windows: windows}, Owner: "weir-3"}, nil
}

type readyStore struct{ *blocklist.Store }

func (s readyStore) Ready(ctx context.Context) error { return s.Ping(ctx) }

func (b *bed) Read(files []acts.File, lists []string) (*rules.Set, []rules.Problem, error) {
	conditions, err := condition.New()
	if err != nil {
		return nil, nil, err
	}
	var warnings []rules.Problem
	sources := make([]rules.File, len(files))
	for i, f := range files {
		sources[i] = rules.File{Name: f.Name, Src: []byte(f.Text)}
	}
	set, err := rules.ParseSet(sources, rules.Environment{Identity: traffic.DefaultIdentityMap(), Conditions: conditions, AllowLists: lists,
		Format: historytest.Routing().Format, Warn: func(p rules.Problem) { warnings = append(warnings, p) }})
	if err == nil && len(set.Rules)+len(set.AllowLists) == 0 {
		err = acts.ErrNoRules
	}
	return set, warnings, err
}

func newBed(t *testing.T, masker *access.Masker) *bed {
	t.Helper()
	b := &bed{Bed: historytest.New(t)}
	b.PublishRecordFormat(t, detectors.RecordFormat)
	var err error
	if b.redis, err = blocklist.Connect(blocklist.Server{URL: testbed.Redis(t)}, testbed.Namespace(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.redis.Close(); err != nil {
			t.Error(err)
		}
	})
	now := func() traffic.Time { return traffic.At(time.Now()) }
	quiet := slog.New(slog.DiscardHandler)
	does, err := acts.New(acts.Options{Rules: b.Rules, Gates: b, Blocks: readyStore{b.redis}, Releases: b,
		Documents: b, Dossiers: b, Clock: now, Logger: quiet, Erasing: erasure.New(b.DB, b.Streams), Orders: b.Orders,
		Knows: explore.New(b.Store), Partitions: b.Partitions, Trials: trials{},
		Masking: acts.Masking{Masker: masker, Trail: b.Audit}})
	if err != nil {
		t.Fatal(err)
	}
	live := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})
	asked := explore.New(b.Store)
	b.api, err = api.New(api.Options{
		Acts: does, Live: live, Masker: masker,
		Witness: &acts.Witness{Masking: acts.Masking{Masker: masker, Trail: b.Audit}},
		Reader: &api.Reader{
			Rules: b.Rules, History: b.Store, Trail: b.Audit, Blocks: b.redis, Clock: now,
			Explorer: asked, Teller: &why.Teller{History: asked, Blocks: b.redis, Clock: now}, Dossiers: evidence.New(b.DB, b.Rules), Letters: b,
			Counts: b,
		},
		Health: func() api.Health { return api.Health{Stages: []api.StageLag{}, Problems: []api.HealthProblem{}} }, Version: "test", Logger: quiet, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(does.Close)
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		b.api.Handler().ServeHTTP(w, r.WithContext(access.With(r.Context(), cast()[name])))
	}))
	t.Cleanup(b.server.Close)
	b.validate = newValidator(t, b.api.Document())
	return b
}

func newValidator(t *testing.T, text []byte) validator.Validator {
	t.Helper()
	document, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(document)
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	return v
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) read(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

// problem is the answer's problem, whose status is the answer's.
func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	var p api.Problem
	a.read(t, &p)
	if a.header.Get("Content-Type") != "application/problem+json" || p.Status != a.status || p.Type == "" || p.Title == "" || p.Detail == "" {
		t.Errorf("%d %s: %s is no problem", a.status, a.header.Get("Content-Type"), a.body)
	}
	return p
}

// ask sends a request, and holds both it (where it is written rightly) and the answer to the OpenAPI document.
func (b *bed) ask(t *testing.T, who, method, path string, body any, header ...string) answer {
	t.Helper()
	return b.send(t, true, who, method, path, body, header...)
}

// askWrongly is ask with a request that the document does not allow.
func (b *bed) askWrongly(t *testing.T, who, method, path string, body any, header ...string) answer {
	t.Helper()
	return b.send(t, false, who, method, path, body, header...)
}

func (b *bed) send(t *testing.T, right bool, who, method, path string, body any, header ...string) answer {
	t.Helper()
	text, raw := body.(string)
	if !raw && body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(encoded)
	}
	make := func() *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, b.server.URL+path, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+who)
		if body != nil {
			r.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	if right {
		b.judging.Lock()
		ok, errs := b.validate.ValidateHttpRequest(make())
		b.judging.Unlock()
		if !ok {
			for _, e := range errs {
				t.Errorf("%s %s, the request: %s: %s", method, path, e.Message, e.Reason)
			}
		}
	}
	response, err := b.server.Client().Do(make())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := answer{status: response.StatusCode, header: response.Header}
	if got.body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	if right || got.status >= 400 && got.status != http.StatusNotFound {
		response.Body = io.NopCloser(bytes.NewReader(got.body))
		b.judging.Lock()
		ok, errs := b.validate.ValidateHttpResponse(make(), response)
		b.judging.Unlock()
		if !ok {
			for _, e := range errs {
				t.Errorf("%s %s, the answer %d: %s: %s\n%s", method, path, got.status, e.Message, e.Reason, got.body)
				for _, s := range e.SchemaValidationErrors {
					t.Errorf("  %s: %s", s.Location, s.Reason)
				}
			}
		}
	}
	return got
}
