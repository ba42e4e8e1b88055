package kafka

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// SASL is how to authenticate to the brokers. The password never appears in logs or errors.
type SASL struct {
	Mechanism string // "", "plain", "scram-sha-256" or "scram-sha-512"
	User      string
	Password  string
}

var (
	_ fmt.Stringer   = SASL{}
	_ fmt.GoStringer = SASL{}
	_ slog.LogValuer = SASL{}
)

// String shows everything but the password.
func (s SASL) String() string {
	if s.Mechanism == "" {
		return "none"
	}
	return s.Mechanism + " as " + s.User
}

// GoString is String, so that %#v shows no password either.
func (s SASL) GoString() string { return s.String() }

// LogValue is String.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (s SASL) mechanism() (sasl.Mechanism, error) {
	if s.Mechanism == "" {
		if s.User != "" || s.Password != "" {
			return nil, fmt.Errorf("kafka: a SASL user or password is given without a mechanism: want plain, scram-sha-256 or scram-sha-512")
		}
		return nil, nil
	}
	if s.User == "" {
		return nil, fmt.Errorf("kafka: SASL mechanism %s needs a user", s.Mechanism)
	}
	switch strings.ToLower(s.Mechanism) {
	case "plain":
		return plain.Mechanism{Username: s.User, Password: s.Password}, nil
	case "scram-sha-256":
		return scram.Mechanism(scram.SHA256, s.User, s.Password)
	case "scram-sha-512":
		return scram.Mechanism(scram.SHA512, s.User, s.Password)
	}
	return nil, fmt.Errorf("kafka: SASL mechanism %q: want plain, scram-sha-256 or scram-sha-512", s.Mechanism)
}
