//go:build race

package order

const raceDetector = true
