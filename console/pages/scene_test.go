package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// scene is an installation in the middle of its day. Everything is seeded, and the clock stands.
type scene struct {
	mu        sync.RWMutex // guards hits, while a test changes them under a page
	random    *rand.Rand
	now       traffic.Time
	rules     []rulestore.Rule
	hits      []history.RecordedHit
	listed    []blocklist.Listed
	beyond    []blocklist.Listed // what Redis holds beside it, and nobody has read
	allow     []rulestore.AllowList
	decisions []history.RecordedDecision
	entries   []audit.Entry
	pulse     console.Pulse
	away      map[string]error // by port
	does      *doer
	views     *keptViews
	left      explore.LeftOut                 // of whatever is asked for
	refused   map[string]history.RefusedTotal // by rule
	witness   witness
}

// witness is told of files that are taken and of views that are kept.
type witness struct {
	told    []string // method, path and act
	refuses error
}

func (w *witness) Tell(r *http.Request, _ access.Actor, act access.Act) error {
	w.told = append(w.told, r.Method+" "+r.URL.Path+" "+string(act))
	return w.refuses
}

func sceneTime() traffic.Time {
	return traffic.At(time.Date(2026, 11, 21, 14, 30, 8, 0, time.UTC))
}

func sceneRule(id, owner, method, path string, limit int, window, ttl time.Duration, mode rules.Mode, fields ...traffic.Field) rulestore.Rule {
	d := rules.Document{
		ID: id, Owner: owner, Match: rules.Match{Path: path}, Missing: rules.MissingSkip, Limit: limit, Window: window,
		Lateness: rules.DefaultLateness, MaxLag: rules.DefaultMaxLag,
	}
	if method != "" {
		d.Match.Methods = []string{method}
	}
	for _, f := range fields {
		k := traffic.KeyField{Field: f}
		if f == traffic.FieldIP {
			k.V4, k.V6 = traffic.DefaultV4, traffic.DefaultV6
		}
		d.Key = append(d.Key, k)
	}
	if ttl > 0 {
		d.Block = &rules.Block{Key: d.Key, TTL: ttl, Extend: rules.ExtendOnHit}
	}
	made := sceneTime().Std()
	newest := rulestore.StoredVersion{Version: rules.Version{Document: d, Number: 3, Lineage: 1}, Created: made.Add(-50 * time.Hour), Author: "mara", Reason: "the night shift saw two false alarms"}
	before := newest
	before.Version.Number, before.Version.Limit, before.Created, before.Author, before.Reason = 2, limit/2, made.Add(-9*24*time.Hour), "jonas", ""
	first := before
	first.Version.Number, first.Version.Window, first.Created = 1, window*2, made.Add(-30*24*time.Hour)
	return rulestore.Rule{
		Newest: newest, Mode: mode, Generation: 2, Changed: made.Add(-26 * time.Hour), ChangedBy: "mara",
		Reason: "two days of shadow, no viewer among the hits", Versions: []rulestore.StoredVersion{newest, before, first},
	}
}

