// Package kafka implements the ports of ingest over a Kafka cluster: logs, appenders, consumer groups and their commits,
// and what is asked of topics. It is the only package that uses a Kafka library.
package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/clocks"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// Config says how to reach a Kafka cluster (0.11 or newer).
type Config struct {
	Brokers []string    // host:port of one or more brokers to start from; required
	TLS     *tls.Config // nil: no TLS
	SASL    SASL        // zero: no authentication

	// Committed are topics of which a record in a transaction is read when that is committed, as is all that lies
	// behind it. Records of all other topics are read at once, those of aborted transactions, too: nobody can hold up
	// their readers.
	Committed []string

	// The program leaves the times to their defaults; tests shorten them.

	// RequestTimeout bounds each request, beside the time that a fetch may wait for records; default 10 s.
	RequestTimeout time.Duration
	// MetadataTTL is the greatest age of the cached cluster layout, so the time that a moved leader may hurt;
	// default 2 s.
	MetadataTTL time.Duration
	// fetchBytes bounds a fetch answer of one broker, default 16 MiB; partitionFetchBytes bounds the share of one
	// partition in it, default 1 MiB. A larger record batch still comes through, by itself. Tests set them.
	fetchBytes, partitionFetchBytes int

	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: metrics are kept but not published
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Brokers) == 0 {
		return c, errors.New("kafka: no broker addresses are configured: want one or more host:port")
	}
	for _, broker := range c.Brokers {
		if _, port, err := net.SplitHostPort(broker); err != nil {
			return c, fmt.Errorf("kafka: broker address %q: want host:port: %w", broker, err)
		} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return c, fmt.Errorf("kafka: broker address %q: the port must be a number from 0 to 65535", broker)
		}
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = 10 * time.Second
	}
	if c.MetadataTTL <= 0 {
		c.MetadataTTL = 2 * time.Second
	}
	if c.fetchBytes <= 0 {
		c.fetchBytes = 16 << 20
	}
	if c.partitionFetchBytes <= 0 {
		c.partitionFetchBytes = 1 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// clientID is what brokers see in their logs and quotas.
const clientID = "weir"

// Client is a client of one cluster: it makes the Logs, Appenders and Groups that the stages work with. It is safe for
// concurrent use. Requests of different kinds never wait for each other: kafka-go's Transport keeps one request in
// flight per connection and opens another connection when all are busy.
type Client struct {
	cfg       Config
	log       *slog.Logger
	addr      net.Addr
	mechanism sasl.Mechanism
	dials     *dials
	transport *kafka.Transport
	client    *kafka.Client
	metrics   *metrics
	codecs    *codecs
	packers   packers
	heard     clocks.Heard // the brokers' clocks

	life     context.Context // ends with Close: requests that outlive the call which sent them hang on it
	end      context.CancelFunc
	closing  sync.Mutex // orders the start of such a request before or after Close
	inFlight sync.WaitGroup
}

var errKafkaClosed = errors.New("kafka client is closed")

// New checks the configuration; it does not connect yet. See Ping and WaitReady.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	mechanism, err := cfg.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	codecs, err := newCodecs(maxUnpackedBytes)
	if err != nil {
		return nil, err
	}
	k := &Client{
		cfg: cfg, log: cfg.Logger, addr: kafka.TCP(cfg.Brokers...), mechanism: mechanism, metrics: metrics, dials: newDials(),
		codecs: codecs,
	}
	k.life, k.end = context.WithCancel(context.Background())
	k.transport = &kafka.Transport{
		Dial: k.dials.dial, DialTimeout: 5 * time.Second, MetadataTTL: cfg.MetadataTTL, ClientID: clientID,
		TLS: cfg.TLS, SASL: mechanism, Context: k.life,
	}
	k.client = &kafka.Client{Addr: k.addr, Transport: k.transport, Timeout: cfg.RequestTimeout}
	return k, nil
}

// Close ends all connections. Calls that are still under way fail. It is safe to call more than once.
func (k *Client) Close() error {
	k.closing.Lock()
	k.end()
	k.closing.Unlock()
	k.transport.CloseIdleConnections()
	k.dials.close()
	k.inFlight.Wait()
	k.codecs.close()
	return nil
}

// background runs fn, which must end with k.life; nothing is started after Close.
func (k *Client) background(fn func()) {
	k.closing.Lock()
	defer k.closing.Unlock()
	if k.life.Err() == nil {
		k.inFlight.Go(fn)
	}
}

