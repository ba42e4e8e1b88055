//go:build !race

package demo_test

const slowBuild = false
