package blocklist

import (
	"fmt"
	"time"
)

// GateDoubt is why a gate may not do what its installation asks.
type GateDoubt int

// The doubts, worst first.
const (
	GateUnready  GateDoubt = iota // it is not ready
	GateIdentity                  // it reads requests by another identity map than events are read by
	GateStale                     // it does not know of the newest changes
	GateMissing                   // a part of Redis has not been read
)

// Doubted is a doubt with its figures, in words.
type Doubted struct {
	Kind GateDoubt
	Text string
}

// Doubts are what is wrong with a gate of an installation whose identity map in effect has this fingerprint; "": it is
// not known.
func (r *GateReport) Doubts(identity string) (all []Doubted) {
	note := func(kind GateDoubt, format string, args ...any) {
		all = append(all, Doubted{kind, fmt.Sprintf(format, args...)})
	}
	if r.Unready != "" {
		note(GateUnready, "is not ready and lets everybody pass whom it does not know: %s", r.Unready)
	}
	if identity != "" && r.Identity != identity {
		note(GateIdentity, "reads requests by another identity map (%s) than the one in effect (%s), "+
			"so blocks may hold nobody, or others", r.Identity, identity)
	}
	behind := time.Duration(max(r.Behind, r.Staleness) * float64(time.Second))
	if r.Unready == "" && behind > GateBehind {
		note(GateStale, "knows nothing newer than %s: new blocks, releases and demotions do not reach it",
			behind.Round(time.Second))
	}
	if r.Unready == "" && r.Missing > 0 {
		note(GateMissing, "has not read %d of the 16,384 hash slots of Redis: who is blocked there passes", r.Missing)
	}
	return all
}
