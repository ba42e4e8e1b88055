package blocklist

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// The names and values that docs/blocks.md promises.
func TestContract(t *testing.T) {
	k, err := NewKeys("weir")
	if err != nil {
		t.Fatal(err)
	}
	at := traffic.Time(1_800_000_000_123_456)
	for _, tt := range []struct{ what, got, want string }{
		{"block", k.Block(someSubject, someRule), "weir:v1:block:{ip=192.0.2.1%2F32&device=tv-7}:guest-token-flood"},
		{"tombstone", k.Tombstone(someSubject, someRule), "weir:v1:tombstone:{ip=192.0.2.1%2F32&device=tv-7}:guest-token-flood"},
		{"crowd", k.Crowd("ip=192.0.2.1%2F32", someRule, 3), "weir:v1:crowd:{ip=192.0.2.1%2F32}:guest-token-flood:3"},
		{"shapes", k.Shapes(), "weir:v1:shapes"},
		{"rules", k.Rules(), "weir:v1:rules"},
		{"streams", k.Streams(), "weir:v1:delta:{weir:v1:rules}"},
		{"stream", k.Stream("7"), "weir:v1:delta:{weir:v1:rules}:7"},
		{"last", k.Last("modes"), "weir:v1:delta:{weir:v1:rules}:modes:last"},
		{"epoch", k.Epoch(), "weir:v1:epoch"},
		{"installation", k.Installation(), "weir:v1:installation:{weir:v1:rules}"},
		{"gates", k.Gates(), "weir:v1:gates:{weir:v1:rules}"},
		{"gate", k.Gate("edge-1"), "weir:v1:gates:{weir:v1:rules}:edge-1"},
		{"block value", encode(&Block{
			Format: 1, Action: "block", Scope: "match", Rule: someRule, Generation: 3, Hit: "0123456789abcdef0123456789abcdef",
			Since: at, Until: at + 1,
		}), `{"v":1,"action":"block","scope":"match","rule":"guest-token-flood","generation":3,"hit":"0123456789abcdef0123456789abcdef","since":"2027-01-15T08:00:00.123456Z","until":"2027-01-15T08:00:00.123457Z"}`},
		{"tombstone value", encode(&Tombstone{
			Format: 1, Action: "release", Rule: someRule, Released: at, Until: at + 1, Hit: "aa", Request: "bb", By: "ops",
		}), `{"v":1,"action":"release","rule":"guest-token-flood","released":"2027-01-15T08:00:00.123456Z","until":"2027-01-15T08:00:00.123457Z","hit":"aa","request":"bb","by":"ops"}`},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.what, tt.got, tt.want)
		}
	}
	if got := expiryMS(at); got != 1_800_000_000_124 {
		t.Errorf("expiry of %s: %d ms; it must be rounded up", at, got)
	}
}

// The example of a digest in docs/blocks.md is what weir writes.
func TestDocumentedDigest(t *testing.T) {
	k, err := NewKeys("weir")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/blocks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nprintf %s " + someDevice + " | sha256sum\n", "\n" + k.Block(someLong.Stored(), someRule) + "\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/blocks.md lacks %q", want)
		}
	}
}

