//go:build race

package blocktest

// slowdown is what the race detector costs.
const slowdown = 5
