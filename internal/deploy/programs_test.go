package deploy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// programs are what the images hold, on this machine.
type programs struct {
	java, kafka string // kafka: the folder with its jars
	postgres    string // the folder with its programs
	redis       string
	nginx       string
	prometheus  string
}

func findPrograms(t *testing.T) programs {
	t.Helper()
	p := programs{
		java: testbed.Program(t, "java"), redis: testbed.Program(t, "redis-server"), nginx: testbed.Program(t, "nginx"),
		prometheus: testbed.Program(t, "prometheus"),
	}
	p.postgres = findPostgres(t)
	p.kafka = findKafka(t)
	return p
}

// findKafka gives the folder of the jars that scripts/fetch-kafka.sh keeps in the cache. Only make test fetches them.
func findKafka(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	version := strings.TrimPrefix(readComposition(t).Services["kafka"].Image, "apache/kafka:")
	libs := filepath.Join(cache, "weir", "kafka-"+version, "libs")
	if _, err := os.Stat(libs); err == nil {
		return libs
	}
	if os.Getenv("WEIR_TEST_REQUIRE_REAL") != "1" {
		testbed.Missing(t, "Apache Kafka "+version+" is not in the cache: scripts/fetch-kafka.sh fetches it")
	}
	out, err := exec.Command(filepath.Join(repository, "scripts", "fetch-kafka.sh")).Output()
	must(t, err)
	if got := strings.TrimSpace(string(out)); got != libs {
		t.Fatalf("scripts/fetch-kafka.sh fetches %s, docker-compose.yml runs Kafka %s", got, version)
	}
	return libs
}

