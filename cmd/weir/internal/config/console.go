package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/internal/loopback"
	"github.com/weirhq/weir/traffic"
)

// Console is where weir console serves its pages and its API, who may sign in there, and what they are shown (docs/access.md).
type Console struct {
	Listen string `yaml:"listen"`
	// PublicURL is where browsers find it: https://HOST, or https://HOST:PORT. Needed to sign in.
	PublicURL string   `yaml:"public_url"`
	Hosts     []string `yaml:"hosts"` // further names under which it may be asked
	// TrustedProxies and AddressHeader say how the client's address is found behind proxies, as identity.ip does for events.
	TrustedProxies traffic.TrustedProxies `yaml:"trusted_proxies"`
	AddressHeader  string                 `yaml:"address_header"`
	TLS            ConsoleTLS             `yaml:"tls"`
	OIDC           OIDC                   `yaml:"oidc"`
	Session        Session                `yaml:"session"`
	// LocalAdmin says that whoever is at this machine is an admin, and nobody signs in.
	LocalAdmin bool    `yaml:"local_admin"`
	Tokens     []Token `yaml:"tokens"`
	Masking    Masking `yaml:"masking"`
	// Bounds are the hosts and paths within which the rules of an owner have to stay; an owner without any is not
	// bound.
	Bounds []Bound `yaml:"bounds"`
}

// ConsoleTLS is the certificate of the console's listener.
type ConsoleTLS struct {
	CertFile string `yaml:"cert_file"` // PEM, with the intermediate ones; none: no TLS
	KeyFile  string `yaml:"key_file"`
}

// OIDC is the identity provider.
type OIDC struct {
	Issuer           string            `yaml:"issuer"` // empty: nobody signs in with a browser
	ClientID         string            `yaml:"client_id"`
	ClientSecret     Secret            `yaml:"client_secret"`
	ClientSecretFile string            `yaml:"client_secret_file"`
	Scopes           []string          `yaml:"scopes"` // beside openid
	NameClaim        string            `yaml:"name_claim"`
	GroupsClaim      string            `yaml:"groups_claim"`
	Roles            map[string]string `yaml:"roles"`  // group → role
	Owners           map[string]string `yaml:"owners"` // owner of rules → group
}

// Session is how long people stay signed in.
type Session struct {
	Lasts Duration `yaml:"lasts"` // at most
	Idle  Duration `yaml:"idle"`  // unused
}

// Masking is who is shown pseudonyms.
type Masking struct {
	Below      string   `yaml:"below"` // the role from which on values are shown; empty: nothing is masked
	Fields     []string `yaml:"fields"`
	Secret     Secret   `yaml:"secret"`
	SecretFile string   `yaml:"secret_file"`
}

// Token is a static token for a script. In a file it is a mapping; in a variable or flag its members are name=value, separated by
// blanks, and its owners by +.
type Token struct {
	Name    string   `yaml:"name"`
	Role    string   `yaml:"role"`
	Owners  []string `yaml:"owners"`
	SHA256  string   `yaml:"sha256"`  // of the token, in hex
	Expires string   `yaml:"expires"` // 2027-01-31, or RFC 3339
}

var (
	_ fmt.Stringer                               = Token{}
	_ interface{ UnmarshalText(b []byte) error } = (*Token)(nil)
)

// String writes t as UnmarshalText reads it.
func (t Token) String() string {
	text := fmt.Sprintf("name=%s role=%s", t.Name, t.Role)
	if len(t.Owners) > 0 {
		text += " owners=" + strings.Join(t.Owners, "+")
	}
	return text + " sha256=" + t.SHA256 + " expires=" + t.Expires
}