func newScene() *scene {
	s := &scene{random: rand.New(rand.NewPCG(7, 11)), now: sceneTime(), away: map[string]error{}, does: &doer{}, views: &keptViews{}}
	s.refused = map[string]history.RefusedTotal{
		"guest-token-flood": {Events: 18_662, Known: 41, Blocks: 84}, "login-stuffing": {Events: 9_120, Blocks: 60},
		"search-hammer": {Events: 311, Blocks: 9}, "": {Events: 212, Blocks: 3},
	}
	const ip, device, user, key = traffic.FieldIP, traffic.FieldDevice, traffic.FieldUser, traffic.FieldAPIKey
	s.rules = []rulestore.Rule{
		sceneRule("catalogue-scrape", "discovery", "GET", "/api/v2/catalogue/*", 600, 5*time.Minute, time.Hour, rules.ModeShadow, ip),
		sceneRule("guest-token-flood", "identity-platform", "POST", "/oauth/guest-token", 20, time.Minute, 15*time.Minute, rules.ModeBlock, ip, device),
		sceneRule("login-stuffing", "identity-platform", "POST", "/login", 8, time.Minute, 30*time.Minute, rules.ModeBlock, ip),
		sceneRule("partner-burst", "partners", "", "/partner/{id}/*", 1200, time.Minute, 0, rules.ModeShadow, key),
		sceneRule("search-hammer", "discovery", "GET", "/api/v2/search", 90, time.Minute, 30*time.Minute, rules.ModeCanary, ip),
		sceneRule("playback-restart", "player", "POST", "/playback/{title}/start", 30, 10*time.Minute, 20*time.Minute, rules.ModeShadow, user, device),
	}
	s.rules[1].Newest.Version.Allow, s.rules[2].Newest.Version.Allow = []string{"offices"}, []string{"offices",
		"partners"}
	s.allow = sceneAllow()
	for i := range s.rules {
		if s.rules[i].Mode == rules.ModeShadow {
			s.rules[i].Reason, s.rules[i].ChangedBy = "", "jonas"
		}
	}
	s.rules[4].Canary = &rulestore.Canary{
		Share: 1000, Step: 2, Steps: rules.CanaryOf(&s.rules[4].Newest.Version.Document).Steps, Hold: promotion.Span(30 * time.Minute), Since: s.now.Std().Add(-11 * time.Minute),
		Predicted: promotion.Prediction{KnownGood: 0.004, Traffic: 0.012},
	}
	p := s.rules[1].Newest
	p.Version.Number, p.Version.Limit, p.Version.Pending, p.Created, p.Reason = 4, 10, true, s.now.Std().Add(-time.Hour), "twenty tokens a minute are still a farm"
	s.rules[1].Pending = &p
	for ago := 7 * 24 * 3600; ago > 0; ago -= 60 + s.random.IntN(900) {
		s.episode(s.now.Add(-time.Duration(ago)*time.Second), ago > 400)
	}
	for i := range 6 {
		s.episode(s.now.Add(-time.Duration(20+i*45)*time.Second), false)
	}
	s.release("guest-token-flood", "198.51.100.77", "living-room-4411", s.now.Add(-9*time.Minute), "mara")
	s.release("login-stuffing", "203.0.113.200", "", s.now.Add(-31*time.Minute), "on-call (ticket 4711)")
	s.pulse = console.Pulse{Gates: gates(s.now)}
	s.pulse.Stages = []console.StageLag{{Stage: "route", Records: 41}, {Stage: "detect", Records: 18},
		{Stage: "record"}, {Stage: "enforce"}}
	for i, e := range []audit.Entry{
		{Actor: "mara", Action: "release", Object: "block login-stuffing ip=203.0.113.200%2F32", Reason: "a school behind one address (ticket 4711)"},
		{Actor: "mara", Action: "promote", Object: "rule guest-token-flood", Reason: "two days of shadow, no viewer among the hits", Detail: "version 3, generation 2",
			Before: "shadow, version 3 (document 0f1e2d3c4b5a), generation 1", After: "block, version 3 (document 0f1e2d3c4b5a), generation 2", Via: "oidc"},
		{Actor: "jonas", Action: "apply", Object: "rule guest-token-flood", Reason: "", Detail: "limit: 10 → 20"},
		{Actor: "token:deploy", Action: "apply", Object: "rule catalogue-scrape", Reason: "weekly review", Detail: "new"},
	} {
		e.At = s.now.Std().Add(-time.Duration(31+i*900) * time.Minute)
		s.entries = append(s.entries, e)
	}
	return s
}

