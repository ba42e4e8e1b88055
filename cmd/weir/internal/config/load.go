package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/weirhq/weir/rules"
)

// DefaultFile is read when neither --config nor WEIR_CONFIG names another one. It may be absent.
const DefaultFile = "weir.yaml"

// Setting is one value from the command line.
type Setting struct {
	Path, Value string
	Flag        string // as the user wrote it, for errors: --kafka-brokers
}

// Source is where a configuration comes from. Tests give their own; the zero value has defaults only.
type Source struct {
	File     string // --config; must exist when set
	Settings []Setting
	Environ  []string // NAME=value, as os.Environ
	ReadFile func(string) ([]byte, error)
}

// Load reads defaults, then the file, then the environment, then flags; later ones win. All errors of one source
// are reported together; each says where it stands, what was got and what is allowed. Secrets in files are read here.
func Load(src Source) (*Config, error) {
	if src.ReadFile == nil {
		src.ReadFile = os.ReadFile
	}
	c := Default()
	c.Origins = Origins{}
	if err := loadFile(c, src); err != nil {
		return nil, err
	}
	if err := loadEnviron(c, src.Environ); err != nil {
		return nil, err
	}
	if err := loadSettings(c, src.Settings); err != nil {
		return nil, err
	}
	if err := c.readSecrets(src.ReadFile); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

func loadFile(c *Config, src Source) error {
	name, chosen := src.File, src.File != ""
	if !chosen {
		name, chosen = LookupEnv(src.Environ, "WEIR_CONFIG")
	}
	if !chosen || name == "" {
		name, chosen = DefaultFile, false
	}
	text, err := src.ReadFile(name)
	if !chosen && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	return readYAML(c, name, text)
}

// LookupEnv finds a variable in an environment as os.Environ gives it. The last of several holds.
func LookupEnv(environ []string, name string) (string, bool) {
	for i := len(environ) - 1; i >= 0; i-- {
		if n, value, _ := strings.Cut(environ[i], "="); n == name {
			return value, true
		}
	}
	return "", false
}

// Variables of the environment that name the server that commands ask instead of the stores, and the token for it.
const (
	ServerVariable = "WEIR_SERVER"
	TokenVariable  = "WEIR_TOKEN"
)

// notSettings are variables of weir that set no field.
var notSettings = [...]string{"WEIR_CONFIG", ServerVariable, TokenVariable}

// serviceLink is what Kubernetes puts into the environment of every container for a service whose name begins with
// "weir": WEIR_SERVICE_HOST, WEIR_GATE_PORT_9465_TCP_ADDR and the like. Nobody set them, so they are no mistake.
var serviceLink = regexp.MustCompile(`^WEIR(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// loadEnviron takes every WEIR_ variable. One that names no field is an error: it is a setting that would not hold.
func loadEnviron(c *Config, environ []string) error {
	byName := map[string]Field{}
	for _, f := range c.Fields() {
		byName[f.Env()] = f
	}
	var errs []error
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "WEIR_") || slices.Contains(notSettings[:], name) || strings.HasPrefix(name, "WEIR_TEST_") {
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
		c.Origins[f.Path] = Origin{Variable: name}
		if err := setText(f.Value, value); err != nil {
			errs = append(errs, fmt.Errorf("environment: %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func loadSettings(c *Config, settings []Setting) error {
	byPath := map[string]Field{}
	for _, f := range c.Fields() {
		byPath[f.Path] = f
	}
	var errs []error
	for _, s := range settings {
		f, ok := byPath[s.Path]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: no such field %q%s", s.Flag, s.Path, nearest(s.Path, byPath)))
			continue
		}
		c.Origins[f.Path] = Origin{Flag: s.Flag}
		if err := setText(f.Value, s.Value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", s.Flag, s.Path, err))
		}
	}
	return errors.Join(errs...)
}

// nearest names the setting that was probably meant, else those that begin as name does, as far as they are few.
func nearest(name string, known map[string]Field) string {
	names := slices.Sorted(maps.Keys(known))
	if meant := rules.Nearest(name, names); meant != "" {
		return "; did you mean " + meant + "?"
	}
	separator := strings.IndexAny(strings.TrimPrefix(name, "WEIR_"), "._")
	if separator >= 0 {
		section := name[:len(name)-len(strings.TrimPrefix(name, "WEIR_"))+separator+1]
		alike := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, section) })
		if len(alike) > 0 && len(alike) <= mostAlike {
			return "; allowed here: " + strings.Join(alike, ", ")
		}
	}
	return "; weir config show lists all"
}

// mostAlike is how many settings of a section an error lists.
const mostAlike = 25

// readSecrets fills each secret whose _file field is set.
func (c *Config) readSecrets(readFile func(string) ([]byte, error)) error {
	pairs := []struct {
		path string
		to   *Secret
		file string
	}{
		{"kafka.sasl.password", &c.Kafka.SASL.Password, c.Kafka.SASL.PasswordFile},
		{"redis.url", &c.Redis.URL, c.Redis.URLFile},
		{"redis.password", &c.Redis.Password, c.Redis.PasswordFile},
		{"postgres.url", &c.Postgres.URL, c.Postgres.URLFile},
		{"console.oidc.client_secret", &c.Console.OIDC.ClientSecret, c.Console.OIDC.ClientSecretFile},
		{"console.masking.secret", &c.Console.Masking.Secret, c.Console.Masking.SecretFile},
	}
	var errs []error
	for _, p := range pairs {
		if p.file == "" {
			continue
		}
		if c.Origins.Has(p.path) && *p.to != "" {
			errs = append(errs, fmt.Errorf("%s: %s and %s_file are both set; allowed: one of them", c.Origins[p.path], p.path, p.path))
			continue
		}
		text, err := readFile(p.file)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s_file: %w", c.Origins[p.path+"_file"], p.path, err))
			continue
		}
		*p.to = Secret(strings.TrimRight(string(text), "\r\n"))
	}
	return errors.Join(errs...)
}
