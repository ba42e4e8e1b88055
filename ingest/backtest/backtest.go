// Package backtest runs events through routing, windows and blocks in process: what shadow would have recorded, and what a
// block would have done. It needs no server and writes nothing.
//
//	files ──▶ blocks of lines ──▶ decoders ──▶ sequence ──▶ windows of keyed partition 0
//	              (in order)      (parallel)   (in order)        …                     7
//
// Decoding is ROUTE's own reading; the sequence gives events the source partitions, offsets and order that `weir ingest
// --replay` would give them; windows are those of detectors.Partition, as many as a replay has. So the hits are those of a
// replay, and the same with any number of workers. In place of files there may be the requests topic of a running
// installation: then places, times and order are those that its routers see, and the hits are those of its stages.
package backtest

import (
	"io"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Options say what is tried. Rules and Format are required.
type Options struct {
	Rules      []rules.Version
	Allow      []rules.AllowList // those that Rules name must be among them
	Identity   traffic.IdentityMap
	KnownGood  string // a condition on events of sources that are known to be good; empty: nobody is known
	Partitions int    // source partitions, as of ingest --partitions; default 1

	// Since and Until bound what is counted: since <= time < until. Zero: no bound. Of a live topic they bound the time at which
	// Kafka took an event; the end is never later than that of the log when the run begins.
	Since, Until traffic.Time
	Reorder      time.Duration // sort by time what is out of order by at most so much

	Format        string // of lines, see format.NewDecoder
	Fields        map[string]string
	MaxEventBytes int // default format.DefaultMaxEventBytes

	Sweep   Sweep
	Workers int   // that decode, and that count; default GOMAXPROCS. The result is the same with any number
	Budget  int64 // bytes of windows in all; default detectors.DefaultBudget
	Top     int   // sources listed per rule; default 10
	NoHits  bool  // keep no episodes but in the sums: Hits gives none, and HitsCut counts none

	// Secret and Generation are part of hit ids: with those of a replay's stream the ids are the replay's. Default: a fixed
	// secret, and generation 1.
	Secret     detectors.Secret
	Generation int64
	// NeverBlock says of a block's subject that ENFORCE would never hold it. nil: all may be held.
	NeverBlock func(traffic.Subject) bool

	Now func() traffic.Time // later events are refused, as in a replay; default the system's clock
}

// Live is the requests topic of a running installation. It is read beside the stages: no group is joined, nothing is committed.
type Live struct {
	Log   ingest.TimedLog
	Topic string // its name, for what is told
	// Rate bounds how many bytes of events a second are asked for; default DefaultLiveRate, less than 0: no bound. What is
	// held of them is bounded as well, by some MiB for each partition.
	Rate int64
	// IdleMargin is that of the installation's detectors; default detectors.DefaultIdleMargin.
	IdleMargin time.Duration
}

// DefaultLiveRate is how many bytes of events a second are read of a live topic at most: what a broker hardly notices.
const DefaultLiveRate = 64 << 20

// Gap is a stretch of a partition of a live topic that could not be read.
type Gap struct {
	Partition int    `json:"partition"`
	From      int64  `json:"from"` // offset; -1: not known, what was asked for begins before the log does
	To        int64  `json:"to"`   // the first offset after it
	Why       string `json:"why"`
}

// The fields that a sweep may change.
const (
	SweepLimit  = "limit"
	SweepWindow = "window"
)

// Sweep tries several values of one field of every rule in one pass. The zero value tries the rules as they are.
type Sweep struct {
	Field   string          // SweepLimit or SweepWindow; empty: no sweep
	Limits  []int           // with SweepLimit
	Windows []time.Duration // with SweepWindow
}

// File is one log file: plain, gzip or zstd, known by its first bytes.
type File struct {
	Name string
	// Open gives what is in the file. Close must end a Read that is under way.
	Open func() (io.ReadCloser, error)
	Size int64 // bytes as they are stored; -1: not known
}

// Progress is how far a run has come. Bytes and Size are of the files as they are stored; Size is -1 where one is not known.
type Progress struct {
	Bytes, Size   int64
	Lines, Events int64
}