func TestNamespaces(t *testing.T) {
	for _, good := range []string{"weir", "t0123456789ab", "weir.staging-2_b"} {
		if _, err := NewKeys(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "Weir", "a{b", "a:b", "a b", "a*", strings.Repeat("x", 49)} {
		if _, err := NewKeys(bad); err == nil || !strings.Contains(err.Error(), "namespace") {
			t.Errorf("%q: got %v, want a refusal that names the field", bad, err)
		}
	}
}

func TestShapes(t *testing.T) {
	for subject, want := range map[traffic.Subject]string{
		"ip=192.0.2.0%2F24":                   "ip4/24",
		"ip=2001%3Adb8%3A%3A%2F64":            "ip6/64",
		"ip=192.0.2.1%2F32&device=tv-7":       "ip4/32&device",
		"device=a&user=b&api_key=c&session=d": "device&user&api_key&session",
		"user=":                               "",
		"":                                    "",
		"device":                              "",
		"device=a&device=b":                   "",
		"device=a&ip=192.0.2.1%2F32":          "",
		"ip=192.0.2.1":                        "",
		"ip=192.0.2.1%2F24":                   "",
		"ip=%3A%3Affff%3A192.0.2.1%2F128":     "",
		"ip=2001%3A0db8%3A%3A%2F64":           "",
		"shoe=43":                             "",
		"device={a}":                          "",
		"device=%41":                          "",
		"ip=2001%3Adb8%3A%3A%2F64&device=a&user=%": "",
	} {
		w, err := ParseSubject(subject)
		if (err == nil) != (want != "") || err == nil && w.Shape().String() != want {
			t.Errorf("%q: got %q, %v, want %q", subject, w.Shape(), err, want)
		}
	}
}

func TestNeverBlock(t *testing.T) {
	n := NewNeverBlock([]netip.Prefix{
		netip.MustParsePrefix("198.51.100.8/29"), netip.MustParsePrefix("2001:db8:5::7/128"), netip.MustParsePrefix("::ffff:203.0.113.0/120"),
	})
	for subject, want := range map[traffic.Subject]bool{
		"ip=198.51.100.9%2F32":              true,
		"ip=198.51.100.0%2F24":              true, // contains them
		"ip=198.51.100.9%2F32&device=x":     true,
		"ip=198.51.100.16%2F32":             false,
		"ip=203.0.113.77%2F32":              true,
		"ip=2001%3Adb8%3A5%3A%3A%2F64":      true,
		"ip=2001%3Adb8%3A6%3A%3A%2F64":      false,
		"device=x":                          false,
		"ip=127.0.0.1%2F32":                 true,
		"ip=127.0.0.1%2F32&device=x":        false, // tells two clients behind it apart
		"ip=10.0.0.1%2F32":                  true,
		"ip=172.31.255.1%2F32":              true,
		"ip=192.168.1.1%2F32":               true,
		"ip=169.254.1.1%2F32":               true,
		"ip=0.0.0.0%2F32":                   true,
		"ip=0.0.0.0%2F0":                    true,
		"ip=%3A%3A1%2F128":                  true,
		"ip=%3A%3A%2F64":                    true,
		"ip=fe80%3A%3A%2F64":                true,
		"ip=fd00%3A1%3A2%3A3%3A%3A%2F64":    true,
		"ip=192.0.2.1%2F32":                 false,
		"not a subject":                     true,
		"ip=2001%3Adb8%3A%3A%2F64&device=x": false,
	} {
		if got := n.Holds(subject); got != want {
			t.Errorf("%s: got %v, want %v", subject, got, want)
		}
	}
	if !n.HoldsAddr(netip.MustParseAddr("198.51.100.15")) || n.HoldsAddr(netip.MustParseAddr("10.0.0.1")) || n.HoldsAddr(netip.Addr{}) {
		t.Error("HoldsAddr is about the configured prefixes")
	}
}

func TestDecisionIDs(t *testing.T) {
	base := Decision{Action: ActionWithheld, Reason: ReasonMaxLag, Rule: someRule, Subject: someSubject, Hit: "a", Until: 5}
	id := func(request string, change func(d *Decision)) string {
		d := base
		change(&d)
		d.Identify(request)
		return d.ID
	}
	same := id("", func(*Decision) {})
	if len(same) != 32 || same != id("", func(d *Decision) { d.Until, d.At = 9, 9 }) {
		t.Error("a withheld decision must be the same for every update of a hit")
	}
	seen := map[string]bool{same: true}
	for _, other := range []string{
		id("", func(d *Decision) { d.Reason = ReasonReleased }),
		id("", func(d *Decision) { d.Subject = "device=x" }),
		id("", func(d *Decision) { d.Hit = "b" }),
		id("", func(d *Decision) { d.Action = ActionWritten }),
		id("", func(d *Decision) { d.Action, d.Until = ActionWritten, 9 }),
		id("", func(d *Decision) { d.Action, d.Generation = ActionWritten, 2 }),
		id("r1", func(d *Decision) { d.Action = ActionReleased }),
		id("r2", func(d *Decision) { d.Action = ActionReleased }),
	} {
		if seen[other] {
			t.Errorf("id %s comes twice", other)
		}
		seen[other] = true
	}
}

func TestConnectSpeaksOfWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server Server
		want   string
	}{
		{"nothing", Server{}, "set either a URL"},
		{"both", Server{URL: "redis://h:1/0", Cluster: []string{"h:1"}}, "set either a URL"},
		{"no URL", Server{URL: "h:1"}, "allowed: redis://"},
	} {
		if _, err := Connect(tt.server, "weir"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	store, err := Connect(Server{URL: "redis://user:geheim@127.0.0.1:1/0"}, "weir")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = store.Ping(t.Context())
	if err == nil || !strings.Contains(err.Error(), "redis 127.0.0.1:1 does not answer") || strings.Contains(err.Error(), "geheim") {
		t.Errorf("ping: %v; want the address and no password", err)
	}
}

func FuzzValues(f *testing.F) {
	at := traffic.Time(1_800_000_000_123_456)
	f.Add([]byte(encode(&Block{Format: 1, Action: "block", Scope: "match", Rule: "r", Generation: 1, Hit: "a", Since: at, Until: at})))
	f.Add([]byte(encode(&Tombstone{Format: 1, Action: "release", Rule: "r", Released: at, Until: at, By: "\x00\"<"})))
	f.Add([]byte(`{"v":1,"id":"a","action":"written","rule":"r","subject":"device=x","at":"2027-01-15T08:00:00.123456Z"}`))
	f.Add([]byte(`{"v":1e99}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := DecodeBlock(text); err == nil {
			if again, err := DecodeBlock([]byte(encode(&b))); err != nil || again != b {
				t.Errorf("block %+v comes back as %+v, %v", b, again, err)
			}
		}
		if tomb, err := DecodeTombstone(text); err == nil {
			if again, err := DecodeTombstone([]byte(encode(&tomb))); err != nil || again != tomb {
				t.Errorf("tombstone %+v comes back as %+v, %v", tomb, again, err)
			}
		}
		if d, err := DecodeDecision(text); err == nil {
			if out, err := EncodeDecision(&d); err != nil || !json.Valid(out) {
				t.Errorf("decision %+v: %s, %v", d, out, err)
			}
		}
	})
}

func FuzzChange(f *testing.F) {
	at := traffic.Time(1_800_000_000_123_456)
	f.Add("block", string(someSubject), "r", encode(&Block{Format: 1, Action: "block", Scope: "match", Rule: "r", Hit: "a", Since: at, Until: at}))
	f.Add("release", string(someSubject), "r", encode(&Tombstone{Format: 1, Action: "release", Rule: "r", Released: at, Until: at}))
	mode, err := json.Marshal(rules.ModeState{Rule: "r", Mode: rules.ModeBlock, Generation: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("mode", "", "r", string(mode))
	f.Add("stream", "", "", "7")
	f.Fuzz(func(t *testing.T, op, identity, rule, value string) {
		c, err := DecodeChange(map[string]any{"op": op, "identity": identity, "rule": rule, "value": value})
		if err != nil {
			return
		}
		if c.Op == OpBlock || c.Op == OpRelease {
			k := Keys{prefix: "weir:v1:"}
			h, tombstone, ok := k.parse(k.Block(c.Subject, rule))
			if !ok || tombstone || h.Subject != c.Subject || h.Rule != rule {
				t.Errorf("%q by %q is taken, and its key is not found again: %+v", identity, rule, h)
			}
		}
	})
}

const (
	someRule    = "guest-token-flood"
	someSubject = traffic.Subject("ip=192.0.2.1%2F32&device=tv-7")
	// someDevice is one that a stored subject has as its digest.
	someDevice = "0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-"
	someLong   = traffic.Subject("ip=192.0.2.1%2F32&device=" + someDevice)
)
