package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/access"
)

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func consoleYAML(lines string) Source {
	return Source{ReadFile: files(map[string]string{"weir.yaml": "console:\n" + lines, "masking": strings.Repeat("k", 32) + "\n", "client": "hush\n"})}
}

const signInYAML = `  public_url: https://weir.example.com
  oidc: {issuer: "https://id.example.com", client_id: weir, client_secret_file: client, roles: {soc: analyst}, owners: {identity: team-identity}}
`

func TestConsoleIsRead(t *testing.T) {
	hash := hashOf("x")
	c, err := Load(consoleYAML(signInYAML + `  tokens:
    - {name: ci, role: owner, owners: [identity, the search team], sha256: ` + hash + `, expires: 2027-01-31}
    - name=metrics role=viewer sha256=` + hashOf("y") + ` expires=2027-01-31T12:00:00+01:00
  trusted_proxies: [10.0.0.0/8]
  masking: {below: analyst, secret_file: masking}
`))
	if err != nil {
		t.Fatal(err)
	}
	o := c.Console.SignIn()
	if o.OIDC == nil || o.OIDC.ClientSecret != "hush" || o.OIDC.Roles["soc"] != access.Analyst || o.OIDC.Owners["identity"] != "team-identity" || o.OIDC.GroupsClaim != "groups" ||
		len(o.Client.TrustedProxies.Prefixes) != 1 || o.Lasts != 12*time.Hour || o.Idle != time.Hour {
		t.Errorf("got %+v, %+v", o, o.OIDC)
	}
	if len(o.Tokens) != 2 || o.Tokens[0].Owners[1] != "the search team" || hex.EncodeToString(o.Tokens[0].SHA256[:]) != hash ||
		!o.Tokens[0].Expires.Equal(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)) || o.Tokens[1].Role != access.Viewer || o.Tokens[1].Expires.Hour() != 12 {
		t.Errorf("got %+v", o.Tokens)
	}
	m, err := c.Console.Masker()
	if err != nil || !m.Masks(access.Actor{Role: access.Viewer}, "ip") || m.Masks(access.Actor{Role: access.Analyst}, "ip") {
		t.Errorf("masks %v, %v", m, err)
	}
	if address, here := c.Console.Address(); !c.Console.Known() || address != "https://weir.example.com" || here {
		t.Errorf("known: %v, found at %s, here: %v", c.Console.Known(), address, here)
	}
	for _, f := range c.Fields() {
		if f.Path != "console.tokens" {
			continue
		}
		again, err := Load(Source{ReadFile: files(nil), Environ: []string{"WEIR_CONSOLE_TOKENS=name=a role=owner owners=b+c sha256=" + hash + " expires=2027-01-31,name=m role=viewer sha256=" + hashOf("y") + " expires=2027-01-31"}})
		if err != nil || len(again.Console.Tokens) != 2 || again.Console.Tokens[0].Owners[1] != "c" {
			t.Errorf("of a variable: %+v, %v", again, err)
		}
		if text := f.Text(); !strings.HasPrefix(text, "name=ci role=owner owners=identity+the search team sha256="+hash) {
			t.Errorf("shown as %s", text)
		}
	}
}

