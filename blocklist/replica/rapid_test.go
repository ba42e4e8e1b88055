package replica

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// play is one run of a Replica on a modelled Redis, with all that can happen to it.
type play struct {
	*rapid.T
	m     *modelRedis
	r     *Replica
	f     *follower
	base  traffic.Time
	tick  traffic.Time
	began bool // the follower has been answered
}

func newPlay(t *rapid.T) *play {
	p := &play{T: t, m: newModelRedis(), base: 1_800_000_000_000_000}
	p.r = newModelReplica(t, p.m)
	p.f = &follower{r: p.r}
	for _, rule := range []string{"r1", "r2"} {
		p.m.setMode(rules.ModeState{Rule: rule, Mode: rules.ModeBlock, Generation: 1})
	}
	return p
}

func (p *play) key() blocklist.Name {
	return blocklist.Name{
		Subject: modelSubject(rapid.IntRange(0, modelSubjects-1).Draw(p.T, "subject")),
		Rule:    rapid.SampledFrom([]string{"r1", "r2"}).Draw(p.T, "rule"),
	}
}

// next is a moment that has not been yet.
func (p *play) next() traffic.Time {
	p.tick++
	return p.base.Add(time.Duration(p.tick) * time.Second)
}

func (p *play) n(most int, what string) int { return rapid.IntRange(0, most).Draw(p.T, what) }

// change blocks somebody, or releases him.
func (p *play) change() {
	h, at := p.key(), p.next()
	if p.n(2, "release") == 0 {
		p.m.release(h, blocklist.NewTombstone(h.Rule, "", at, at.Add(time.Hour)))
		return
	}
	p.m.block(h, blocklist.NewBlock(h.Rule, p.m.promote[h.Rule].Generation, at.String(), at, at.Add(time.Hour)))
}

// actions is what others do, at any moment.
func (p *play) actions() map[string]func() {
	return map[string]func(){
		"change": p.change,
		"tell":   p.m.tell,
		"mode": func() {
			rule := rapid.SampledFrom([]string{"r1", "r2"}).Draw(p.T, "rule")
			mode := rapid.SampledFrom([]rules.Mode{rules.ModeBlock, rules.ModeBlock, rules.ModeShadow}).Draw(p.T, "mode")
			p.m.setMode(rules.ModeState{Rule: rule, Mode: mode, Generation: p.m.promote[rule].Generation + 1})
		},
		"trim": func() {
			for _, s := range p.m.streams {
				s.entries = s.entries[p.n(len(s.entries), "trimmed"):]
			}
		},
		"overflow": func() { // more changes than the stream keeps
			for range 1 + p.n(2, "changes") {
				p.change()
			}
			p.m.tell()
			for _, s := range p.m.streams {
				s.entries = nil
			}
			p.change()
			p.m.tell()
		},
		"migrate": func() {
			slot, to := p.n(modelSlots-1, "slot"), p.n(modelNodes-1, "to")
			for p.m.move(slot, to); p.m.moving[slot] >= 0; {
				p.m.move(slot, to)
			}
		},
		"move": func() { p.m.move(p.n(modelSlots-1, "slot"), p.n(modelNodes-1, "to")) },
		"away": func() { n := p.n(modelNodes-1, "node"); p.m.away[n] = !p.m.away[n] && p.n(2, "stays") == 0 },
		"lose": func() {
			switch p.n(7, "what") {
			case 0:
				p.m.flush()
			case 1, 2:
				p.m.failover(p.n(modelNodes-1, "node"), p.n(3, "keys"), p.n(3, "entries"))
			}
		},
		"reconcile": p.m.reconcile,
		"follow":    p.follow,
		"due":       func() { p.r.loads.again(reloadDue) },
	}
}

func (p *play) quietRound() {
	_ = p.r.loads.round(p.T.Context())
	p.r.loads.end(p.T.Context())
}

