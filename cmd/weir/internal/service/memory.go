package service

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/weirhq/weir/cmd/weir/internal/config"
)

// The resident memory of a process that detects stays within 5/4 of the budget of the partitions that it owns, and
// residentBase. In residentBase are what does not follow the budget, queues and buffers of the stages, and the program
// itself, of which the runtime knows nothing: that is residentProgram.
const (
	residentBase    = 400 << 20
	residentProgram = 64 << 20
)

// memoryLimit is what the runtime may take of the system for a process that owns so many partitions. Left to itself, it takes
// twice what is held: the budget would be the lesser part of what a process needs.
func memoryLimit(budget int64, partitions int) int64 {
	return budget*int64(partitions)/4*5 + residentBase - residentProgram
}

// holdMemory returns what is to be told how many partitions this process owns. Who sets GOMEMLIMIT has decided otherwise. Beneath
// the limit GOGC holds, the runtime's or the user's.
func holdMemory(budget int64, log *slog.Logger) func(partitions int) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func(int) {}
	}
	return func(partitions int) {
		limit := memoryLimit(budget, partitions)
		debug.SetMemoryLimit(limit)
		log.Debug("memory limit set", "partitions", partitions, "budget", config.Size(budget), "limit", config.Size(limit))
	}
}
