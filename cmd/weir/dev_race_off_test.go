//go:build !race

package main

// slowBuild: see dev_race_on_test.go.
const slowBuild = false
