package demo

import (
	"net/netip"

	"github.com/weirhq/weir/traffic"
)

// Stamp is one request as the gateway has seen it.
type Stamp struct {
	Time    traffic.Time // the one that went into its event; no two requests have the same
	Arrived traffic.Time // before the gate was asked
	Checked traffic.Time // after it: its answer is of a moment between the two
	ID      string
	Client  netip.Addr
	Device  string
	Method  string
	Path    string
	Status  int
	Rule    string // of the block by which weir refused it; else empty
	Block   string // its id, as clients are told it
}

// Refused reports whether weir refused the request.
func (s *Stamp) Refused() bool { return s.Rule != "" || s.Block != "" }

// Ledger is what a gateway has stamped, in the order of time, and what it has failed to tell.
type Ledger struct {
	Stamps     []Stamp
	Dropped    int // events that found the queue full
	Failed     int // events that Emit has given up
	Unrecorded int // requests for which the ledger had no room
}
