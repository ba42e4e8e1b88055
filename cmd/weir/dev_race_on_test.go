//go:build race

package main

// slowBuild: the race detector makes everything ten times as slow.
const slowBuild = true
