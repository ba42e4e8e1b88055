package detectors

// tokenBucket holds burst tokens (limit where the rule names no burst), gets limit of them back per window, evenly and
// up to burst, and each event takes one. An event is over when there is none left for it; it then takes nothing.
//
// Exact, in whole numbers. The state is the number of missing tokens, so a change of limit or burst changes the remaining
// tokens by as much. For late events see bucket.
//
// Memory: nothing beside the slot.
//
// As in Turner, "New directions in communications (or which way to the information age?)", IEEE Communications
// Magazine 24(10), 1986, seen from the other side.
type tokenBucket struct{ bucket }

var _ algorithm = (*tokenBucket)(nil)

func (t *tokenBucket) add(c *cell, ev *event) { t.pour(c, ev) }