// UnmarshalText reads what String writes.
func (t *Token) UnmarshalText(b []byte) error {
	const allowed = "allowed: like name=ci role=owner owners=identity+search sha256=9f86… expires=2027-01-31"
	*t = Token{}
	for part := range strings.FieldsSeq(string(b)) {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "name":
			t.Name = value
		case "role":
			t.Role = value
		case "owners":
			t.Owners = strings.Split(value, "+")
		case "sha256":
			t.SHA256 = value
		case "expires":
			t.Expires = value
		default:
			return errors.New("got a member that a token has not (not shown: it may be a secret); " + allowed)
		}
	}
	if t.Name == "" {
		return errors.New("got a token without a name; " + allowed)
	}
	return nil
}

func defaultConsole() Console {
	return Console{
		Listen: "127.0.0.1:9466",
		OIDC:   OIDC{Scopes: []string{"profile", "email"}, NameClaim: "email", GroupsClaim: "groups"},
		Session: Session{
			Lasts: Duration(signin.DefaultLasts), Idle: Duration(signin.DefaultIdle),
		},
		Masking: Masking{Fields: access.DefaultMaskedFields()},
	}
}

func (c *Console) check(k *checks) {
	k.address("console.listen", c.Listen)
	public := c.checkPublicURL(k)
	for _, h := range c.Hosts {
		if h == "" || strings.ContainsAny(h, "/: ") {
			k.fail("console.hosts", fmt.Sprintf("%q", h), "host names without scheme and port")
		}
	}
	if c.AddressHeader != "" && len(c.TrustedProxies.Prefixes) == 0 {
		k.fail("console.address_header", fmt.Sprintf("%q without prefixes in console.trusted_proxies", c.AddressHeader),
			"with the addresses of the proxies that write it, since anybody can send it")
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		k.fail("console.tls.cert_file", "one of cert_file and key_file", "both or none")
	}
	if c.TLS.CertFile != "" && public != nil && public.Scheme == "http" {
		k.fail("console.public_url", fmt.Sprintf("%q with console.tls", c.PublicURL), "https://…")
	}
	c.OIDC.check(k, public)
	c.checkLocalAdmin(k, public)
	if lasts := time.Duration(c.Session.Lasts); lasts < 5*time.Minute || lasts > 30*Day {
		k.fail("console.session.lasts", c.Session.Lasts.String(), "5m to 30d")
	}
	if idle := time.Duration(c.Session.Idle); idle < 5*time.Minute || idle > time.Duration(c.Session.Lasts) {
		k.fail("console.session.idle", c.Session.Idle.String(), "5m to console.session.lasts, "+c.Session.Lasts.String())
	}
	for i := range c.Tokens {
		c.Tokens[i].check(k, fmt.Sprintf("console.tokens[%d]", i+1), c.Tokens[:i])
	}
	c.Masking.check(k)
	for i := range c.Bounds {
		c.Bounds[i].check(k, fmt.Sprintf("console.bounds[%d]", i+1), c.Bounds[:i])
	}
}

func (c *Console) checkPublicURL(k *checks) *url.URL {
	if c.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		k.fail("console.public_url", fmt.Sprintf("%q", c.PublicURL), "https://HOST or https://HOST:PORT, without a path")
		return nil
	}
	if u.Scheme == "http" && !loopback.Host(u.Hostname()) {
		k.fail("console.public_url", fmt.Sprintf("%q", c.PublicURL), "https://…: who sees a session's cookie on the way has the session; http for localhost only")
	}
	return u
}

// checkLocalAdmin refuses to ask nobody who he is where others than who is at this machine are meant to come.
func (c *Console) checkLocalAdmin(k *checks, public *url.URL) {
	if !c.LocalAdmin {
		return
	}
	const path = "console.local_admin"
	if err := LocalListen(c.Listen); err != nil {
		k.fail(path, fmt.Sprintf("true, with console.listen %q", c.Listen),
			"with console.listen of this machine alone, "+
				"such as 127.0.0.1:9466, since whoever reaches it may do everything; elsewhere: weir console invite, console.tokens or console.oidc")
	}
	if c.OIDC.Issuer != "" {
		k.fail(path, "true, with console.oidc", "one of them: with local_admin nobody signs in")
	}
	if public != nil && !loopback.Host(public.Hostname()) {
		k.fail(path, fmt.Sprintf("true, with console.public_url %q", c.PublicURL),
			"without public_url: such a console answers this machine alone, and no proxy")
	}
}

