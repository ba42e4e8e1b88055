package detectors

// SlidingExact is the greatest limit at which `sliding` is exact.
const SlidingExact = 128

// pickSliding resolves `sliding`, the default: the exact sliding log up to the limit SlidingExact, and slices of the window
// above, whose error is a part of the window and does not grow with the count, while the log's memory would. Of distinct
// values, the times of each up to that limit, and rotating sets above.
//
// The choice is made when a lineage gets its first key and holds until it has none left: a limit that is changed across
// SlidingExact meanwhile does not throw the counts away.
func pickSliding(limit int64, count uint8) uint8 {
	switch {
	case limit <= SlidingExact:
		return kindSlidingLog
	case count == countDistinct:
		return kindSlidingCounter
	}
	return kindSlices
}
