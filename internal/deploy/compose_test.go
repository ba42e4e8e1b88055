package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// repository is the top of the repository, seen from here.
const repository = "../.."

// composition is docker-compose.yml, as far as it is used: any other member is an error.
type composition struct {
	Name     string              `yaml:"name"`
	Weir     yaml.Node           `yaml:"x-weir"`
	Ready    yaml.Node           `yaml:"x-ready"`
	Services map[string]*service `yaml:"services"`
	Volumes  map[string]*struct{}
}

type service struct {
	Image       string
	Build       *build
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Tmpfs       []string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	Restart     string
	HealthCheck *healthCheck           `yaml:"healthcheck"`
	DependsOn   map[string]*dependency `yaml:"depends_on"`
}

type build struct{ Context, Target string }

type healthCheck struct {
	Test              []string
	Interval, Timeout string
	Retries           int
	StartPeriod       string `yaml:"start_period"`
}

type dependency struct{ Condition string }

// mount is one entry of a service's volumes.
type mount struct {
	source, target string
	named          bool // a volume, not a file or folder of the repository
	readOnly       bool
}

func readComposition(t *testing.T) *composition {
	t.Helper()
	text := read(t, "docker-compose.yml")
	var c composition
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		t.Fatalf("docker-compose.yml holds more than one document: %v", err)
	}
	return &c
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (s *service) mounts(t *testing.T) []mount {
	t.Helper()
	var all []mount
	for _, v := range s.Volumes {
		parts := strings.Split(v, ":")
		if len(parts) < 2 || len(parts) > 3 || !filepath.IsAbs(parts[1]) || len(parts) == 3 && parts[2] != "ro" {
			t.Fatalf("volume %q: allowed: SOURCE:/TARGET[:ro]", v)
		}
		all = append(all, mount{parts[0], parts[1], !strings.HasPrefix(parts[0], "."), len(parts) == 3})
	}
	return all
}

// one-shots end by themselves; nobody can ask them how they are.
func (c *composition) oneShot(name string) bool { return c.Services[name].Restart == "no" }

func TestImagesArePinned(t *testing.T) {
	c := readComposition(t)
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+\.?\d*(-[a-z0-9.]+)?$`)
	for name, s := range c.Services {
		if s.Build != nil {
			if s.Build.Context != "." || !strings.HasSuffix(s.Image, ":local") {
				t.Errorf("%s: built from %q as %s, want the repository, and a tag that no registry has", name, s.Build.Context, s.Image)
			}
			continue
		}
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: the image %s is not pinned to a version", name, s.Image)
		}
	}
	for _, d := range readDockerfile(t).stages {
		if d.from != "scratch" && !pinned.MatchString(d.from) {
			t.Errorf("Dockerfile: the image %s is not pinned to a version", d.from)
		}
	}
}

// Every setting is in a mounted file; the environment only says where one is.
func TestSettingsAreInMountedFiles(t *testing.T) {
	c := readComposition(t)
	used := map[string]bool{}
	for name, s := range c.Services {
		targets := map[string]bool{}
		for _, m := range s.mounts(t) {
			targets[m.target] = true
			if m.named {
				if _, ok := c.Volumes[m.source]; !ok {
					t.Errorf("%s: the volume %s is not declared", name, m.source)
				}
				used[m.source] = true
				continue
			}
			if !m.readOnly || !strings.HasPrefix(m.source, "./deploy/") && !strings.HasPrefix(m.source, "./dashboards/") {
				t.Errorf("%s: %s: files come from deploy/ and dashboards/ and are mounted read-only", name, m.source)
			}
			if _, err := os.Stat(filepath.Join(repository, m.source)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			used[filepath.Clean(m.source)] = true
		}
		for variable, value := range s.Environment {
			if !targets[value] {
				t.Errorf("%s: %s=%s is a setting; allowed: the path of a mounted file", name, variable, value)
			}
		}
	}
	for volume := range c.Volumes {
		if !used[volume] {
			t.Errorf("the volume %s is not used", volume)
		}
	}
	err := filepath.WalkDir(filepath.Join(repository, "deploy"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inside, err := filepath.Rel(repository, path)
		// Those are held to their word by internal/kube and internal/operations.
		for _, elsewhere := range []string{"deploy/helm/", "deploy/kubernetes/", "deploy/systemd/"} {
			if strings.HasPrefix(inside, elsewhere) {
				return err
			}
		}
		for at := inside; at != "."; at = filepath.Dir(at) {
			if used[at] {
				return err
			}
		}
		return fmt.Errorf("%s is mounted nowhere", inside)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPortsAreOnLoopback(t *testing.T) {
	seen := map[string]string{}
	for name, s := range readComposition(t).Services {
		for _, p := range s.Ports {
			parts := strings.Split(p, ":")
			if len(parts) != 3 || parts[0] != "127.0.0.1" {
				t.Errorf("%s: port %q; allowed: 127.0.0.1:PORT:PORT", name, p)
				continue
			}
			if other := seen[parts[1]]; other != "" {
				t.Errorf("%s and %s both publish %s", name, other, parts[1])
			}
			seen[parts[1]] = name
		}
	}
	// The gate believes who asks it.
	if len(readComposition(t).Services["gate"].Ports) > 0 {
		t.Error("the gate is published")
	}
}

func TestServicesHaveHealthChecksAndAnOrder(t *testing.T) {
	c := readComposition(t)
	for _, name := range []string{"kafka", "redis", "postgres", "prometheus", "grafana", "migrate", "weir", "gate", "gateway", "shipper"} {
		if c.Services[name] == nil {
			t.Errorf("there is no service %s", name)
		}
	}
	for name, s := range c.Services {
		if (s.HealthCheck == nil) != c.oneShot(name) {
			t.Errorf("%s: a service has a health check, a one-shot has none", name)
		}
		if s.Restart != "unless-stopped" && name != "migrate" {
			t.Errorf("%s: restart %q; allowed: unless-stopped, and no for migrate alone, which ends by itself", name, s.Restart)
		}
		if h := s.HealthCheck; h != nil && (len(h.Test) < 2 || h.Test[0] != "CMD" || h.Interval == "" || h.Timeout == "" || h.Retries < 10) {
			t.Errorf("%s: health check %+v", name, h)
		}
		for other, d := range s.DependsOn {
			if c.Services[other] == nil {
				t.Errorf("%s depends on %s, which is no service", name, other)
				continue
			}
			want := "service_healthy"
			if c.oneShot(other) {
				want = "service_completed_successfully"
			}
			if d.Condition != want {
				t.Errorf("%s waits for %s to be %q, want %q", name, other, d.Condition, want)
			}
		}
	}
	// Without it, compose gives up on the gateway where Kafka or weir migrate takes longer than the retries.
	if got := c.Services["gate"].HealthCheck.StartPeriod; got != "180s" {
		t.Errorf("the gate has %q to become ready in, want 180s: it waits for weir's first start", got)
	}
	if order := c.order(t); len(order) != len(c.Services) {
		t.Errorf("the order %v leaves services out", order)
	}
}

// order lists the services so that each comes after those that it depends on.
func (c *composition) order(t *testing.T) []string {
	t.Helper()
	var order []string
	for len(order) < len(c.Services) {
		before := len(order)
		for _, name := range slices.Sorted(maps.Keys(c.Services)) {
			ready := !slices.Contains(order, name)
			for other := range c.Services[name].DependsOn {
				ready = ready && slices.Contains(order, other)
			}
			if ready {
				order = append(order, name)
			}
		}
		if len(order) == before {
			t.Fatalf("services wait for each other; in order are only %v", order)
		}
	}
	return order
}
