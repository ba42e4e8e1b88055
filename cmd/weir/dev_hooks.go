package main

import (
	"github.com/weirhq/weir/internal/demo"
)

// devHooks break weir dev on purpose, for the tests that show that the demo's judge notices. The program has none.
type devHooks struct {
	rules func(documents []byte) []byte
	guard func(demo.Guard) demo.Guard
	emit  func(demo.EmitFunc) demo.EmitFunc
}

// hooked gives value, or what the hook makes of it.
func hooked[T any](hook func(T) T, value T) T {
	if hook == nil {
		return value
	}
	return hook(value)
}
