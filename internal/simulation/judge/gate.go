package judge

// A gate's bounds, in microseconds.
const (
	Acts    = 2_000_000 // within so much of its being told, a change acts at a gate that was at work
	resumed = 1_000_000 // after a disturbance it takes a gate so much to go on
	noticed = 4_000_000 // and so much to notice that it has missed something
)

// Kept is what Redis keeps under the two names of one block, and what gates could read of its newest change.
type Kept struct {
	Rule              string
	Generation, Until int64 // of the block; Until 0: there is none
	Released          int64 // of the tombstone; 0: there is none
	Told              Told
}

// Told is the newest entry of a delta stream about one block.
type Told struct {
	At                          int64 // 0: there was none
	Lost                        bool  // it was gone before everybody was bound to have read it
	Generation, Until, Released int64 // of what it says
}

// current reports whether what was told is what stands.
func (k *Kept) current() bool {
	if k.Until == 0 {
		return k.Released == k.Told.Released
	}
	return k.Generation == k.Told.Generation && k.Until == k.Told.Until
}

// Gate is what a gate can be asked to know.
type Gate struct {
	Now   int64
	Since int64           // nothing has been in its way since then
	Lost  int64           // when a delta was last lost
	Whole bool            // it says that nothing is missing
	Quiet bool            // nothing has happened for long: it must hold what Redis holds
	Modes map[string]Mode // the newest, From: when gates could read of it
}

// Answer is what a gate must say of a request.
type Answer struct {
	Until int64 // it is held until then; 0: it is not
	Exact bool  // and not for longer: a release that went before may be among what the gate has missed
}

// Answer is what g must say of a request that the blocks of list are about, and whether it must know.
func (g *Gate) Answer(list []*Kept) (a Answer, known bool) {
	a.Exact = true
	for _, k := range list {
		mode, loaded := g.Modes[k.Rule], g.loaded(k)
		if !loaded && !g.followed(k) || !g.Quiet && g.Now-max(mode.From, g.Since) <= Acts {
			return Answer{}, false
		}
		switch {
		case !mode.Blocks || k.Generation < mode.Generation: // or it was released
		case k.Until > g.Now && k.Released != 0 && !loaded:
			// A gate that has missed the release may hold a longer block from before in the place of this one: a load that
			// reads the tombstone takes that out, and comes to the block later.
			return Answer{}, false
		case k.Until > g.Now:
			a.Until, a.Exact = max(a.Until, k.Until), a.Exact && loaded
		case !loaded:
			return Answer{}, false // it is over, but one that went before may have been for longer
		}
	}
	return a, true
}

// Allows reports whether held until is as it must be.
func (a Answer) Allows(until int64) bool { return until == a.Until || !a.Exact && until > a.Until }

// followed: the gate was at work when it was told, long enough ago.
func (g *Gate) followed(k *Kept) bool {
	return k.current() && !k.Told.Lost && k.Told.At > g.Since+resumed && g.Now-k.Told.At > Acts
}

// loaded: the gate says that it misses nothing, and has had the time to notice if it does.
func (g *Gate) loaded(k *Kept) bool {
	return g.Quiet || k.current() && g.Whole && g.Now-max(k.Told.At, g.Since, g.Lost) > noticed
}
