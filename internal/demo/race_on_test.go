//go:build race

package demo_test

// slowBuild: the race detector makes everything ten times as slow.
const slowBuild = true