// LocalListen refuses an address to listen on that others than this machine reach.
func LocalListen(address string) error {
	if host, _, err := net.SplitHostPort(address); err != nil || !loopback.Host(host) {
		return fmt.Errorf("got %q; allowed: an address of this machine alone, such as 127.0.0.1:9466, [::1]:9466 or localhost:0", address)
	}
	return nil
}

func (o *OIDC) check(k *checks, public *url.URL) {
	const path = "console.oidc."
	if o.Issuer == "" {
		if o.ClientID != "" || o.ClientSecret != "" || len(o.Roles) > 0 || len(o.Owners) > 0 {
			k.fail(path+"issuer", "none, but other fields of console.oidc", "https://…, the address of the identity provider")
		}
		return
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback.Host(u.Hostname())) {
		k.fail(path+"issuer", fmt.Sprintf("%q", o.Issuer), "https://…, as the tokens of the identity provider name it")
	}
	if o.ClientID == "" {
		k.fail(path+"client_id", "none", "the id that the identity provider gave the console")
	}
	if public == nil {
		k.fail("console.public_url", "none, with console.oidc", "https://HOST, where browsers find the console: the identity provider sends them back there")
	}
	if len(o.Roles) == 0 && len(o.Owners) == 0 {
		k.fail(path+"roles", "none", "a role for one group at least: without it nobody can sign in")
	}
	for _, group := range slices.Sorted(maps.Keys(o.Roles)) {
		if !slices.Contains(access.RoleNames(), o.Roles[group]) {
			k.fail(path+"roles", fmt.Sprintf("%q for group %s", o.Roles[group], group), strings.Join(access.RoleNames(), ", "))
		}
	}
	if o.NameClaim == "" || o.GroupsClaim == "" {
		k.fail(path+"name_claim, "+path+"groups_claim", "none", "names of claims")
	}
}

func (t *Token) check(k *checks, path string, before []Token) {
	if t.Name == "" || strings.ContainsFunc(t.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		k.fail(path+".name", fmt.Sprintf("%q", t.Name), "a name in ASCII without blanks: the audit trail has it as token:NAME")
	}
	if slices.ContainsFunc(before, func(o Token) bool { return o.Name == t.Name }) {
		k.fail(path+".name", fmt.Sprintf("%q twice", t.Name), "a name of its own for each token")
	}
	k.oneOf(path+".role", t.Role, access.RoleNames()...)
	if (t.Role == access.Owner.String()) != (len(t.Owners) > 0) {
		k.fail(path+".owners", fmt.Sprintf("%d with role %s", len(t.Owners), t.Role), "the owners for whom a token of role owner decides, for no other role")
	}
	if sum, err := hex.DecodeString(t.SHA256); err != nil || len(sum) != sha256.Size {
		k.fail(path+".sha256", fmt.Sprintf("%d characters", len(t.SHA256)), "the SHA-256 of the token, 64 hex digits: printf %s TOKEN | sha256sum")
	} else if word, weak := weakToken(sum); weak {
		k.fail(path+".sha256", "that of "+word, "the SHA-256 of a token that nobody can guess: openssl rand -hex 32")
	} else if slices.ContainsFunc(before, func(o Token) bool { return strings.EqualFold(o.SHA256, t.SHA256) }) {
		k.fail(path+".sha256", "that of another token", "a token of its own for each script")
	}
	if _, err := t.end(); err != nil {
		k.fail(path+".expires", fmt.Sprintf("%q", t.Expires), "a day like 2027-01-31 (its end, UTC) or a time like 2027-01-31T12:00:00Z")
	}
}

