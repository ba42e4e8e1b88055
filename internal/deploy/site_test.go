package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// site is the composition at work on this machine, without containers.
type site struct {
	t         *testing.T
	compose   *composition
	dir       string            // everything that the services mount, and their data
	weir      string            // the program
	programs  programs          // of the other services
	addresses map[string]string // of "service:port"
	names     *regexp.Regexp    // an address of a service, in a file
	running   map[string]*testbed.Running
	docker    *nameServer // knows the services that run
}

// newSite is a site with every program that it needs.
func newSite(t *testing.T) *site {
	t.Helper()
	s := emptySite(t)
	s.programs = findPrograms(t)
	s.weir = buildImage(t)
	standsAlone(t, s.weir)
	knowsItsVersion(t, s.weir)
	return s
}

func emptySite(t *testing.T) *site {
	t.Helper()
	s := &site{
		t: t, compose: readComposition(t), dir: t.TempDir(), docker: startNameServer(t),
		addresses: map[string]string{}, running: map[string]*testbed.Running{},
	}
	for folder := s.dir; folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) {
		must(t, os.Chmod(folder, 0o755)) // nginx's worker and PostgreSQL are other users, if this is root
	}
	names := []string{`0\.0\.0\.0`, `127\.0\.0\.1`, "localhost"}
	for name := range s.compose.Services {
		names = append(names, regexp.QuoteMeta(name))
	}
	slices.Sort(names)
	s.names = regexp.MustCompile(`\b(` + strings.Join(names, "|") + `):(\d{2,5})\b`)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// address is the free port that stands for a port of a service.
func (s *site) address(service, port string) string {
	key := service + ":" + port
	if s.addresses[key] == "" {
		s.addresses[key] = fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(s.t))
	}
	return s.addresses[key]
}

// published is the address of a port of this machine that docker-compose.yml publishes.
func (s *site) published(port string) string {
	for name, service := range s.compose.Services {
		for _, p := range service.Ports {
			if parts := strings.Split(p, ":"); parts[1] == port {
				return s.address(name, parts[2])
			}
		}
	}
	s.t.Fatalf("docker-compose.yml publishes no port %s", port)
	return ""
}

// local is a text of a service, or with "" one of this machine, with the three substitutions of this package: addresses,
// mounted paths, and Docker's name server.
func (s *site) local(service, text string) string {
	text = s.names.ReplaceAllStringFunc(text, func(found string) string {
		host, port, _ := strings.Cut(found, ":")
		switch {
		case s.looksUp(service) && s.compose.Services[host] != nil:
			return host + ":" + afterColon(s.address(host, port))
		case s.compose.Services[host] != nil:
			return s.address(host, port)
		case service == "":
			return s.published(port)
		}
		return s.address(service, port)
	})
	if service == "" {
		return text
	}
	if s.looksUp(service) {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(dockerNames)+`\b`).ReplaceAllLiteralString(text, s.docker.address)
	}
	var targets []string
	for _, p := range s.paths(service) {
		targets = append(targets, regexp.QuoteMeta(p[0]))
	}
	if len(targets) == 0 {
		return text
	}
	// In one pass: what stands for a path may contain another one, /tmp above all.
	mounted := regexp.MustCompile(`((?:^|[\s=:"']))(` + strings.Join(targets, "|") + `)\b`)
	return mounted.ReplaceAllStringFunc(text, func(found string) string {
		at := strings.IndexByte(found, '/')
		return found[:at] + s.path(service, found[at:])
	})
}

// looksUp reports whether a service is told which name server to ask. Names stay names for it; any other program asks the
// machine's name server, which knows no service.
func (s *site) looksUp(service string) bool {
	return service != "" && strings.HasPrefix(s.compose.Services[service].Image, "nginx:")
}

// paths are the mounted paths of a service with what stands for each, longest first.
func (s *site) paths(service string) [][2]string {
	var all [][2]string
	own := filepath.Join(s.dir, service)
	for _, m := range s.compose.Services[service].mounts(s.t) {
		if m.named {
			all = append(all, [2]string{m.target, filepath.Join(s.dir, "volumes", m.source)})
		} else {
			all = append(all, [2]string{m.target, filepath.Join(own, m.target)})
		}
	}
	for _, target := range s.compose.Services[service].Tmpfs {
		all = append(all, [2]string{target, filepath.Join(own, target)})
	}
	slices.SortFunc(all, func(a, b [2]string) int { return len(b[0]) - len(a[0]) })
	return all
}

