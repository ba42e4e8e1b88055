package evidenceoracle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/evidenceoracle"
)

// sent is a request of a named log. The rule counts /a, and its block refuses /b.
type sent struct {
	at   int64 // second of the log
	ip   int
	path string
	good int // as in evidenceoracle.Request
}

// named is a log of which the figures were counted by hand, so that oracle and dossier cannot be wrong together.
type named struct {
	rule                 evidenceoracle.Rule
	same                 bool // its block refuses what it counts
	log                  []sent
	refused, refusedGood int
	episodes             int // all of one source
	good, judged         bool
}

func cases() map[string]named {
	rule := func(window, ttl, lateness, cooldown int64, onHit bool) evidenceoracle.Rule {
		return evidenceoracle.Rule{
			Window: second * window, TTL: second * ttl, Lateness: second * lateness, Cooldown: second * cooldown, OnHit: onHit, Key: []string{"ip"}, Block: []string{"ip"},
		}
	}
	// A log of so many pauses that a partition of it which did not tick would not be waited for.
	late := func(then ...sent) (out []sent) {
		for i := range int64(40) {
			out = append(out, sent{20 * i, 2, "/b", 0})
		}
		return append(out, then...)
	}
	brief := rule(90, 1, 1, 60, false)
	// The block begins at 0, ends at 10, and is raised at 4 to end at 14; its episode ends long after.
	standing := []sent{{0, 1, "/a", 0}, {4, 1, "/a", 0}, {9, 1, "/b", 0}, {12, 1, "/b", 0}, {14, 1, "/b", 0}}
	// The block ends at 100. The request at 4 is within the cooldown, so that only the closing of the episode, at 9, tells of it.
	closing := []sent{{0, 1, "/a", 0}, {4, 1, "/a", 0}, {40, 1, "/b", 0}, {99, 1, "/b", 0}, {102, 1, "/b", 0}, {104, 1, "/b", 0}}
	// With no request until 99 it tells of it a minute and a second late, too late.
	quiet := []sent{{0, 1, "/a", 0}, {4, 1, "/a", 0}, {99, 1, "/b", 0}, {102, 1, "/b", 0}, {104, 1, "/b", 0}}
	// At 10 the block has ended: the request passes, and is over.
	silent := []sent{{0, 1, "/a", 0}, {4, 1, "/a", 0}, {9, 1, "/a", 0}, {10, 1, "/a", 0}, {19, 1, "/a", 0}, {20, 1, "/a", 0}}
	return map[string]named{
		"good only once the episode was closed":    {rule: brief, log: late(sent{800, 1, "/a", 1}, sent{891, 1, "/b", 2}), episodes: 1, judged: true},
		"good while the episode could still go on": {rule: brief, log: late(sent{800, 1, "/a", 1}, sent{890, 1, "/b", 2}), episodes: 1, judged: true, good: true},
		"good before":                               {rule: brief, log: late(sent{799, 1, "/b", 2}, sent{800, 1, "/a", 0}, sent{800, 1, "/b", 0}), refused: 1, refusedGood: 1, episodes: 1, judged: true, good: true},
		"a standing block, extended on hit":         {rule: rule(5, 10, 30, 1, true), log: standing, refused: 2, episodes: 1},
		"a standing block, never extended":          {rule: rule(5, 10, 30, 1, false), log: standing, refused: 1, episodes: 1},
		"a closing beyond the cooldown, on hit":     {rule: rule(5, 100, 0, 60, true), log: closing, refused: 3, episodes: 1},
		"a closing in silence, on hit":              {rule: rule(5, 100, 0, 60, true), log: quiet, refused: 1, episodes: 1},
		"a closing beyond the cooldown, never":      {rule: rule(5, 100, 0, 60, false), log: closing, refused: 2, episodes: 1},
		"a block that refuses what would extend it": {rule: rule(5, 10, 30, 1, true), same: true, log: silent, refused: 3, episodes: 3},
	}
}

// scene is the log as the oracle reads it and as weir does.
func (c *named) scene(begin time.Time) *scene {
	block := "match: {path: /b}"
	if c.same {
		block = ""
	}
	sc := &scene{begin: begin, rule: c.rule, match: "match: {path: /a}\nblock: {key: [ip], %s, " + block + "}\n"}
	for _, q := range c.log {
		sc.log = append(sc.log, evidenceoracle.Request{
			At: begin.UnixMicro() + second*q.at, Watched: q.path == "/a", Reached: q.path == "/b" || c.same, Good: q.good,
			Fields: map[string]string{"ip": fmt.Sprintf("192.0.2.%d", q.ip)},
		})
		sc.paths = append(sc.paths, fmt.Sprintf(`"path":%q,"status":200`, q.path))
	}
	return sc
}

// Dossiers of named logs say what was counted by hand.
func TestDossiersOfNamedLogs(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			for _, idle := range []bool{false, true} {
				sc := c.scene(in.begin())
				sc.idle = idle
				in.watch(t, sc)
				sc.decide(t, in.bed, nil)
				from, to := sc.span()
				d := in.gather(t, from, to.Add(time.Minute))
				figure(t, "sources", d.Held.Sources, 1)
				figure(t, "episodes", d.Held.Episodes, c.episodes)
				figure(t, "refused", d.Held.Requests, c.refused)
				if n, known := d.KnownGood.Requests.Known(); known && int(n) != c.refusedGood {
					t.Errorf("refused of known-good sources: %+v, want %d", d.KnownGood.Requests, c.refusedGood)
				}
				if n, known := d.KnownGood.Sources.Known(); int(n) != one(c.good) || known != c.judged {
					t.Errorf("known-good sources: %+v, want %v, judged %v", d.KnownGood.Sources, c.good, c.judged)
				}
				sc.compare(t, d, nil)
				sc.compareLimits(t, d)
			}
		})
	}
}
