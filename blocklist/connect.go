package blocklist

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server says where Redis is: a standalone server by URL, or a Redis Cluster by some of its nodes.
type Server struct {
	// URL is redis://[user:password@]host:port[/db], or rediss:// for TLS. Exactly one of URL and Cluster is set.
	URL string
	// Cluster is host:port of one or more nodes; the others are found by asking them.
	Cluster []string
	// Username and Password are for a cluster; in a URL they stand in it.
	Username, Password string
	// TLS is how to speak TLS. Nil means what the URL says, and no TLS with a cluster.
	TLS *tls.Config
	// Timeout bounds dialling and each answer that is waited for; default 2 s.
	Timeout time.Duration
}

// defaultTimeout bounds dialling and answers.
const defaultTimeout = 2 * time.Second

// Address is what an operator reads about s: where it is, never a password.
func (s *Server) Address() string {
	if len(s.Cluster) > 0 {
		return "redis cluster " + strings.Join(s.Cluster, ",")
	}
	options, err := redis.ParseURL(s.URL)
	if err != nil {
		return "redis"
	}
	return "redis " + options.Addr
}

// client makes a client, which dials when it is first used.
func (s *Server) client() (redis.UniversalClient, error) {
	timeout := s.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	switch {
	case (s.URL == "") == (len(s.Cluster) == 0):
		return nil, errors.New("redis: set either a URL (redis://host:port/0) or the nodes of a cluster (host:port,…)")
	case s.URL != "":
		options, err := redis.ParseURL(s.URL)
		if err != nil {
			// The text of the error may hold the URL, and the URL a password.
			return nil, errors.New("redis: the URL cannot be read; allowed: redis://[user:password@]host:port[/db], or rediss:// for TLS")
		}
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = timeout, timeout, timeout
		options.ContextTimeoutEnabled = true
		if s.TLS != nil {
			options.TLSConfig = s.TLS
		}
		return redis.NewClient(options), nil
	default:
		return redis.NewClusterClient(&redis.ClusterOptions{
			// A client appends the nodes that it finds to the list that it was given: each needs one of its own.
			Addrs: slices.Clone(s.Cluster), Username: s.Username, Password: s.Password, TLSConfig: s.TLS,
			DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, ContextTimeoutEnabled: true,
		}), nil
	}
}

// QuietClient stops the Redis client from writing lines of its own to standard error: every failure comes back as an
// error and is logged with what it means. The client has one logger for the whole process, so only a program's main
// calls this, before it connects.
func QuietClient() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
