package demo

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Fault is a way to break detection on purpose, so that a test can see Judge notice it. The zero value breaks nothing.
type Fault int

// The faults.
const (
	FaultNone             Fault = iota
	FaultEventsLost             // one abuser's events never reach Kafka
	FaultNeighbourBlocked       // a viewer is held by the block of the abuser behind the same address
	FaultBlockStays             // a block that holds once holds for ever
	FaultLimitOff               // a rule fires one request too late
)

// Rules is the rule documents under the fault.
func (f Fault) Rules() []byte {
	if f == FaultLimitOff {
		return bytes.Replace(Rules(), []byte("limit: 20\n"), []byte("limit: 21\n"), 1)
	}
	return Rules()
}

// Emit is emit under the fault.
func (f Fault) Emit(cast []Client, emit EmitFunc) EmitFunc {
	if f != FaultEventsLost {
		return emit
	}
	victim := slices.IndexFunc(cast, func(c Client) bool { return c.Kind.Abuses() })
	if victim < 0 {
		return emit
	}
	of := []byte(`"device":"` + cast[victim].Device + `"`)
	return func(ctx context.Context, events []Event) error {
		kept := slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return bytes.Contains(e.Value, of) })
		if len(kept) == 0 {
			return nil
		}
		return emit(ctx, kept)
	}
}

// Blocklist is b under the fault.
func (f Fault) Blocklist(cast []Client, b gate.Blocklist) gate.Blocklist {
	switch f {
	case FaultNeighbourBlocked:
		abuser := map[string]string{}
		for _, c := range cast {
			at := slices.IndexFunc(cast, func(o Client) bool { return o.Kind.Abuses() && o.Network == c.Network })
			if c.Kind == KindNeighbour && at >= 0 {
				abuser[c.Device] = cast[at].Device
			}
		}
		return &neighbourBlocked{Blocklist: b, abuser: abuser}
	case FaultBlockStays:
		return &blockStays{Blocklist: b, rules: truthRules(), held: map[source]blocklist.Block{}}
	}
	return b
}

type neighbourBlocked struct {
	gate.Blocklist
	abuser map[string]string // device of the neighbour → of the abuser
}

// Find takes the neighbour for the abuser.
func (n *neighbourBlocked) Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool) {
	if device, ok := n.abuser[id.Device]; ok {
		id.Device = device
	}
	return n.Blocklist.Find(id, request, now)
}

type blockStays struct {
	gate.Blocklist
	rules []oracle.Rule

	mu   sync.Mutex
	held map[source]blocklist.Block
}

// Find remembers what it has found.
func (s *blockStays) Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool) {
	b, ok := s.Blocklist.Find(id, request, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.rules {
		r := &s.rules[i]
		key := source{r.ID, r.Subject(id.IP, id.Device)}
		switch old, known := s.held[key]; {
		case !r.Watches(request.Method, request.Path):
		case ok && b.Rule == r.ID:
			s.held[key] = b
		case !ok && known:
			old.Until = now.Add(time.Minute)
			return old, true
		}
	}
	return b, ok
}