// round reads everything once, and other things happen meanwhile.
func (p *play) round() {
	if !p.began {
		return // as the loader waits for the follower
	}
	names := []string{"change", "change", "tell", "mode", "overflow", "move", "migrate", "away", "reconcile", "follow", "follow"}
	if p.n(3, "bad luck") == 0 {
		names = append(names, "lose", "lose", "due")
	}
	actions := p.actions()
	p.m.between = func() {
		if p.n(2, "in between") == 0 {
			actions[rapid.SampledFrom(names).Draw(p.T, "meanwhile")]()
		}
	}
	defer func() { p.m.between = func() {} }()
	p.quietRound()
}

// follow is a step of the follower, after which it must know all that it has been told.
func (p *play) follow() {
	if p.n(1, "probe") == 0 {
		p.f.probed = time.Time{}
	}
	mark, _ := p.r.loads.owed()
	if p.f.step(p.T.Context()) != nil {
		return
	}
	p.began = true
	now, _ := p.r.loads.owed()
	p.check(now == mark && p.r.Missing() == 0)
}

// level reports whether the follower has come as far as the streams go, and Redis has not lost anything.
func (p *play) level() bool {
	for name, s := range p.m.streams {
		if p.f.at[name] != s.last {
			return false
		}
	}
	return !p.f.modesOwed && !p.m.lost && p.m.marker
}

// truth is until when a device must be held; false when the Replica cannot know: it is not whole, and was not told.
func (p *play) truth(subject traffic.Subject, whole bool) (until traffic.Time, known bool) {
	for _, rule := range []string{"r1", "r2"} {
		k, mode := p.m.truth[blocklist.Name{Subject: subject, Rule: rule}], p.m.promote[rule]
		switch {
		case k.block != nil && !whole && !p.m.told[blocktest.JSONText(k.block)],
			k.block == nil && !whole && (k.tomb == nil || !p.m.told[blocktest.JSONText(k.tomb)]):
			return 0, false
		case k.block != nil && k.block.InForce(&mode):
			until = max(until, k.block.Until)
		}
	}
	return until, true
}

// check compares what the table holds with what is true. A table that misses nothing is right about everything; one that
// is being loaded is right about what it has been told.
func (p *play) check(whole bool) {
	if !p.level() {
		return
	}
	whole = whole && len(p.m.pending) == 0
	for i := range modelSubjects {
		subject := modelSubject(i)
		want, known := p.truth(subject, whole)
		got, _ := p.r.Find(traffic.Identity{Device: string(subject[len("device="):])}, rules.Target{Method: "GET", Path: "/"}, p.base)
		if known && got.Until != want {
			p.Fatalf("%s is held until %s, want %s (whole: %v)", subject, got.Until, want, whole)
		}
	}
}

// Loads, gaps, failovers, flushes and moving slots in any order: a Replica that says that it misses nothing is right about
// every block, and once all is calm it gets there.
func TestReplicaAgreesWithRedis(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPlay(rt)
		if p.n(1, "begins with all loaded") == 0 {
			p.follow()
			p.quietRound()
			p.follow()
		}
		steps := map[string]func(*rapid.T){"round": func(*rapid.T) { p.round() }}
		for name, act := range p.actions() {
			steps[name] = func(*rapid.T) { act() }
		}
		steps["follow again"] = steps["follow"]
		steps["quiet round"] = func(*rapid.T) {
			if p.began {
				p.quietRound()
			}
		}
		rt.Repeat(steps)

		// What it claims to know, it knows without another load.
		p.m.away = [modelNodes]bool{}
		p.m.tell()
		for range 12 {
			p.follow()
		}
		// And what it lacks, it gets.
		p.m.calm()
		for range 20 {
			p.f.probed = time.Time{}
			if err := p.f.step(rt.Context()); err != nil {
				rt.Fatal(err)
			}
			p.quietRound()
		}
		if p.r.loads.owes() || p.r.Missing() > 0 || !p.level() {
			rt.Fatalf("missing %d slots, at %v, after all became calm", p.r.Missing(), p.f.at)
		}
		p.check(true)
		blocks := 0
		for _, k := range p.m.truth {
			if k.block != nil {
				blocks++
			}
		}
		if p.r.Len() != blocks {
			rt.Fatalf("%d blocks in the table, %d in Redis", p.r.Len(), blocks)
		}
	})
}
