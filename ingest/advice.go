package ingest

// Advise adds to err what to do about it. The text is err's, a semicolon and the advice; the result has a method Advice() string,
// which errors.As finds, and wraps err.
func Advise(err error, advice string) error { return &advisedError{err, advice} }

type advisedError struct {
	err    error
	advice string
}

func (e *advisedError) Error() string { return e.err.Error() + "; " + e.advice }

func (e *advisedError) Unwrap() error { return e.err }

// Advice is what to do about the error.
func (e *advisedError) Advice() string { return e.advice }
