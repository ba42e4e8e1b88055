package detectors

import "github.com/weirhq/weir/traffic"

// RoutedMinute is what one router has seen of one minute of event time. Part tells apart the sums that it has opened for the same
// minute, one after the other; each only grows.
type RoutedMinute struct {
	Router string // its name, which no other router has
	Part   int64
	Minute traffic.Time // by the events' own time, as ROUTE has decided it
	Seen   traffic.Time // by the router's clock, when the sum was taken

	Events    int64 // all that could be read
	Refused   int64 // by weir itself; those that follow are of the others
	Unwatched int64 // no rule watches them
	Good      int64 // known_good holds
	Unjudged  int64 // known_good cannot be judged, or there is none
	// Matched counts the events that rules watch, by the rule's id.
	Matched map[string]int64
}
