package console

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// scene is an installation in the middle of its day, and how it goes on. Everything but the times is seeded.
type scene struct {
	*stores
	random *rand.Rand
	number int // of episodes
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
	return rulestore.Rule{
		Newest: rulestore.StoredVersion{Version: rules.Version{Document: d, Number: 3, Lineage: 1}}, Mode: mode, Generation: 2,
		Changed: time.Now().Add(-26 * time.Hour), ChangedBy: "mara", Reason: "two days of shadow, no viewer among the hits",
	}
}

// pendingEdit is a stricter version of a rule, an hour old.
func pendingEdit(r *rulestore.Rule) *rulestore.StoredVersion {
	v := r.Newest
	v.Version.Number, v.Version.Lineage, v.Version.Limit, v.Version.Window, v.Version.Pending = v.Version.Number+1, 2, v.Version.Limit/2, 2*time.Hour, true
	v.Created, v.Author, v.Reason = time.Now().Add(-time.Hour), "mara", "twenty tokens a minute are still a farm"
	return &v
}

// newScene is n minutes into its story.
func newScene(minutes int) *scene {
	s := &scene{stores: &stores{}, random: rand.New(rand.NewPCG(7, 11))}
	const ip, device, user, key = traffic.FieldIP, traffic.FieldDevice, traffic.FieldUser, traffic.FieldAPIKey
	s.rules = []rulestore.Rule{
		sceneRule("catalogue-scrape", "discovery", "GET", "/api/v2/catalogue/*", 600, 5*time.Minute, time.Hour, rules.ModeShadow, ip),
		sceneRule("guest-token-flood", "identity-platform", "POST", "/oauth/guest-token", 20, time.Minute, 15*time.Minute, rules.ModeBlock, ip, device),
		sceneRule("login-stuffing", "identity-platform", "POST", "/login", 8, time.Minute, 30*time.Minute, rules.ModeBlock, ip),
		sceneRule("partner-burst", "partners", "", "/partner/{id}/*", 1200, time.Minute, 0, rules.ModeShadow, key),
		sceneRule("playback-restart", "player", "POST", "/playback/{title}/start", 30, 10*time.Minute, 20*time.Minute, rules.ModeShadow, user, device),
	}
	for i := range s.rules {
		if s.rules[i].Mode == rules.ModeShadow {
			s.rules[i].Reason, s.rules[i].ChangedBy = "", "apply"
		}
	}
	s.rules[1].Pending = pendingEdit(&s.rules[1])
	s.pulse = Pulse{Events: 18_204_117, Keyed: 31_977_402, Hits: 1874, Blocks: 212}
	now := wallClock()
	for ago := minutes * 60; ago > 0; ago -= 20 {
		s.episode(now.Add(-time.Duration(ago)*time.Second), ago > 240)
	}
	s.release("guest-token-flood", "198.51.100.77", "living-room-4411", now.Add(-9*time.Minute), "mara")
	s.release("login-stuffing", "203.0.113.200", "", now.Add(-31*time.Minute), "on-call (ticket 4711)")
	s.flow(1)
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
	s.number++
	subject, _ := traffic.MakeSubject(&id, d.Key)
	lasts := time.Duration(5+s.random.IntN(200)) * time.Second
	phase := detectors.PhaseUpdate
	last := max(at, min(at.Add(lasts), wallClock().Add(-time.Second)))
	if closed {
		phase = detectors.PhaseClosed
	}
	h := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%016x%016x", s.random.Uint64(), s.random.Uint64()), Rule: d.ID, RuleVersion: 3, Lineage: 1,
		Phase: phase, Subject: subject, Limit: d.Limit, WindowMS: d.Window.Milliseconds(), Count: int64(d.Limit/2 + s.random.IntN(d.Limit*6)),
		Peak: d.Limit + 1, First: at, Last: last, Seen: last, Users: s.random.IntN(4), Devices: 1 + s.random.IntN(9), Source: 3, Offset: int64(s.number) * 1311,
		Samples: []string{s.sample(&id, &d, at), s.sample(&id, &d, at.Add(40*time.Millisecond)), s.sample(&id, &d, at.Add(95*time.Millisecond))},
	}
	if d.Block != nil {
		h.BlockSubject, _ = traffic.MakeSubject(&id, d.Block.Key)
	}
	s.hits = append(s.hits, history.RecordedHit{Stream: history.Live, Hit: h, SeenFirst: at})
	if r.Mode != rules.ModeBlock {
		return
	}
	if until := last.Add(d.Block.TTL); until > wallClock() {
		s.listed = append(s.listed, blocklist.Listed{Subject: h.BlockSubject, Rule: d.ID, InForce: true, Block: &blocklist.Block{
			Format: 1, Action: "block", Scope: "match", Rule: d.ID, Generation: r.Generation, Hit: h.ID, Since: at, Until: until, Extended: last > at,
		}})
		s.pulse.Blocks++
	}
}

func (s *scene) sample(id *traffic.Identity, d *rules.Document, at traffic.Time) string {
	method := "GET"
	if len(d.Match.Methods) > 0 {
		method = d.Match.Methods[0]
	}
	text, err := json.Marshal(traffic.Sample{
		Time: at, IP: id.IP.String(), Device: traffic.Printable(id.Device), User: id.User, Method: method, Host: "api.example.com", Path: d.Match.Path,
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

// flow lets a part of a second's traffic come in, on average.
func (s *scene) flow(seconds float64) {
	s.change(func(*stores) {
		n := int64(float64(2300+s.random.IntN(420)) * seconds)
		s.pulse.Events += n
		s.pulse.Keyed += n * 7 / 4
		s.pulse.Stages = []StageLag{{"route", int64(s.random.IntN(60))}, {"detect", int64(s.random.IntN(40))}, {"record", 0}, {"enforce", 0}}
		for i := max(0, len(s.hits)-3); i < len(s.hits); i++ {
			s.hits[i].Count += int64(s.random.IntN(2))
			s.hits[i].Last = wallClock()
		}
	})
}

// offend lets one more source go over a limit now.
func (s *scene) offend() {
	s.change(func(*stores) {
		s.episode(wallClock(), false)
		s.pulse.Hits++
	})
}
