package service

import (
	"strings"
	"testing"
)

// A machine may have any name; that of a gate is one that Redis' readers take.
func TestNamesOfGates(t *testing.T) {
	for name, want := range map[string]string{
		"edge-7-31-0123456789ab":              "edge-7-31-0123456789ab",
		"Büro {1}:a\n-31-0123456789ab":        "B-ro--1--a--31-0123456789ab",
		strings.Repeat("x", 200) + "-31-0123": strings.Repeat("x", 120) + "-31-0123",
		"\xff\u202e-31-0123456789ab":          "---31-0123456789ab",
	} {
		if got := plainName(name); got != want {
			t.Errorf("%q is called %q, want %q", name, got, want)
		}
	}
}