// mount puts in place what a service mounts.
func (s *site) mount(service string) {
	s.t.Helper()
	for _, p := range s.paths(service) {
		must(s.t, os.MkdirAll(filepath.Dir(p[1]), 0o755))
	}
	for _, m := range s.compose.Services[service].mounts(s.t) {
		to := s.path(service, m.target)
		if m.named {
			must(s.t, os.MkdirAll(to, 0o755))
			continue
		}
		top := filepath.Join(repository, m.source)
		must(s.t, filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			place := filepath.Join(to, strings.TrimPrefix(path, top))
			if entry.IsDir() {
				return os.MkdirAll(place, 0o755)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(place, []byte(s.local(service, string(text))), 0o644)
		}))
	}
	for _, target := range s.compose.Services[service].Tmpfs {
		must(s.t, os.MkdirAll(s.path(service, target), 0o755))
	}
}

// path is what stands for a path of a service.
func (s *site) path(service, target string) string {
	for _, p := range s.paths(service) {
		if target == p[0] || strings.HasPrefix(target, p[0]+"/") {
			return p[1] + strings.TrimPrefix(target, p[0])
		}
	}
	s.t.Fatalf("%s mounts nothing at %s", service, target)
	return ""
}

// up starts all services, each when those that it depends on are healthy or have done their work, and waits for all of
// them. As with docker compose, one that is not healthy yet keeps none waiting but those that depend on it.
func (s *site) up() {
	s.t.Helper()
	begun, up := map[string]time.Time{}, map[string]bool{}
	order := s.compose.order(s.t)
	testbed.Eventually(s.t, 3*time.Minute, func() error {
		var last error
		for _, name := range order {
			if _, is := begun[name]; !is && s.mayStart(name, up) {
				begun[name] = time.Now()
				s.mount(name)
				s.begin(name)
			}
			if begun[name].IsZero() || up[name] {
				continue
			}
			if err := s.isUp(name); err != nil {
				last = err
				continue
			}
			up[name] = true
			s.afterwards(name)
			s.t.Logf("%-10s up after %s", name, time.Since(begun[name]).Round(10*time.Millisecond))
		}
		if last == nil && len(up) < len(order) {
			last = fmt.Errorf("%d of %d services are up", len(up), len(order))
		}
		return last
	})
}

// mayStart reports whether all that a service depends on is up.
func (s *site) mayStart(name string, up map[string]bool) bool {
	for other := range s.compose.Services[name].DependsOn {
		if !up[other] {
			return false
		}
	}
	return true
}

// start starts a service and waits until it is healthy, or until a one-shot has ended well.
func (s *site) start(name string) {
	s.t.Helper()
	s.begin(name)
	testbed.Eventually(s.t, 3*time.Minute, func() error { return s.isUp(name) })
	s.afterwards(name)
}

// begin starts a service; a one-shot has ended well when it returns.
func (s *site) begin(name string) {
	s.t.Helper()
	command := s.command(name)
	if command == nil {
		return // a program that no machine of ours has: its files are read instead
	}
	p := testbed.Run(s.t, command)
	s.running[name] = p
	s.docker.set(name, "127.0.0.1")
	if !s.compose.oneShot(name) {
		return
	}
	if err := p.Wait(3 * time.Minute); err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, p.Said())
	}
}

// isUp says what a service lacks.
func (s *site) isUp(name string) error {
	s.t.Helper()
	p := s.running[name]
	if p == nil || s.compose.oneShot(name) {
		return nil
	}
	if err := p.Alive(); err != nil {
		s.t.Fatal(err)
	}
	return s.healthy(name)
}

// stop stops a service; its name is no longer known.
func (s *site) stop(name string) {
	s.t.Helper()
	s.running[name].End()
	s.docker.forget(name)
}