// sceneAllow are the allow lists of a scene.
func sceneAllow() []rulestore.AllowList {
	made := sceneTime().Std().Add(-9 * 24 * time.Hour)
	return []rulestore.AllowList{
		{Version: 4, Created: made, Author: "jonas", Rules: []string{"guest-token-flood", "login-stuffing"},
			List: rules.AllowList{ID: "offices", Owner: "identity-platform", Entries: []rules.AllowEntry{
				{Kind: rules.AllowCIDR, Value: "198.51.100.0/24", Reason: "the office in the harbour"},
				{Kind: rules.AllowCIDR, Value: "203.0.113.240/28", Reason: "a fair, ticket 4690",
					Until: sceneTime().Add(-24 * time.Hour)},
				{Kind: rules.AllowUser, Value: "u0000042", Reason: "user u0000042 tests every night",
					Until: sceneTime().Add(9 * 24 * time.Hour)},
				{Kind: rules.AllowAPIKey, Value: "pk_live_of_the_monitor", Reason: "our own monitor"},
			}}},
		{Version: 1, Created: made, Author: "mara", Rules: []string{"login-stuffing"},
			List: rules.AllowList{ID: "partners", Owner: "partners"}},
		{Version: 1, Created: made, Author: "mara", Rules: []string{}, List: rules.AllowList{ID: "unused"}},
	}
}

// held is the block id of a block that login-stuffing holds.
func held(s *scene) string {
	for i := range s.listed {
		if b := s.listed[i].Block; b != nil && s.listed[i].Rule == "login-stuffing" {
			return blockID(b.Hit)
		}
	}
	return ""
}

// emptyScene is an installation to which nobody has given a rule.
func emptyScene() *scene {
	s := newScene()
	s.rules, s.hits, s.listed, s.decisions, s.entries, s.allow = nil, nil, nil, nil, nil, nil
	return s
}

func (s *scene) pick(from ...string) string { return from[s.random.IntN(len(from))] }

func (s *scene) identity() traffic.Identity {
	id := traffic.Identity{
		IP:     netip.AddrFrom4([4]byte{203, 0, 113, byte(s.random.IntN(60))}),
		Device: fmt.Sprintf("%s-%04x", s.pick("living-room", "android-tv", "fire-stick", "web"), s.random.IntN(1<<16)),
		User:   fmt.Sprintf("u%07d", s.random.IntN(9_000_000)),
		APIKey: fmt.Sprintf("pk_live_%04x", s.random.IntN(1<<16)),
	}
	switch s.random.IntN(8) {
	case 0: // a name that plays tricks on who reads it
		id.Device = "tv\u202e7-neila\x00\xff"
	case 1, 2:
		id.IP = netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::7", s.random.IntN(1<<16), s.random.IntN(1<<8)))
	}
	return id
}

