package service

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/blocklist/signing"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/clocks"
)

// WatchObserveFile makes the part that looks for gate.observe_file; none where that is not set.
func WatchObserveFile(g *gate.Gate, path string) ([]Part, error) {
	if path == "" {
		return nil, nil
	}
	file, err := gate.NewObserveFile(g, path)
	if err != nil {
		return nil, err
	}
	return []Part{{"observe file", file.Run}}, nil
}

// Heartbeat makes the part by which an installation knows of the gate, a program of this build, and of its clock,
// unless that is nil.
func Heartbeat(
	c *config.Config, redis *blocklist.Store, g *gate.Gate, blocks *replica.Replica, clock *clocks.Watch, build string,
) (Part, error) {
	name, err := processName()
	if err != nil {
		return Part{}, err
	}
	o := gate.HeartbeatOptions{
		Gate: g, Copy: blocks, Registry: blocklist.NewGateBook(redis), Instance: plainName(name), Build: build,
		Identity: &c.Identity,
	}
	if clock != nil {
		o.Ahead = clock.Worst
	}
	h, err := gate.NewHeartbeat(o)
	if err != nil {
		return Part{}, err
	}
	return Part{"heartbeat", h.Run}, nil
}

// plainName replaces what may stand in the name of a machine, and not in that of a gate.
func plainName(name string) string {
	const most = 128
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '-'
	}, name)
	return plain[max(0, len(plain)-most):] // its end tells it from others
}

// MissingBlocks says what part of the blocklist is missing from a gate that is ready.
func MissingBlocks(blocks *replica.Replica) string {
	if n := blocks.Missing(); n > 0 {
		return fmt.Sprintf("blocklist: the blocks of %d of Redis's 16384 hash slots have not been read", n)
	}
	return ""
}

// ForeignRedis says that a gate that is ready takes nothing from its Redis any more.
func ForeignRedis(blocks *replica.Replica) string {
	if err := blocks.Foreign(); err != nil {
		return "blocklist: what is known holds, and nothing is taken over: " + err.Error()
	}
	return ""
}

// HeldBack says how many rules a gate does not act on, since their modes are not signed.
func HeldBack(blocks *replica.Replica) string {
	if n := blocks.HeldBack(); n > 0 {
		return fmt.Sprintf("rules held as in shadow: %d, since the rule store has not signed what Redis has of their "+
			"modes", n)
	}
	return ""
}

// NewGate makes a gate and the copy of the blocklist that it asks, which has to be run.
func NewGate(c *config.Config, redis *blocklist.Store, log *slog.Logger, registry prometheus.Registerer) (*gate.Gate, *replica.Replica, error) {
	var signed *signing.Trust
	if c.Gate.ModesKey != "" {
		var err error
		if signed, err = signing.ParseTrust(c.Gate.ModesKey, c.Namespace); err != nil {
			return nil, nil, &usage.Error{Err: fmt.Errorf("gate.modes_key: %w", err)}
		}
	}
	blocks, err := replica.New(replica.Options{
		Store: redis, NeverBlock: c.NeverBlock, Signed: signed, Installation: c.Gate.Installation, Clock: Now,
		Logger: log, Registerer: registry,
	})
	if err != nil {
		return nil, nil, err
	}
	identifier, err := c.Identity.Compile()
	if err != nil {
		return nil, nil, &usage.Error{Err: err}
	}
	g, err := gate.New(gate.Options{
		Blocklist: blocks, Identifier: identifier, Observe: c.Gate.Observe, Clock: Now, Logger: log, Registerer: registry,
	})
	return g, blocks, err
}

// GateTrust is what gates are configured with to act on the modes of one installation only.
type GateTrust struct {
	ModesKey     string `json:"modes_key"`
	Installation string `json:"installation"`
}

// Trust is the GateTrust of the installation that h is of.
func Trust(ctx context.Context, c *config.Config, h *history.Store) (GateTrust, error) {
	seed, err := h.Streams.ModesSeed(ctx)
	if err != nil {
		return GateTrust{}, err
	}
	signer, err := signing.NewSigner(seed, c.Namespace)
	if err != nil {
		return GateTrust{}, err
	}
	name, err := h.Streams.Installation(ctx)
	return GateTrust{ModesKey: signer.String(), Installation: name}, err
}
