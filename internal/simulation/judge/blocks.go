package judge

import "slices"

// Change is one write to a block key or to its tombstone, as the store saw it.
type Change struct {
	At            int64
	Rule, Subject string
	Tombstone     bool
	Removed       bool // the key was deleted; the rest is empty
	Generation    int64
	Hit           string
	Since, Until  int64 // Since of a tombstone is when it was released
}

// Mode is what a rule's mode became.
type Mode struct {
	From       int64
	Rule       string
	Generation int64
	Blocks     bool
}

// Offence is a record of the hits topic that may block.
type Offence struct {
	Hit, Rule, Subject string
	Opens              bool  // it is the first record of the hit
	First, Last        int64 // over events so far
}

// Enforcement is what ENFORCE was given and what it did.
type Enforcement struct {
	Changes   []Change // in their order
	Modes     []Mode
	Offences  []Offence
	Releases  map[string]int // requests that the hits topic holds, by block
	Decisions map[string]int // on the blocks topic: by the hit that they name, and by Name for a release
	TTL       map[string]int64
	OnHit     map[string]bool // by rule: an update extends
}

// Name names a block as Enforcement.Releases does.
func Name(subject, rule string) string { return subject + " by " + rule }

// Blocks judges ENFORCE: expiries are only raised, what was released is not blocked again by the same past, only rules
// in block mode block, each block follows from a hit, and each hit of a rule that blocks all the time is answered.
func (e *Enforcement) Blocks() Verdict {
	var v Verdict
	blocks, tombstones := map[string]Change{}, map[string]Change{}
	raised := map[string]int64{}
	for _, c := range e.Changes {
		name := Name(c.Subject, c.Rule)
		switch {
		case c.Tombstone:
			v.Seen.Tombstones++
			e.tombstone(&v, name, c, tombstones)
		case c.Removed:
			delete(blocks, name)
		default:
			v.Seen.Blocks++
			e.block(&v, name, c, blocks, tombstones)
			raised[name] = max(raised[name], c.Until)
		}
	}
	for _, o := range e.Offences {
		e.answered(&v, o, raised)
	}
	for name, requests := range e.Releases {
		if _, done := tombstones[name]; requests > 0 && !done {
			v.say("%s was released, and has no tombstone", name)
		}
	}
	return v
}

func (e *Enforcement) tombstone(v *Verdict, name string, c Change, tombstones map[string]Change) {
	was, known := tombstones[name]
	switch {
	case c.Removed:
		v.say("the tombstone of %s was removed", name)
	case e.Releases[name] == 0:
		v.say("%s has a tombstone, and nobody released it", name)
	case known && c.Since < was.Since:
		v.say("the tombstone of %s fell from %d to %d", name, was.Since, c.Since)
	}
	if !c.Removed {
		tombstones[name] = c
	}
}

func (e *Enforcement) block(v *Verdict, name string, c Change, blocks, tombstones map[string]Change) {
	was, known := blocks[name]
	if known && was.Until > c.At && was.Generation > c.Generation {
		v.say("the block of %s fell from mode generation %d to %d", name, was.Generation, c.Generation)
	}
	if known && was.Until > c.At && was.Generation == c.Generation && c.Until < was.Until {
		v.say("the block of %s was lowered from %d to %d", name, was.Until, c.Until)
	}
	if t, released := tombstones[name]; released && (c.Since <= t.Since || c.Hit == t.Hit) {
		v.say("%s was blocked again at %d by hit %s of %d, released at %d", name, c.At, c.Hit, c.Since, t.Since)
	}
	if !slices.ContainsFunc(e.Modes, func(m Mode) bool {
		return m.Rule == c.Rule && m.Generation == c.Generation && m.Blocks && m.From <= c.At
	}) {
		v.say("%s was blocked at %d under mode generation %d, which blocks nobody", name, c.At, c.Generation)
	}
	if !slices.ContainsFunc(e.Offences, func(o Offence) bool {
		return o.Hit == c.Hit && o.Rule == c.Rule && o.Subject == c.Subject && e.until(&o) == c.Until
	}) {
		v.say("%s is blocked until %d by hit %s, which the hits topic does not say", name, c.Until, c.Hit)
	}
	blocks[name] = c
}

// until is how long a record of a hit blocks, by the rule's own words.
func (e *Enforcement) until(o *Offence) int64 {
	if e.OnHit[o.Rule] {
		return o.Last + e.TTL[o.Rule]
	}
	return o.First + e.TTL[o.Rule]
}

// answered asks that the opening of an episode had its effect, if its rule has blocked from the beginning.
func (e *Enforcement) answered(v *Verdict, o Offence, raised map[string]int64) {
	always := false
	for _, m := range e.Modes {
		if m.Rule == o.Rule {
			always = m.Blocks && m.From == 0 && m.Generation == 1
			if !always {
				return
			}
		}
	}
	name := Name(o.Subject, o.Rule)
	if !always || !o.Opens || raised[name] >= e.until(&o) || e.Decisions[o.Hit] > 0 {
		return
	}
	v.say("hit %s opened for %s, and was neither blocked nor withheld", o.Hit, name)
}
