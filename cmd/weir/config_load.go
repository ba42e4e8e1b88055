package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"sort"
	"strings"
)

// configFile is read when neither --config nor WEIR_CONFIG names another one. It may be absent.
const configFile = "weir.yaml"

// setting is one value from the command line.
type setting struct {
	path, value string
	flag        string // as the user wrote it, for errors: --kafka-brokers
}

// configSource is where a configuration comes from. Tests give their own; the zero value has defaults only.
type configSource struct {
	file     string // --config; must exist when set
	settings []setting
	environ  []string // NAME=value, as os.Environ
	readFile func(string) ([]byte, error)
}

// loadConfig reads defaults, then the file, then the environment, then flags; later ones win. All errors of one source
// are reported together; each says where it stands, what was got and what is allowed. Secrets in files are read here.
func loadConfig(src configSource) (*config, error) {
	if src.readFile == nil {
		src.readFile = os.ReadFile
	}
	c, origin := defaultConfig(), map[string]string{}
	if err := loadFile(c, src, origin); err != nil {
		return nil, err
	}
	if err := loadEnviron(c, src.environ, origin); err != nil {
		return nil, err
	}
	if err := loadSettings(c, src.settings, origin); err != nil {
		return nil, err
	}
	if err := c.readSecrets(src.readFile, origin); err != nil {
		return nil, err
	}
	if err := c.validate(origin); err != nil {
		return nil, err
	}
	c.origin = origin
	return c, nil
}

func loadFile(c *config, src configSource, origin map[string]string) error {
	name, chosen := src.file, src.file != ""
	if !chosen {
		name, chosen = lookupEnviron(src.environ, "WEIR_CONFIG")
	}
	if !chosen || name == "" {
		name, chosen = configFile, false
	}
	text, err := src.readFile(name)
	if !chosen && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	return readYAML(c, name, text, origin)
}

func lookupEnviron(environ []string, name string) (string, bool) {
	for i := len(environ) - 1; i >= 0; i-- {
		if n, value, _ := strings.Cut(environ[i], "="); n == name {
			return value, true
		}
	}
	return "", false
}

// serviceLink is what Kubernetes puts into the environment of every container for a service whose name begins with
// "weir": WEIR_SERVICE_HOST, WEIR_GATE_PORT_9465_TCP_ADDR and the like. Nobody set them, so they are no mistake.
var serviceLink = regexp.MustCompile(`^WEIR(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// loadEnviron takes every WEIR_ variable. One that names no field is an error: it is a setting that would not hold.
func loadEnviron(c *config, environ []string, origin map[string]string) error {
	byName := map[string]field{}
	for _, f := range c.fields() {
		byName[f.env()] = f
	}
	var errs []error
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "WEIR_") || name == "WEIR_CONFIG" || strings.HasPrefix(name, "WEIR_TEST_") {
			continue
		}
		f, ok := byName[name]
		if !ok && serviceLink.MatchString(name) {
			continue
		}
		if !ok {
			errs = append(errs, fmt.Errorf("environment: %s: no such setting%s", name, nearest(name, byName)))
			continue
		}
		origin[f.path] = name
		if err := setText(f.value, value); err != nil {
			errs = append(errs, fmt.Errorf("environment: %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func loadSettings(c *config, settings []setting, origin map[string]string) error {
	byPath := map[string]field{}
	for _, f := range c.fields() {
		byPath[f.path] = f
	}
	var errs []error
	for _, s := range settings {
		f, ok := byPath[s.path]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: no such field %q%s", s.flag, s.path, nearest(s.path, byPath)))
			continue
		}
		origin[f.path] = s.flag
		if err := setText(f.value, s.value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", s.flag, s.path, err))
		}
	}
	return errors.Join(errs...)
}

// nearest names the known settings that share the longest beginning with name.
func nearest(name string, known map[string]field) string {
	best, names := 0, []string(nil)
	for k := range known {
		n := commonPrefix(name, k)
		if n > best {
			best, names = n, nil
		}
		if n == best {
			names = append(names, k)
		}
	}
	sort.Strings(names)
	return "; allowed here: " + strings.Join(names, ", ")
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// readSecrets fills each secret whose _file field is set.
func (c *config) readSecrets(readFile func(string) ([]byte, error), origin map[string]string) error {
	pairs := []struct {
		path string
		to   *secret
		file string
	}{
		{"kafka.sasl.password", &c.Kafka.SASL.Password, c.Kafka.SASL.PasswordFile},
		{"redis.url", &c.Redis.URL, c.Redis.URLFile},
		{"redis.password", &c.Redis.Password, c.Redis.PasswordFile},
		{"postgres.url", &c.Postgres.URL, c.Postgres.URLFile},
	}
	var errs []error
	for _, p := range pairs {
		if p.file == "" {
			continue
		}
		if _, set := origin[p.path]; set && *p.to != "" {
			errs = append(errs, fmt.Errorf("%s: %s and %s_file are both set; allowed: one of them", origin[p.path], p.path, p.path))
			continue
		}
		text, err := readFile(p.file)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s_file: %w", origin[p.path+"_file"], p.path, err))
			continue
		}
		*p.to = secret(strings.TrimRight(string(text), "\r\n"))
	}
	return errors.Join(errs...)
}