// episode lets one source go over a rule's limit at the given time; if its rule blocks, it is blocked.
func (s *scene) episode(at traffic.Time, closed bool) {
	r := s.rules[s.random.IntN(len(s.rules))]
	d := r.Newest.Version.Document
	id := s.identity()
	subject, _ := traffic.MakeSubject(&id, d.Key)
	phase := detectors.PhaseUpdate
	last := max(at, min(at.Add(time.Duration(5+s.random.IntN(200))*time.Second), s.now.Add(-time.Second)))
	if closed {
		phase = detectors.PhaseClosed
	}
	over := d.Limit/2 + s.random.IntN(d.Limit*6)
	h := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%016x%016x", s.random.Uint64(), s.random.Uint64()), Rule: d.ID, RuleVersion: 3, Lineage: 1,
		Phase: phase, Subject: subject, Limit: d.Limit, WindowMS: d.Window.Milliseconds(), Count: int64(over),
		Peak: d.Limit + 1 + over/3, First: at, Last: last, Seen: last, Users: s.random.IntN(4), Devices: 1 + s.random.IntN(9), Source: 3, Offset: int64(len(s.hits)) * 1311,
		Samples: []string{s.before(&id, &d, at.Add(-2*time.Second)), s.before(&id, &d, at.Add(-time.Second)), s.sample(&id, &d, at), s.sample(&id, &d, at.Add(40*time.Millisecond)), s.sample(&id, &d, at.Add(95*time.Millisecond))},
	}
	if d.Block != nil {
		h.BlockSubject, _ = traffic.MakeSubject(&id, d.Block.Key)
	}
	s.hits = append(s.hits, history.RecordedHit{Stream: history.Live, Hit: h, SeenFirst: at})
	if !r.Mode.Blocks() {
		return
	}
	if r.Mode == rules.ModeCanary && s.random.IntN(4) > 0 {
		s.decisions = append(s.decisions, history.RecordedDecision{Stream: history.Live, Decision: blocklist.Decision{
			Action: blocklist.ActionWithheld, Rule: d.ID, Subject: h.BlockSubject, Hit: h.ID, Since: at, Until: last.Add(d.Block.TTL), At: at.Add(300 * time.Millisecond), Reason: blocklist.ReasonCanary,
		}})
		return
	}
	until := last.Add(d.Block.TTL)
	s.decisions = append(s.decisions, history.RecordedDecision{Stream: history.Live, Decision: blocklist.Decision{
		Action: blocklist.ActionWritten, Rule: d.ID, Subject: h.BlockSubject, Hit: h.ID, Since: at, Until: until, At: at.Add(300 * time.Millisecond),
	}})
	if until > s.now {
		s.listed = append(s.listed, blocklist.Listed{Subject: h.BlockSubject, Rule: d.ID, InForce: true, Block: &blocklist.Block{
			Format: 1, Action: "block", Scope: "match", Rule: d.ID, Generation: r.Generation, Hit: h.ID, Since: at, Until: until, Extended: last > at,
		}})
	}
}

// before is a sample from before the limit.
func (s *scene) before(id *traffic.Identity, d *rules.Document, at traffic.Time) string {
	text, _ := traffic.MarkSample([]byte(s.sample(id, d, at)), traffic.SampleBefore)
	return string(text)
}

func (s *scene) sample(id *traffic.Identity, d *rules.Document, at traffic.Time) string {
	method := "GET"
	if len(d.Match.Methods) > 0 {
		method = d.Match.Methods[0]
	}
	text, err := json.Marshal(traffic.Sample{
		Time: at, IP: id.IP.String(), Device: traffic.Printable(id.Device), User: id.User, APIKey: "4f2a", Method: method, Host: "api.example.com", Path: d.Match.Path,
		Status: 200, UserAgent: s.pick("okhttp/4.12.0", "python-requests/2.31.0", "Mozilla/5.0 (X11; Linux x86_64) <img src=x onerror=alert(1)>"), Gateway: "edge-2",
	})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *scene) release(rule, ip, device string, at traffic.Time, by string) {
	key := []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}
	if device != "" {
		key = append(key, traffic.KeyField{Field: traffic.FieldDevice})
	}
	subject, _ := traffic.MakeSubject(&traffic.Identity{IP: netip.MustParseAddr(ip), Device: device}, key)
	s.listed = append(s.listed, blocklist.Listed{Subject: subject, Rule: rule, Tombstone: &blocklist.Tombstone{
		Format: 1, Action: "release", Rule: rule, Released: at, Until: at.Add(24 * time.Hour), By: by,
	}})
}

// many makes so many rules of the scene's own.
func (s *scene) many(n int) *scene {
	for i := len(s.rules); i < n; i++ {
		r := s.rules[i%6]
		r.Newest.Version.ID = fmt.Sprintf("%s-%d", r.Newest.Version.ID, i)
		s.rules = append(s.rules, r)
	}
	return s
}

// ruleStore is the rule store of a scene.
type ruleStore struct{ *scene }

func (s ruleStore) List(context.Context) ([]rulestore.Rule, error) {
	return slices.Clone(s.rules), s.away["rules"]
}

func (s ruleStore) Find(_ context.Context, id string) (rulestore.Rule, error) {
	for _, r := range s.rules {
		if r.Newest.Version.ID == id {
			return r, s.away["rules"]
		}
	}
	return rulestore.Rule{}, fmt.Errorf("rule %q: %w", id, postgres.ErrNotFound)
}

