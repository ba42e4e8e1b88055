package secured

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/testbed"
)

// redisServer is a redis-server with TLS, whose default user may do nothing.
type redisServer struct {
	address  string
	operator *redis.Client
	trust    *authority
}

// operatorName is who may do everything on Redis, for the test.
const operatorName = "operator"

// startRedis starts it with users as ACL SETUSER has them, by name.
func startRedis(t testing.TB, trust *authority, users map[string]string) *redisServer {
	t.Helper()
	program := testbed.Program(t, "redis-server")
	testbed.Record(t, testbed.RedisKind, testbed.Real)
	dir, port, certificate := t.TempDir(), testbed.FreePort(t), trust.server("redis")
	acl := filepath.Join(dir, "users.acl")
	var text strings.Builder
	fmt.Fprintf(&text, "user default off\nuser %s on >%s ~* &* +@all\n", operatorName, secret)
	for name, rights := range users {
		fmt.Fprintf(&text, "user %s on >%s %s\n", name, secret, rights)
	}
	if err := os.WriteFile(acl, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	testbed.Run(t, exec.Command(program, "--bind", "127.0.0.1", "--port", "0", "--tls-port", fmt.Sprint(port), "--tls-cert-file", certificate.cert,
		"--tls-key-file", certificate.key, "--tls-ca-cert-file", trust.file, "--tls-auth-clients", "no", "--aclfile", acl, "--dir", dir, "--save", "",
		"--maxmemory", "64mb", "--maxmemory-policy", "noeviction"))
	s := &redisServer{address: fmt.Sprint("127.0.0.1:", port), trust: trust}
	s.operator = s.as(t, operatorName)
	testbed.Eventually(t, 20*time.Second, func() error { return s.operator.Ping(t.Context()).Err() })
	return s
}

func (s *redisServer) as(t testing.TB, user string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.address, Username: user, Password: secret, TLSConfig: s.trust.trust()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