func TestConsoleErrorsNamePlaceGotAndAllowed(t *testing.T) {
	token := func(change string) string {
		base := map[string]string{"name": "ci", "role": "viewer", "sha256": hashOf("x"), "expires": "2027-01-31"}
		name, value, _ := strings.Cut(change, "=")
		base[name] = value
		return fmt.Sprintf("  tokens:\n    - {name: %q, role: %q, sha256: %q, expires: %q}\n", base["name"], base["role"], base["sha256"], base["expires"])
	}
	oidc := func(from, to string) string { return strings.Replace(signInYAML, from, to, 1) }
	for _, tc := range []struct{ yaml, want string }{
		{"  listen: here\n", `weir.yaml:2:11: console.listen: got "here"; allowed: host:port`},
		{"  public_url: weir.example.com\n", `weir.yaml:2:15: console.public_url: got "weir.example.com"; allowed: https://HOST`},
		{"  public_url: http://weir.example.com\n", `weir.yaml:2:15: console.public_url: got "http://weir.example.com"; allowed: https://…: who sees`},
		{"  public_url: https://weir.example.com/weir\n", `weir.yaml:2:15: console.public_url: got "https://weir.example.com/weir"`},
		{"  hosts: [\"a:1\"]\n", `weir.yaml:2:10: console.hosts: got "a:1"; allowed: host names`},
		{"  address_header: X-Real-IP\n", `weir.yaml:2:19: console.address_header: got "X-Real-IP" without prefixes in console.trusted_proxies; allowed: with the addresses`},
		{"  local_admin: maybe\n", `weir.yaml:2:16: console.local_admin: got "maybe"; allowed: true, false`},
		{"  local_admin: true\n  listen: 0.0.0.0:9466\n",
			`weir.yaml:2:16: console.local_admin: got true, with console.listen "0.0.0.0:9466"; allowed: with console.listen of this`},
		{"  local_admin: true\n  listen: :9466\n",
			`weir.yaml:2:16: console.local_admin: got true, with console.listen ":9466"; allowed: with`},
		{"  local_admin: true\n  listen: 192.0.2.1:9466\n",
			`weir.yaml:2:16: console.local_admin: got true, with console.listen "192.0.2.1:9466"`},
		{"  local_admin: true\n" + signInYAML,
			`weir.yaml:2:16: console.local_admin: got true, with console.oidc; allowed: one of them`},
		{"  local_admin: true\n  public_url: https://weir.example.com\n",
			`weir.yaml:2:16: console.local_admin: got true, with console.public_url "https://weir`},
		{"  tls: {cert_file: a}\n", `weir.yaml:2:20: console.tls.cert_file: got one of cert_file and key_file; allowed: both or none`},
		{"  public_url: http://localhost\n  tls: {cert_file: a, key_file: b}\n", `weir.yaml:2:15: console.public_url: got "http://localhost" with console.tls; allowed: https://…`},
		{"  oidc: {client_id: weir}\n", `default: console.oidc.issuer: got none, but other fields of console.oidc; allowed: https://`},
		{oidc("https://id.", "http://id."), `weir.yaml:3:18: console.oidc.issuer: got "http://id.example.com"; allowed: https://`},
		{oidc("client_id: weir, ", ""), `default: console.oidc.client_id: got none; allowed: the id`},
		{oidc("  public_url: https://weir.example.com\n", ""), `default: console.public_url: got none, with console.oidc; allowed: https://HOST`},
		{oidc("roles: {soc: analyst}, owners: {identity: team-identity}", "scopes: []"), `default: console.oidc.roles: got none; allowed: a role for one group`},
		{oidc("soc: analyst", "soc: boss"), `weir.yaml:3:96: console.oidc.roles: got "boss" for group soc; allowed: viewer, analyst, owner, admin`},
		{"  session: {lasts: 1m}\n", `weir.yaml:2:20: console.session.lasts: got 1m; allowed: 5m to 30d`},
		{"  session: {idle: 13h}\n", `weir.yaml:2:19: console.session.idle: got 13h; allowed: 5m to console.session.lasts, 12h`},
		{token("name=a b"), `weir.yaml:3:14: console.tokens[1].name: got "a b"; allowed: a name in ASCII`},
		{token("role=root"), `weir.yaml:3:26: console.tokens[1].role: got "root"; allowed: viewer, analyst, owner, admin`},
		{token("role=owner"), `default: console.tokens[1].owners: got 0 with role owner; allowed: the owners`},
		{token("sha256=8d969eef6ecad3c29a3a629280e686cf0c3f5d5a86aff3ca12020c923adc6c92"),
			`weir.yaml:3:44: console.tokens[1].sha256: got that of a token that is tried first; allowed`},
		{token("sha256=" + hashOf("")),
			`weir.yaml:3:44: console.tokens[1].sha256: got that of nothing at all; allowed`},
		{token("sha256=" + hashOf("CHANGEME")),
			`weir.yaml:3:44: console.tokens[1].sha256: got that of a token that is tried first`},
		{token("sha256=" + hashOf("secret\n")),
			`weir.yaml:3:44: console.tokens[1].sha256: got that of a token that is tried first`},
		{"  masking: {below: analyst, secret: " + exampleSecret + "}\n",
			`weir.yaml:2:37: console.masking.secret: got that of the example; allowed: a secret that nobody else has`},
		{token("sha256=abc"), `weir.yaml:3:44: console.tokens[1].sha256: got 3 characters; allowed: the SHA-256 of the token`},
		{token("expires=soon"), `weir.yaml:3:121: console.tokens[1].expires: got "soon"; allowed: a day like 2027-01-31`},
		{token("expires="), `weir.yaml:3:121: console.tokens[1].expires: got ""; allowed: a day`},
		{"  tokens:\n    - {name: ci, secret: x}\n", `weir.yaml:3:18: console.tokens[1].secret: unknown field; allowed: name, role, owners, sha256, expires`},
		{"  tokens: [[a]]\n", `weir.yaml:2:12: console.tokens[1]: got a list; allowed: a mapping with name, role`},
		{"  tokens: [hunter2]\n", `weir.yaml:2:12: console.tokens[1]: got a member that a token has not (not shown: it may be a secret); allowed: like name=ci`},
		{"  tokens: ci\n", `weir.yaml:2:11: console.tokens: got a text; allowed: a list`},
		{"  masking: {below: viewer}\n", `weir.yaml:2:20: console.masking.below: got "viewer"; allowed: analyst, owner, admin`},
		{"  masking: {below: analyst, secret: hunter2}\n", `weir.yaml:2:37: console.masking.secret: got 7 bytes (not shown); allowed: 32 or more`},
		{"  masking: {fields: [ip, name]}\n", `weir.yaml:2:21: console.masking.fields: got "name"; allowed: ip, device, user, api_key, session, user_agent, path, attrs`},
	} {
		_, err := Load(consoleYAML(tc.yaml))
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s\ngot  %v\nwant %s…", tc.yaml, err, tc.want)
		}
	}
	twice := "    - {name: ci, role: viewer, sha256: " + hashOf("x") + ", expires: 2027-01-31}\n"
	_, err := Load(consoleYAML("  tokens:\n" + twice + twice))
	if err == nil || !strings.Contains(err.Error(), `console.tokens[2].name: got "ci" twice`) || !strings.Contains(err.Error(), "console.tokens[2].sha256: got that of another token") {
		t.Errorf("got %v", err)
	}
}