// roundTrip sends one request and waits for its answer. The deadline matters beyond the call: when ctx is cancelled the
// connection still waits for the answer, and only the deadline set here frees it.
func (k *Client) roundTrip(ctx context.Context, timeout time.Duration, request protocol.Message) (protocol.Message, error) {
	if k.life.Err() != nil {
		return nil, errKafkaClosed
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return k.transport.RoundTrip(ctx, k.addr, request)
}

// errNoAnswer says that an answer lacks what was asked for.
var errNoAnswer = errors.New("the broker left it out of its answer")

// passing says that the same request may well succeed a little later.
func passing(err error) bool {
	var code kafka.Error
	if errors.As(err, &code) {
		return code.Temporary() || code == kafka.Unknown || code == kafka.BrokerNotAvailable
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, errKafkaClosed)
}

// leaders returns the broker that leads each partition of topic, by partition number, -1 where there is none just now.
// It is read from the Transport's cache, so it costs nothing and may be MetadataTTL old.
func (k *Client) leaders(ctx context.Context, topic string) ([]int32, error) {
	answer, err := k.roundTrip(ctx, k.cfg.RequestTimeout, &metadata.Request{TopicNames: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("layout of topic %s: %w", topic, err)
	}
	layout, ok := answer.(*metadata.Response)
	if !ok || len(layout.Topics) != 1 {
		return nil, fmt.Errorf("layout of topic %s: unexpected answer %T", topic, answer)
	}
	found := layout.Topics[0]
	if found.ErrorCode != 0 {
		return nil, fmt.Errorf("layout of topic %s: %w", topic, kafka.Error(found.ErrorCode))
	}
	known := make(map[int32]bool, len(layout.Brokers))
	for _, broker := range layout.Brokers {
		known[broker.NodeID] = true
	}
	var leaders []int32
	for _, p := range found.Partitions {
		for len(leaders) <= int(p.PartitionIndex) {
			leaders = append(leaders, -1)
		}
		if known[p.LeaderID] {
			leaders[p.PartitionIndex] = p.LeaderID
		}
	}
	return leaders, nil
}

// Partitions returns how many partitions topic has; an unknown topic is an error that wraps
// kafka.UnknownTopicOrPartition.
func (k *Client) Partitions(ctx context.Context, topic string) (int, error) {
	leaders, err := k.leaders(ctx, topic)
	return len(leaders), err
}

func (k *Client) addresses() string { return strings.Join(k.cfg.Brokers, ",") }

// Ping asks the cluster whether it is there. Its error is one line that names the addresses and says what to do.
func (k *Client) Ping(ctx context.Context) error {
	if k.life.Err() != nil {
		return errKafkaClosed
	}
	answer, err := k.client.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return ingest.Advise(fmt.Errorf("kafka at %s does not answer: %w", k.addresses(), err), pingAdvice(err))
	}
	layout, err := k.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
	if err != nil {
		return ingest.Advise(fmt.Errorf("kafka at %s does not tell its brokers: %w", k.addresses(), err), pingAdvice(err))
	}
	return k.reachable(ctx, layout.Brokers)
}

// reachable checks what people who run Kafka in a container meet first: the address to start from answers, but the
// brokers advertise another one that this machine cannot reach.
func (k *Client) reachable(ctx context.Context, brokers []kafka.Broker) error {
	if len(brokers) == 0 {
		return ingest.Advise(fmt.Errorf("kafka at %s answers, but lists no brokers", k.addresses()), "wait until the cluster has started")
	}
	ctx, cancel := context.WithTimeout(ctx, k.cfg.RequestTimeout)
	defer cancel()
	var last error
	for _, broker := range brokers {
		address := net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port))
		conn, err := k.dials.dial(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		last = ingest.Advise(fmt.Errorf("kafka at %s answers, but says that broker %d is at %s, which cannot be reached: %w",
			k.addresses(), broker.ID, address, err), "correct advertised.listeners of the broker")
	}
	return last
}

func pingAdvice(err error) string {
	var unknownCA x509.UnknownAuthorityError
	var wrongHost x509.HostnameError
	var notTLS tls.RecordHeaderError
	switch {
	case errors.Is(err, kafka.SASLAuthenticationFailed):
		return "check the SASL user and password"
	case errors.Is(err, kafka.UnsupportedSASLMechanism):
		return "the broker does not offer this SASL mechanism; check sasl.enabled.mechanisms"
	case errors.As(err, &unknownCA), errors.As(err, &wrongHost):
		return "check the CA certificate and the host name of the broker"
	case errors.As(err, &notTLS):
		return "this listener does not speak TLS; turn TLS off or name another port"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the listener may expect TLS or SASL; check the security settings of that port"
	}
	return "start Kafka or correct the broker addresses"
}

// Clock gives what was heard of the brokers' clocks since the last time: it asks nobody. An acknowledgement bounds them
// on both sides; a record that is read shows only that its broker is ahead.
func Clock(k *Client) func(context.Context, func() traffic.Time) (clocks.Reading, bool, error) {
	return func(context.Context, func() traffic.Time) (clocks.Reading, bool, error) {
		r, heard := k.heard.Take()
		return r, heard, nil
	}
}

// hear takes in when a record was appended that has just been read, where its broker's clock is ahead.
func hear(h *clocks.Heard, appended traffic.Time) {
	if now := traffic.At(time.Now()); appended > now {
		h.Add(clocks.Reading{Theirs: appended, Asked: traffic.BeforeTime, Answered: now})
	}
}

// WaitReady calls Ping until it succeeds or ctx is done, with pauses from half a second to ten seconds and one log line
// per attempt that failed and is followed by another one. When none can follow before ctx's deadline, or ctx is done, it
// returns the last failure.
func (k *Client) WaitReady(ctx context.Context) error {
	wait := retry.NewBackoff(500*time.Millisecond, 10*time.Second)
	for attempt := 1; ; attempt++ {
		err := k.Ping(ctx)
		if err == nil || errors.Is(err, errKafkaClosed) {
			return err
		}
		if deadline, bounded := ctx.Deadline(); ctx.Err() != nil || bounded && time.Until(deadline) <= wait.Next() {
			return err
		}
		k.log.Warn("waiting for Kafka", "attempt", attempt, "again_in", wait.Next(), "error", err)
		if wait.Wait(ctx) != nil {
			return err
		}
	}
}
