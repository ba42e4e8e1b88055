package service

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/weirhq/weir/cmd/weir/internal/config"
)

// The resident memory of a process that detects stays within 5/4 of the budgets of its partitions, plus residentBase: the
// queues and buffers of the stages, which do not grow with budgets, and the program itself (residentProgram), which the runtime
// does not count.
const (
	residentBase    = 400 << 20
	residentProgram = 64 << 20
)

// memoryLimit is the runtime's memory limit for a process that owns so many partitions. Without a limit the heap grows to twice
// the live data, and most of a process's memory would lie outside the budget.
func memoryLimit(budget int64, partitions int) int64 {
	return budget*int64(partitions)/4*5 + residentBase - residentProgram
}

// holdMemory returns a function to call with the number of partitions that this process owns, which sets the limit. Where the
// user has set GOMEMLIMIT, it does nothing. Below the limit GOGC holds, the runtime's or the user's.
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
