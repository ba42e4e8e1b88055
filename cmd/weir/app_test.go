package main

import (
	"errors"
	"testing"
)

func TestNameless(t *testing.T) {
	named := func(name string) func() (string, error) { return func() (string, error) { return name, nil } }
	for _, tc := range []struct {
		uid      int
		hostname func() (string, error)
		want     string
	}{
		{65532, named("3f9c0a7b51de"), "uid 65532@3f9c0a7b51de"},
		{0, named("edge-1"), "uid 0@edge-1"},
		{65532, named(""), "uid 65532"},
		{65532, func() (string, error) { return "", errors.New("no host name") }, "uid 65532"},
		{-1, named("desk"), "unknown"},
	} {
		if got := nameless(tc.uid, tc.hostname); got != tc.want {
			t.Errorf("%d: got %q, want %q", tc.uid, got, tc.want)
		}
	}
}
