package kafka_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
)

func TestKafkaConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		cfg  kafka.Config
		want string
	}{
		{kafka.Config{}, "no broker addresses"},
		{kafka.Config{Brokers: []string{"kafka"}}, `"kafka": want host:port`},
		{kafka.Config{Brokers: []string{"kafka:99999"}}, "port must be a number"},
		{kafka.Config{Brokers: []string{"k:1"}, SASL: kafka.SASL{Mechanism: "gssapi", User: "u"}}, `"gssapi": want plain, scram-sha-256 or scram-sha-512`},
		{kafka.Config{Brokers: []string{"k:1"}, SASL: kafka.SASL{Mechanism: "plain"}}, "needs a user"},
		{kafka.Config{Brokers: []string{"k:1"}, SASL: kafka.SASL{User: "u", Password: "hidden"}}, "without a mechanism"},
	} {
		_, err := kafka.New(tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%+v: %v, want %q", tc.cfg, err, tc.want)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", kafka.SASL{"plain", "u", "hidden"}, kafka.Config{SASL: kafka.SASL{"plain", "u", "hidden"}}, kafka.SASL{"plain", "u", "hidden"}); strings.Contains(text, "hidden") {
		t.Errorf("the password shows in %s", text)
	}
}

func TestPing(t *testing.T) {
	kit := kafkakit.New(t)
	testbed.Eventually(t, 10*time.Second, func() error { return kit.K.Ping(kit.Ctx) }) // connecting has 3 s
	if err := kit.K.WaitReady(kit.Ctx); err != nil {
		t.Error(err)
	}
}

// A process that waits for Kafka says so at each attempt that is followed by another one, and ends with the last failure.
func TestWaitReadyGivesUp(t *testing.T) {
	address := freeAddress(t)
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		k, err := kafka.New(kafka.Config{Brokers: []string{address}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err = k.WaitReady(ctx)
		if err == nil || !strings.Contains(err.Error(), "kafka at "+address+" does not answer") ||
			!strings.Contains(err.Error(), "start Kafka or correct the broker addresses") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with the address and what to do", err)
		}
		// After the attempts at 0 and 0.5 s the next one would come at 1.5 s: there is none, and no line that announces it.
		if n, took := strings.Count(logged.String(), "waiting for Kafka"), time.Since(begun); n != 1 || took != 500*time.Millisecond {
			t.Errorf("%d lines before it gave up after %v, want 1, at 0 s, and no wait for nothing:\n%s", n, took, &logged)
		}
	})
}

// lines are what a logger writes, as far as somebody takes them.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

// A client that was there before its brokers goes on when they come.
func TestWaitReadyForALateKafka(t *testing.T) {
	testbed.CheckLeaks(t)
	address, said := freeAddress(t), make(lines, 1)
	k, err := kafka.New(kafka.Config{Brokers: []string{address}, Logger: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	ready := make(chan error, 1)
	go func() { ready <- k.WaitReady(t.Context()) }()
	select {
	case line := <-said:
		if !strings.Contains(line, "waiting for Kafka") {
			t.Errorf("said %q", line)
		}
	case err := <-ready:
		t.Fatalf("somebody else is at %s: %v", address, err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, address) }))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	testbed.Record(t, testbed.KafkaKind, testbed.Embedded)
	select {
	case err := <-ready:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it does not see that Kafka is there")
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := k.Ping(t.Context()); err == nil {
		t.Error("a closed client answers")
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(testbed.FreePort(t)))
}

// The raw path, the ordinary one and the group work over TLS and with each SASL mechanism.
func TestKafkaSecured(t *testing.T) {
	server, client := selfSigned(t)
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			kit, _ := kafkakit.NewFaulty(t, 1, kfake.TLS(server), kfake.EnableSASL(),
				kfake.Superuser(strings.ToUpper(mechanism), "weir", "secret"))
			secured := func(c *kafka.Config) {
				c.TLS, c.SASL = client, kafka.SASL{Mechanism: mechanism, User: "weir", Password: "secret"}
			}
			kit.K = kit.Client(secured)
			if err := kit.K.Ping(kit.Ctx); err != nil {
				t.Fatal(err)
			}
			topic := kit.Topic(1)
			kit.Put(topic, map[int][]string{0: {"x"}})
			if got := kit.Read(kit.K.Log(topic), kafkakit.Positions(0, 0), 1); string(got[0][0].Value) != "x" {
				t.Errorf("got %v", got)
			}
			m := startMember(kit, kit.K, topic, topic)
			s := m.next(1)
			if err := s.Commits.Commit(kit.Ctx, map[int]ingest.Commit{0: {Offset: 1}}); err != nil {
				t.Error(err)
			}
			m.leave(s)
			wrong := kit.Client(secured, func(c *kafka.Config) { c.SASL.Password = "wrong" })
			if err := wrong.Ping(kit.Ctx); err == nil || strings.Contains(err.Error(), "wrong") {
				t.Errorf("a wrong password: %v", err)
			}
			plain := kit.Client()
			if err := plain.Ping(kit.Ctx); err == nil || !strings.Contains(err.Error(), "TLS") {
				t.Errorf("without TLS: %v, want a hint at it", err)
			}
			unknown := kit.Client(secured, func(c *kafka.Config) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS12} })
			if err := unknown.Ping(kit.Ctx); err == nil || !strings.Contains(err.Error(), "check the CA certificate") {
				t.Errorf("with another CA: %v", err)
			}
		})
	}
}

func selfSigned(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	server = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return server, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
}
