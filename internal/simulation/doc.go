// Package simulation proves, seed by seed, that weir counts exactly once. It runs the production ROUTE, DETECT, RECORD and
// ENFORCE over a world of fakes (logs, groups, commits, stores, PostgreSQL, Redis) in which processes crash and freeze,
// groups rebalance, appends and commits are lost, late or done without an answer, snapshots are torn, source partitions
// stall and events come late; then internal/simulation/judge says whether the keyed log, the history and the blocks are
// what the requests log asks for, and whether a gate knew of them in time.
//
// It is all tests: docs/simulation.md says what it proves, how to run it, and which sentences of the protocol it has been
// seen to need.
package simulation
