package service

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/gate"
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

// Heartbeat makes the part by which an installation knows of the gate, a program of this build.
func Heartbeat(
	c *config.Config, redis *blocklist.Store, g *gate.Gate, blocks *replica.Replica, build string,
) (Part, error) {
	name, err := processName()
	if err != nil {
		return Part{}, err
	}
	h, err := gate.NewHeartbeat(gate.HeartbeatOptions{
		Gate: g, Copy: blocks, Registry: blocklist.NewGateBook(redis), Instance: plainName(name), Build: build,
		Identity: &c.Identity,
	})
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

// NewGate makes a gate and the copy of the blocklist that it asks, which has to be run.
func NewGate(c *config.Config, redis *blocklist.Store, log *slog.Logger, registry prometheus.Registerer) (*gate.Gate, *replica.Replica, error) {
	blocks, err := replica.New(replica.Options{
		Store: redis, NeverBlock: c.NeverBlock, Clock: Now, Logger: log, Registerer: registry,
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
