package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
)

// KafkaOptions configure a Kafka. Dir and Logger are required.
type KafkaOptions struct {
	// Dir keeps topics, records and commits; made if it is missing. On disk they take a sixth of the memory.
	Dir string
	// Port on loopback; 0 is any free one.
	Port   int
	Logger *slog.Logger
}

// Kafka is a cluster of one broker inside this process that speaks Kafka's protocol. What it has acknowledged survives
// the process, even one that is killed; a power cut may take the last seconds.
type Kafka struct {
	cluster *kfake.Cluster
	log     *brokerLog
}

// StartKafka starts a broker that goes on where the last one in the same Dir ended.
func StartKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// kfake takes the port first, but tells too little of why it could not.
	probe, err := net.Listen("tcp", address(o.Port))
	if err != nil {
		return nil, portError("Kafka", o.Port, err)
	}
	if err := probe.Close(); err != nil {
		return nil, portError("Kafka", o.Port, err)
	}
	if err := forgetMembers(o.Dir); err != nil {
		return nil, fmt.Errorf("Kafka: %w", fileError(o.Dir, err))
	}
	log := &brokerLog{logger: o.Logger}
	options := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.DataDir(o.Dir),
		// Retention is swept hourly unless told otherwise; who waits for it in a test needs it soon.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "200"}),
		kfake.WithLogger(log),
	}
	if o.Port != 0 {
		options = append(options, kfake.Ports(o.Port))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return nil, fmt.Errorf("Kafka: %w", fileError(o.Dir, err))
	}
	return &Kafka{cluster: cluster, log: log}, nil
}

// forgetMembers has a broker that was closed come back as one that was killed: without the members that consumer groups had, who join anew. The
// broker counts a member that it has brought back out twice where the timeouts of its session and of a rebalance pass together, on a machine that
// was suspended, and nobody can join that group any more (kfake, restoreClassicMembers). What was committed lies elsewhere.
func forgetMembers(dir string) error {
	if err := os.Remove(filepath.Join(dir, "session_state.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Addresses are the brokers, host:port each.
func (k *Kafka) Addresses() []string { return k.cluster.ListenAddrs() }

// Cluster is the broker itself, for tests that make it fail.
func (k *Kafka) Cluster() *kfake.Cluster { return k.cluster }

// Close stops the broker and writes down what a start needs to be quick.
func (k *Kafka) Close() error {
	k.log.closing()
	k.cluster.Close()
	return k.log.failure()
}

// brokerLog passes the broker's warnings on, and keeps its errors while it closes, which it reports in no other way.
type brokerLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	ends bool
	errs []error
}

var _ kfake.Logger = (*brokerLog)(nil)

// Logf is called by the broker.
func (l *brokerLog) Logf(level kfake.LogLevel, format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	switch level {
	case kfake.LogLevelError:
		if !l.keep(text) {
			l.logger.Error("Kafka on this machine", "says", text)
		}
	case kfake.LogLevelWarn:
		l.logger.Warn("Kafka on this machine", "says", text)
	}
}

func (l *brokerLog) keep(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends {
		l.errs = append(l.errs, fmt.Errorf("Kafka: %s", text))
	}
	return l.ends
}

func (l *brokerLog) closing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = true
}

func (l *brokerLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}