// end is when the token expires: with a day, at its end.
func (t *Token) end() (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, t.Expires); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	return time.Parse(time.RFC3339, t.Expires)
}

func (m *Masking) check(k *checks) {
	const path = "console.masking."
	for _, field := range m.Fields {
		k.oneOf(path+"fields", field, access.MaskableFields()...)
	}
	if m.Below == "" {
		return
	}
	k.oneOf(path+"below", m.Below, access.RoleNames()[1:]...)
	if m.Secret.Reveal() == exampleSecret {
		k.fail(path+"secret", "that of the example", "a secret that nobody else has: openssl rand -hex 32")
	} else if n := len(m.Secret); n < access.MaskKeyBytes {
		k.fail(path+"secret", fmt.Sprintf("%d bytes (not shown)", n), fmt.Sprintf("%d or more, with console.masking.below: openssl rand -hex 32", access.MaskKeyBytes))
	}
}

// roleOf reads a role that check has seen.
func roleOf(name string) (role access.Role) {
	_ = role.UnmarshalText([]byte(name)) // else it stays Nobody, who may do nothing
	return role
}

// SignIn is what the configuration says about signing in; who serves the console adds the rest.
func (c *Console) SignIn() signin.Options {
	o := signin.Options{
		PublicURL: c.PublicURL, Hosts: c.Hosts, Client: traffic.IPSource{TrustedProxies: c.TrustedProxies, Header: c.AddressHeader},
		Lasts: time.Duration(c.Session.Lasts), Idle: time.Duration(c.Session.Idle),
	}
	if c.OIDC.Issuer != "" {
		o.OIDC = &signin.OIDC{
			Issuer: c.OIDC.Issuer, ClientID: c.OIDC.ClientID, ClientSecret: c.OIDC.ClientSecret.Reveal(), Scopes: c.OIDC.Scopes,
			NameClaim: c.OIDC.NameClaim, GroupsClaim: c.OIDC.GroupsClaim, Roles: map[string]access.Role{}, Owners: c.OIDC.Owners,
		}
		for group, role := range c.OIDC.Roles {
			o.OIDC.Roles[group] = roleOf(role)
		}
	}
	for _, t := range c.Tokens {
		made := signin.Token{Name: t.Name, Role: roleOf(t.Role), Owners: t.Owners}
		_, _ = hex.Decode(made.SHA256[:], []byte(t.SHA256)) // check has seen it; a hash of zeros is refused by signin
		made.Expires, _ = t.end()                           // the same
		o.Tokens = append(o.Tokens, made)
	}
	return o
}

// Masker is who is shown what; nil where everybody is shown everything.
func (c *Console) Masker() (*access.Masker, error) {
	return access.NewMasker(access.Masking{Key: []byte(c.Masking.Secret.Reveal()), Below: roleOf(c.Masking.Below), Fields: c.Masking.Fields})
}

// Known reports whether the configuration names somebody who can sign in, with a browser or by a token. Else
// invitations alone let people in.
func (c *Console) Known() bool { return c.OIDC.Issuer != "" || len(c.Tokens) > 0 || c.LocalAdmin }

// Address is where a browser finds the console, without a slash at its end: public_url or, without one, where it
// listens. here says that it is an address of the browser's own machine, which leads to the console there alone.
func (c *Console) Address() (address string, here bool) {
	if u, err := url.Parse(c.PublicURL); err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host, loopback.Host(u.Hostname())
	}
	host, port, _ := net.SplitHostPort(c.Listen) // check has seen it
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http"
	if c.TLS.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port), loopback.Host(host)
}

// Names are the host names, without port, under which the console is asked: those of hosts and that of public_url.
func (c *Console) Names() []string {
	names := slices.Clone(c.Hosts)
	if u, err := url.Parse(c.PublicURL); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	return names
}
