package service

import (
	"fmt"
	"log/slog"

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
