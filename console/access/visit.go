package access

import (
	"context"
	"time"
)

// Visit is a request's share of what sign-in knows.
type Visit struct {
	Actor Actor
	// CSRF is the token that each form of a page carries in its field CSRFField, and each script's request in the header CSRFHeader.
	// It is empty where none is asked for: of tokens, whose callers no foreign page can speak for.
	CSRF string
	// Until is when the session ends whatever happens; zero where it does not.
	Until time.Time
}

// Where the token against cross-site request forgery stands in a request that changes something.
const (
	CSRFField  = "csrf"         // of a form
	CSRFHeader = "X-Csrf-Token" // of everything else
)

type visitKey struct{}

// With returns a context whose requests are actor's.
func With(ctx context.Context, actor Actor) context.Context {
	return WithVisit(ctx, Visit{Actor: actor})
}

// WithVisit is With, with what else sign-in knows.
func WithVisit(ctx context.Context, v Visit) context.Context {
	return context.WithValue(ctx, visitKey{}, v)
}

// From returns who ctx's requests are of: nobody, who may do nothing, where sign-in has not been asked.
func From(ctx context.Context) Actor { return VisitOf(ctx).Actor }

// VisitOf returns all that sign-in knows of a request.
func VisitOf(ctx context.Context) Visit {
	v, _ := ctx.Value(visitKey{}).(Visit)
	return v
}
