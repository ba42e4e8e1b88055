package detectors

// SlidingExact is the greatest limit at which `sliding` is exact.
const SlidingExact = 128

// pickSliding resolves `sliding`, the default: the exact sliding log up to the limit SlidingExact, and the sliding
// counter above, whose relative error falls as counts grow while the log's memory would rise with them. Of distinct
// values, the newest time of each up to that limit, and rotating sets above.
//
// The choice is made when a lineage gets its first key and holds until it has none left: a limit that is changed across
// SlidingExact meanwhile does not throw the counts away.
func pickSliding(limit int) uint8 {
	if limit <= SlidingExact {
		return kindSlidingLog
	}
	return kindSlidingCounter
}
