package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/internal/retry"
)

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
		return fmt.Errorf("kafka at %s does not answer: %w; %s", k.addresses(), err, pingAdvice(err))
	}
	layout, err := k.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
	if err != nil {
		return fmt.Errorf("kafka at %s does not tell its brokers: %w; %s", k.addresses(), err, pingAdvice(err))
	}
	return k.reachable(ctx, layout.Brokers)
}

// reachable checks what people who run Kafka in a container meet first: the address to start from answers, but the
// brokers advertise another one that this machine cannot reach.
func (k *Client) reachable(ctx context.Context, brokers []kafka.Broker) error {
	if len(brokers) == 0 {
		return fmt.Errorf("kafka at %s answers, but lists no brokers; wait until the cluster has started", k.addresses())
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
		last = fmt.Errorf("kafka at %s answers, but says that broker %d is at %s, which cannot be reached: %w; "+
			"correct advertised.listeners of the broker", k.addresses(), broker.ID, address, err)
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