func findPostgres(t *testing.T) string {
	t.Helper()
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if resolved, err := filepath.EvalSymlinks(initdb); err == nil {
			return filepath.Dir(resolved)
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	must(t, err)
	if len(found) == 0 {
		testbed.Missing(t, "PostgreSQL is not on this machine: scripts/install-packages.sh installs it")
	}
	return found[len(found)-1]
}

// command is how a service's program is run here. What tells a program where it is, and no more, is added: a port, a
// folder for its data, the loopback interface.
func (s *site) command(name string) *exec.Cmd {
	s.t.Helper()
	service := s.compose.Services[name]
	port := func(p string) string { return afterColon(s.address(name, p)) }
	switch image, _, _ := strings.Cut(service.Image, ":"); image {
	case "apache/kafka":
		return s.kafka(name)
	case "redis":
		args := append(s.args(name)[1:], "--bind", "127.0.0.1", "--port", port("6379"), "--dir", s.folder("redis-data"))
		return exec.Command(s.programs.redis, args...)
	case "postgres":
		return s.postgres(name)
	case "nginx":
		return exec.Command(s.programs.nginx, "-c", s.path(name, "/etc/nginx/nginx.conf"), "-e", "stderr",
			"-g", "daemon off; pid "+filepath.Join(s.dir, "nginx.pid")+";")
	case "prom/prometheus":
		return exec.Command(s.programs.prometheus, append(s.args(name), "--web.listen-address="+s.address(name, "9090"))...)
	case "grafana/grafana":
		return nil
	case "weir", "weir-shipper":
		return s.inImage(name, s.args(name)...)
	}
	s.t.Fatalf("%s: this test cannot start %s", name, service.Image)
	return nil
}

func afterColon(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// args is a service's command.
func (s *site) args(name string) []string {
	var all []string
	for _, a := range s.compose.Services[name].Command {
		all = append(all, s.local(name, a))
	}
	return all
}

func (s *site) folder(name string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	must(s.t, os.MkdirAll(path, 0o755))
	return path
}

// inImage is an image of ours at work: its entry point with arguments.
func (s *site) inImage(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	service := s.compose.Services[name]
	return s.within(name, append(slices.Clone(readDockerfile(s.t).stage(service.Build.Target).entrypoint), args...))
}

// within is a command in a container of ours: with the service's environment, and nothing else, as the image's user if this
// is root.
func (s *site) within(name string, words []string) *exec.Cmd {
	s.t.Helper()
	service := s.compose.Services[name]
	if words[0] == "/bin/weir" {
		words[0] = s.weir
	}
	c := exec.Command(words[0], words[1:]...)
	c.Dir = s.dir
	c.Env = []string{"PATH=" + filepath.Dir(s.weir) + ":/usr/bin:/bin", "TMPDIR=" + s.folder("tmp")}
	must(s.t, os.Chmod(s.folder("tmp"), 0o777|os.ModeSticky))
	if os.Geteuid() == 0 {
		uid, gid, _ := strings.Cut(readDockerfile(s.t).stage(service.Build.Target).user, ":")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: credential(s.t, uid, gid)}
	}
	for variable, value := range service.Environment {
		c.Env = append(c.Env, variable+"="+s.path(name, value))
	}
	return c
}

// kafka formats its storage and starts it, as its image does with a mounted server.properties.
func (s *site) kafka(name string) *exec.Cmd {
	s.t.Helper()
	config := s.path(name, "/mnt/shared/config/server.properties")
	s.run(exec.Command(s.programs.java, "-cp", s.programs.kafka+"/*", "kafka.tools.StorageTool", "format",
		"--cluster-id", "5L6g3nShT-eMCtK--X86sw", "-c", config))
	return exec.Command(s.programs.java, "-Xmx512m", "-cp", s.programs.kafka+"/*",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "kafka.Kafka", config)
}

// postgres makes a database folder, as its image does on an empty volume.
func (s *site) postgres(name string) *exec.Cmd {
	s.t.Helper()
	data, socket := filepath.Join(s.path(name, "/var/lib/postgresql/data"), "pgdata"), s.folder("postgres-socket")
	owner := s.owner()
	for _, path := range []string{filepath.Dir(data), socket} {
		if owner != nil {
			must(s.t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
		}
	}
	own := func(program string, args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(s.programs.postgres, program), args...)
		c.Dir = socket
		c.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
		return c
	}
	s.run(own("initdb", "-D", data, "-U", "postgres", "-A", "scram-sha-256", "--no-sync",
		"--pwfile", s.path(name, s.compose.Services[name].Environment["POSTGRES_PASSWORD_FILE"])))
	return own("postgres", "-D", data, "-k", socket, "-p", afterColon(s.address(name, "5432")), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off")
}

// owner is who runs PostgreSQL, which refuses to be root.
func (s *site) owner() *syscall.Credential {
	s.t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		found, err = user.Lookup("nobody")
	}
	must(s.t, err)
	return credential(s.t, found.Uid, found.Gid)
}

func credential(t *testing.T, user, group string) *syscall.Credential {
	t.Helper()
	uid, err := strconv.ParseUint(user, 10, 32)
	must(t, err)
	gid, err := strconv.ParseUint(group, 10, 32)
	must(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// run runs a command to its end and gives its standard output.
func (s *site) run(c *exec.Cmd) string {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		s.t.Fatalf("%s: %v\n%s%s", strings.Join(c.Args, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// afterwards does what an image does once its program answers for the first time: PostgreSQL's runs the scripts that are
// mounted for it. They come before the health check of a container, which asks for what they make.
func (s *site) afterwards(name string) {
	s.t.Helper()
	if name != "postgres" {
		return
	}
	s.psql("-f", s.path(name, "/docker-entrypoint-initdb.d/init.sql"))
}

// psql asks PostgreSQL as its superuser.
func (s *site) psql(args ...string) string {
	s.t.Helper()
	password, err := os.ReadFile(s.path("postgres", "/run/secrets/postgres"))
	must(s.t, err)
	host, port, err := net.SplitHostPort(s.address("postgres", "5432"))
	must(s.t, err)
	c := exec.Command(filepath.Join(s.programs.postgres, "psql"),
		append([]string{"-v", "ON_ERROR_STOP=1", "--no-psqlrc", "-h", host, "-p", port, "-U", "postgres"}, args...)...)
	c.Env = append(os.Environ(), "PGPASSWORD="+strings.TrimSpace(string(password)))
	return s.run(c)
}

// healthy runs the health check of a service.
func (s *site) healthy(name string) error {
	var words []string
	for _, w := range s.compose.Services[name].HealthCheck.Test[1:] {
		words = append(words, s.local(name, w))
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	var c *exec.Cmd
	switch filepath.Base(words[0]) {
	case "wget":
		_, err := get(ctx, words[len(words)-1])
		return err
	case "weir":
		c = s.within(name, append([]string{s.weir}, words[1:]...))
	case "kafka-broker-api-versions.sh":
		c = exec.CommandContext(ctx, s.programs.java, append([]string{"-cp", s.programs.kafka + "/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
			"org.apache.kafka.tools.BrokerApiVersionsCommand"}, words[1:]...)...)
	case "redis-cli":
		c = exec.CommandContext(ctx, "redis-cli", onPort(words[1:], afterColon(s.address(name, "6379")))...)
	case "pg_isready":
		c = exec.CommandContext(ctx, filepath.Join(s.programs.postgres, "pg_isready"), onPort(words[1:], afterColon(s.address(name, "5432")))...)
	default:
		return fmt.Errorf("%s: this test does not know the health check %v", name, words)
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %v: %w\n%s", name, words, err, out)
	}
	return nil
}

// onPort puts a port in the place of the one behind -p.
func onPort(words []string, port string) []string {
	words = slices.Clone(words)
	words[slices.Index(words, "-p")+1] = port
	return words
}

func get(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, answer.Status, body)
	}
	return string(body), err
}
