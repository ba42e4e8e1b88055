package config

import "fmt"

// UsageError is a mistake in the command line or the configuration, found after the command has begun.
type UsageError struct{ Err error }

// Error is the mistake's own text.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the mistake.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef words a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}
