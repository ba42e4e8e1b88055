package detectors

// leakyBucket holds burst events (limit where the rule names no burst) and leaks evenly, one per window/limit: the
// capacity and leak-speed form of other systems has capacity = burst and leak speed = window/limit. An event is over when
// it does not fit any more. An over event adds nothing, so a source that never rests is over again and again, at the
// rate at which the bucket leaks less often.
//
// It is the generic cell rate algorithm as well (ITU-T I.371): with T = window/limit, the level times T is how far the
// theoretical arrival time lies ahead of the clock. weir keeps the level, because T need not be a whole number of
// microseconds: the arithmetic is exact. For late events see bucket.
//
// Memory: nothing beside the slot.
//
// Source: Turner 1986 (leaky bucket as a meter); CrowdSec's leaky scenarios and nginx's limit_req are the same with
// other names.
type leakyBucket struct{ bucket }

var _ algorithm = (*leakyBucket)(nil)

func (l *leakyBucket) add(c *cell, ev *event) { l.pour(c, ev) }
