package gate

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/traffic"
)

// Registry is where gates tell of themselves; a blocklist.GateBook is one.
type Registry interface {
	Report(ctx context.Context, r blocklist.GateReport) error
	Forget(ctx context.Context, instance string) error
}

// Copy is what a gate knows of the blocklist; a replica.Replica is one. No method may wait for anything.
type Copy interface {
	Len() int
	Missing() int
	Behind() time.Duration
	Staleness() time.Duration
	// HeldBack is how many rules it does not act on, since their modes are not signed.
	HeldBack() int
	// Foreign says that Redis is another installation's; nil: it is not.
	Foreign() error
	// Unready says why the copy is not to be relied on; nil: it is.
	Unready() error
}

var _ Registry = (*blocklist.GateBook)(nil)

// HeartbeatOptions configure a Heartbeat. All but Build and Ahead are required.
type HeartbeatOptions struct {
	Gate     *Gate
	Copy     Copy
	Registry Registry
	Instance string // names this gate among all: letters, digits, '.', '_' and '-', another one at each start
	Build    string // of the program
	Identity *traffic.IdentityMap
	// Ahead is by how much Redis' clock is ahead of the gate's, at the least; negative: behind. Nil: it is not known.
	Ahead func() time.Duration
}

// Heartbeat lets an installation know of a gate: every ten seconds it tells Redis what the gate holds and has done, for
// half a minute. No check waits for it, and Redis being away costs nothing but that nobody knows.
type Heartbeat struct {
	o       HeartbeatOptions
	clock   func() traffic.Time
	log     *slog.Logger
	started traffic.Time
	every   time.Duration // blocklist.GateEvery; tests set another
	failing bool

	told *prometheus.CounterVec // outcome
}

const (
	// heartbeatTimeout bounds a report, and farewellTimeout the last word of a gate that stops.
	heartbeatTimeout = 2 * time.Second
	farewellTimeout  = 500 * time.Millisecond

	unreadyOftener = 5 // times as often tells one of itself that is not ready

	reportWritten = "written"
	reportFailed  = "failed"
)

// NewHeartbeat makes a Heartbeat; Run does its work.
func NewHeartbeat(o HeartbeatOptions) (*Heartbeat, error) {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Gate", o.Gate != nil}, {"Copy", o.Copy != nil}, {"Registry", o.Registry != nil},
		{"Instance", o.Instance != ""}, {"Identity", o.Identity != nil},
	} {
		if !p.given {
			return nil, fmt.Errorf("gate: heartbeat: %s is missing", p.name)
		}
	}
	h := &Heartbeat{
		o: o, clock: o.Gate.o.Clock, log: o.Gate.o.Logger, started: o.Gate.o.Clock(), every: blocklist.GateEvery,
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_gate_reports_total",
			Help: "Reports of a gate about itself to Redis, by outcome: " +
				"written, failed (Redis is away or refuses; checks go on).",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{reportWritten, reportFailed} {
		h.told.WithLabelValues(outcome)
	}
	if err := o.Gate.o.Registerer.Register(h.told); err != nil {
		return nil, fmt.Errorf("gate: heartbeat: %w", err)
	}
	return h, nil
}

// Run tells of the gate until ctx is done, takes leave, and returns nil.
func (h *Heartbeat) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			h.leave(ctx)
			return nil
		case <-timer.C:
		}
		h.tell(ctx)
		next := h.every
		if h.o.Copy.Unready() != nil {
			next = h.every / unreadyOftener // it will soon have other news
		}
		timer.Reset(next)
	}
}

func (h *Heartbeat) tell(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	err := h.o.Registry.Report(bounded, h.report())
	switch {
	case err == nil:
		h.told.WithLabelValues(reportWritten).Inc()
		if h.failing {
			h.log.InfoContext(ctx, "the gate tells Redis of itself again")
		}
		h.failing = false
	case ctx.Err() != nil:
	default:
		h.told.WithLabelValues(reportFailed).Inc()
		if !h.failing {
			h.log.WarnContext(ctx, "the gate cannot tell Redis of itself; it goes on, and doctor and console do not know of it",
				"error", err)
		}
		h.failing = true
	}
}

// leave takes back what was told. What it cannot take back is forgotten half a minute later.
func (h *Heartbeat) leave(ctx context.Context) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
	defer cancel()
	if err := h.o.Registry.Forget(bounded, h.o.Instance); err != nil {
		h.log.DebugContext(ctx, "the gate could not take leave of Redis", "error", err)
	}
}

func (h *Heartbeat) report() blocklist.GateReport {
	n := h.o.Gate.metrics.decisions.sums()
	r := blocklist.GateReport{
		Instance: h.o.Instance, Build: h.o.Build, Identity: h.o.Identity.Fingerprint(), Observing: h.o.Gate.Observing(),
		Blocks: h.o.Copy.Len(), Missing: h.o.Copy.Missing(), HeldBack: h.o.Copy.HeldBack(),
		Behind: h.o.Copy.Behind().Seconds(), Staleness: h.o.Copy.Staleness().Seconds(),
		Passed: int64(n.passed), FailedOpen: int64(n.unjudged),
		Refused: int64(n.refused), WouldRefuse: int64(n.wouldRefuse),
		Started: h.started, At: h.clock(),
	}
	if h.o.Ahead != nil {
		r.Clock = h.o.Ahead().Seconds()
	}
	if err := h.o.Copy.Unready(); err != nil {
		r.Unready = cut(err.Error())
	} else if err := h.o.Copy.Foreign(); err != nil {
		r.Foreign = cut(err.Error())
	}
	return r
}

// cut leaves of text what a report may hold: in another installation's name anything may stand.
func cut(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