func TestWhereABrowserFindsTheConsole(t *testing.T) {
	for _, tc := range []struct {
		yaml, want string
		here       bool
	}{
		{"", "http://127.0.0.1:9466", true},
		{"  listen: 0.0.0.0:9000\n", "http://127.0.0.1:9000", true},
		{"  listen: :9000\n", "http://127.0.0.1:9000", true},
		{"  listen: \"[::]:9000\"\n", "http://127.0.0.1:9000", true},
		{"  listen: \"[::1]:9000\"\n", "http://[::1]:9000", true},
		{"  listen: localhost:9000\n", "http://localhost:9000", true},
		{"  listen: 192.0.2.7:9000\n  tls: {cert_file: a, key_file: b}\n", "https://192.0.2.7:9000", false},
		{"  public_url: https://weir.example.com/\n", "https://weir.example.com", false},
	} {
		c, err := Load(consoleYAML("  hosts: []\n" + tc.yaml))
		if err != nil {
			t.Errorf("%s: %v", tc.yaml, err)
			continue
		}
		if address, here := c.Console.Address(); address != tc.want || here != tc.here || c.Console.Known() {
			t.Errorf("%s: found at %s, here: %v, known: %v", tc.yaml, address, here, c.Console.Known())
		}
	}
	c, err := Load(consoleYAML("  local_admin: true\n  listen: \"[::1]:9466\"\n"))
	if err != nil || !c.Console.LocalAdmin || !c.Console.Known() {
		t.Errorf("on loopback: %v", err)
	}
}