func (s ruleStore) AllowLists(context.Context) ([]rulestore.AllowList, error) {
	return slices.Clone(s.allow), s.away["rules"]
}

func (s *scene) Decisions(_ context.Context, q history.DecisionQuery) ([]history.RecordedDecision, error) {
	var out []history.RecordedDecision
	for _, d := range s.decisions {
		if (q.Hit == "" || d.Hit == q.Hit) && d.At >= q.Since && (q.Source == nil || strings.Contains(string(d.Subject), "203.0.113.7%")) {
			out = append(out, d)
		}
	}
	slices.Reverse(out)
	return out[:min(len(out), q.Limit)], s.away["history"]
}

func (s *scene) RefusedIn(_ context.Context, q history.RefusalQuery) (history.RefusedTotal, error) {
	return s.refused[q.Rule], nil
}

func (s *scene) FalsePositives(_ context.Context, rule string, _, _ traffic.Time) (history.FalsePositives, error) {
	if s.refused[rule].Events == 0 {
		none := history.Share{Why: "gates refused nothing"}
		return history.FalsePositives{Released: history.Share{Why: "no block was written"}, KnownGood: none}, nil
	}
	return history.FalsePositives{
		Released: history.Share{Some: 2, All: 84},
		KnownGood: history.Share{Some: history.Figure(s.refused[rule].Known),
			All: history.Figure(s.refused[rule].Events)},
	}, nil
}

func (s *scene) NotCounted(context.Context, string, traffic.Time) (history.NotCounted, error) {
	return history.NotCounted{Complete: true}, s.away["history"]
}

func (s *scene) List(_ context.Context, _ traffic.Time, filter blocklist.Filter) (blocklist.Listing, error) {
	if err := s.away["redis"]; err != nil {
		return blocklist.Listing{}, err
	}
	if filter.Subject != "" {
		all := slices.Concat(s.listed, s.beyond)
		all = slices.DeleteFunc(all, func(l blocklist.Listed) bool { return !filter.Holds(&l) })
		return blocklist.Listing{Items: all}, nil
	}
	return blocklist.Listing{Items: slices.Clone(s.listed), Cut: len(s.beyond) > 0}, nil
}

var (
	_ Rules   = ruleStore{}
	_ History = (*scene)(nil)
	_ Blocks  = (*scene)(nil)
)

func (s *scene) options() Options {
	return Options{
		Rules: ruleStore{s}, History: s, Blocks: s, Explorer: explorer{s}, Evidence: s, Views: s.views, Acts: s.does, Pulse: func() console.Pulse { return s.pulse }, Clock: func() traffic.Time { return s.now },
		Witness: &s.witness, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

func newPages(t testing.TB, o Options) *Pages {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// as lets everybody who asks be one person.
func as(v access.Visit, to http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to.ServeHTTP(w, r.WithContext(access.WithVisit(r.Context(), v)))
	})
}

func admin() access.Visit {
	return access.Visit{Actor: access.Actor{Name: "mara", Role: access.Admin, Via: access.ViaOIDC}, CSRF: "token-of-the-session"}
}

// gates are one that is as it should be, and one that reads other clients than the stream does, on a machine of a long
// name.
func gates(now traffic.Time) []console.Gate {
	long := strings.Repeat("edge-of-the-world-", 4) + "1-0123456789ab"
	good := blocklist.GateReport{
		Instance: "edge-7-31-abcdef012345", Build: "1.4.0", Blocks: 14, Passed: 4_812_337, Refused: 90_221,
		Started: now, At: now,
	}
	other := blocklist.GateReport{Instance: long, Build: "1.3.2", Blocks: 14, Passed: 12, FailedOpen: 3,
		WouldRefuse: 8, Started: now, At: now}
	return []console.Gate{{GateReport: good}, {GateReport: other,
		Doubts: []string{"reads requests by another identity map"}}}
}
