package signin_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/sessions"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func registry() *prometheus.Registry { return prometheus.NewRegistry() }

func TestOptionsThatWouldBeUnsafeAreRefused(t *testing.T) {
	oidc := func(change func(*signin.OIDC)) func(*signin.Options) {
		return func(o *signin.Options) {
			o.OIDC = &signin.OIDC{Issuer: "https://id.example", ClientID: "weir", Roles: signintest.Roles()}
			o.PublicURL = "https://weir.example.com"
			o.Sessions = &sessions.Store{}
			if change != nil {
				change(o.OIDC)
			}
		}
	}
	token := signin.Token{Name: "ci", Role: access.Viewer, SHA256: [32]byte{1}, Expires: time.Now()}
	for want, change := range map[string]func(*signin.Options){
		"":                                       func(*signin.Options) {},
		"got \"http://weir.example.com\"":        func(o *signin.Options) { o.PublicURL = "http://weir.example.com" },
		"got \"https://a.example/path\"":         func(o *signin.Options) { o.PublicURL = "https://a.example/path" },
		"got \"weir.example.com\"":               func(o *signin.Options) { o.PublicURL = "weir.example.com" },
		"OIDC issuer: got \"http://id.example\"": oidc(func(o *signin.OIDC) { o.Issuer = "http://id.example" }),
		"OIDC client id: got none":               oidc(func(o *signin.OIDC) { o.ClientID = "" }),
		"OIDC roles: got none":                   oidc(func(o *signin.OIDC) { o.Roles = nil }),
		"OIDC needs Sessions and PublicURL":      func(o *signin.Options) { oidc(nil)(o); o.PublicURL = "" },
		"needs a name, a role, a hash and an end": func(o *signin.Options) {
			o.Tokens = []signin.Token{{Name: "ci", Role: access.Viewer, SHA256: [32]byte{1}}}
		},
		"is given twice":     func(o *signin.Options) { o.Tokens = []signin.Token{token, token} },
		"Logger or Register": func(o *signin.Options) { o.Logger = nil },
	} {
		o := signin.Options{Logger: discard(), Registerer: registry()}
		change(&o)
		_, err := signin.New(o)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestTheStyleHasTheColoursOfTheConsole(t *testing.T) {
	read := func(name string) map[string][]string {
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		out := map[string][]string{}
		for _, m := range regexp.MustCompile(`(--[a-z]+): (?:light-dark\((#[0-9a-f]+), )?(#[0-9a-f]+)\)?;`).FindAllStringSubmatch(string(text), -1) {
			for _, colour := range m[2:] {
				if colour != "" {
					out[m[1]] = append(out[m[1]], colour)
				}
			}
		}
		return out
	}
	found, err := filepath.Glob("../*/tokens.css")
	nested, nestedErr := filepath.Glob("../*/*/tokens.css")
	if found = append(found, nested...); err != nil || nestedErr != nil || len(found) != 1 {
		t.Fatalf("the console's colours are in %v", found)
	}
	console := read(found[0])
	ours := read("style.css")
	if len(ours) != 6 {
		t.Errorf("%d colours", len(ours))
	}
	for name, values := range ours {
		if strings.Join(values, " ") != strings.Join(console[name], " ") {
			t.Errorf("%s: %v, the console has %v", name, values, console[name])
		}
	}
}
