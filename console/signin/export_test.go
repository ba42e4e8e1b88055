package signin

import "time"

// RecheckEvery has long requests asked so often whether their session still is one.
func (g *Guard) RecheckEvery(d time.Duration) { g.recheck = d }
