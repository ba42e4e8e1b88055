package secured

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
)

// postgres is a PostgreSQL that lets in by TLS only, and roles by their password.
type postgres struct {
	t     testing.TB
	admin string // URL of the superuser, who needs no TLS
	host  string
	trust *authority
	log   string
}

func startPostgres(t testing.TB, trust *authority) *postgres {
	t.Helper()
	testbed.Record(t, testbed.PostgresKind, testbed.Embedded)
	// Not TempDir: PostgreSQL runs as another user where this is root, who must be able to enter.
	dir, err := os.MkdirTemp("", "weir-secured-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	options := local.PostgresOptions{Dir: filepath.Join(dir, "server"), Port: testbed.FreePort(t)}
	first, err := local.StartPostgres(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(options.Dir, "data")
	certificate := trust.server("postgres")
	put(t, data, "server.crt", read(t, certificate.cert))
	put(t, data, "server.key", read(t, certificate.key))
	put(t, data, "pg_hba.conf", "host all weir 127.0.0.1/32 password\nhostssl all all 127.0.0.1/32 scram-sha-256\n")
	put(t, data, "postgresql.auto.conf", "ssl = on\n")
	p, err := local.StartPostgres(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	u, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	return &postgres{t: t, admin: p.URL(), host: u.Host, trust: trust, log: filepath.Join(options.Dir, "log")}
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// put writes a file that belongs to whom the folder belongs.
func put(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var info fs.FileInfo
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(path, int(s.Uid), int(s.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// of is the URL of a role, as weir has it.
func (p *postgres) of(role, database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=verify-full&sslrootcert=%s", role, secret, p.host, database, p.trust.file)
}

// do runs SQL as the superuser, or as who owns the database.
func (p *postgres) do(to, sql string) {
	p.t.Helper()
	c, err := pgx.Connect(p.t.Context(), to)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	if _, err := c.PgConn().Exec(p.t.Context(), sql).ReadAll(); err != nil {
		p.t.Fatalf("%v\n%s", err, sql)
	}
}
