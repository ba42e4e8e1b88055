// Package order holds the windows to their word on the order of events: whatever order events come in, and however far
// apart the source partitions are read,
//
//   - who is flagged was truly over, by the definition of the rule's algorithm on the time-sorted log (all algorithms and all
//     ways of counting),
//   - who was over is flagged, where docs/windows.md says that order makes no difference,
//   - the first and last time and the count of an episode are those of the time-sorted log, or say that they are a bound.
//
// It drives a detectors.Partition with drawn logs (properties, by pgregory.net/rapid) and with real ones, and asks
// internal/oracle, which shares no code with it. There is nothing here but tests. More cases are tried with
//
//	go test ./internal/order -rapid.checks=10000
//
// To see that the properties find what they are for, carry an event that comes late forward to its key's newest time, in
// any algorithm: give slidingCounter.add and bucket.pour the greater of the event's time and the cell's, or count the
// event in the window of firstSeen that is open when it lies before its start. TestFlaggedIsTrulyOver then fails well within
// 1,000 cases (-rapid.checks=1000), for events, sums and distinct values alike.
package order
