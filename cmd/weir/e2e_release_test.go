package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

const floodRule = `
id: flood
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip, device]
limit: 3
window: 60s
max_lag: 10m # on a machine that stands still it takes long until a hit is heard of
block: {key: [ip, device], ttl: 10m}
`

// flood sends what makes the rule flood block a device behind an address.
func (b *bed) flood(ip, device string) {
	b.t.Helper()
	name, err := json.Marshal(device)
	if err != nil {
		b.t.Fatal(err)
	}
	var text strings.Builder
	at := time.Now().Add(-6 * time.Millisecond)
	for i := range 6 {
		fmt.Fprintf(&text, `{"v":1,"time":%q,"ip":%q,"device":%s,"method":"POST","path":"/v1/guest-tokens","status":201}`+"\n",
			at.Add(time.Duration(i)*time.Millisecond).UTC().Format(time.RFC3339Nano), ip, name)
	}
	if o := b.weirWith(text.String(), "ingest", "-", "--format", "weir", "--live"); o.code != exitOK {
		b.t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

func awaitBlocks(b *bed, want int) []shownBlock {
	b.t.Helper()
	var blocks []shownBlock
	testbed.Eventually(b.t, 30*time.Second, func() error {
		if blocks = decode[[]shownBlock](b, "blocks", "list"); len(blocks) != want {
			return fmt.Errorf("%d blocks, want %d", len(blocks), want)
		}
		return nil
	})
	return blocks
}

// releases counts the releases that history holds: each names somebody who was released.
func (b *bed) releases() int {
	b.t.Helper()
	return len(decode[[]map[string]any](b, "history", "decisions", "--action", "released"))
}

// A release is of somebody who is blocked. Whatever else is named, nothing is released, and the answer says so and offers what
// can be.
func TestReleaseOfNobodySaysSo(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule+"---\n"+tokenRule))
	b.ok("rules", "promote", "flood", "--reason", "test", "--yes", "--override", "tests")
	stages := b.start("run")
	b.flood("198.51.100.7", "tv-7")
	b.flood("198.51.100.7", "tv 8")
	b.flood("198.51.100.9", "tv-9")
	awaitBlocks(b, 3)
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stderr string
		offers []string
	}{
		{"only the address", []string{"flood", "ip=198.51.100.7"}, exitUsage, "SOURCE: got ip; allowed: ip, device, as the blocks of rule flood are keyed; nothing was released",
			[]string{"weir blocks release flood ip=198.51.100.7/32 device=tv-7 --reason 'ticket 4711'", "weir blocks release flood 'ip=198.51.100.7%2F32&device=tv%208' --reason 'ticket 4711'"}},
		{"only the device", []string{"flood", "device=tv-9"}, exitUsage, "got device; allowed: ip, device", []string{"weir blocks release flood ip=198.51.100.9/32 device=tv-9 --reason 'ticket 4711'"}},
		{"a field too many", []string{"tokens", "ip=198.51.100.7", "device=tv-7"}, exitUsage, "got ip, device; allowed: ip, as the blocks of rule tokens are keyed", nil},
		{"another field", []string{"flood", "user=ann"}, exitUsage, "got user; allowed: ip, device", nil},
		{"a mistyped device", []string{"flood", "ip=198.51.100.9", "device=tv-8"}, exitError, "nothing was blocked: no block of rule flood stands for ip=198.51.100.9/32 device=tv-8",
			[]string{"weir blocks release flood ip=198.51.100.9/32 device=tv-9 --reason 'ticket 4711'"}},
		{"a mistyped address", []string{"flood", "ip=203.0.113.99", "device=tv-9"}, exitError, "nothing was blocked: no block of rule flood stands for", nil},
		{"another rule", []string{"tokens", "ip=198.51.100.9"}, exitError, "nothing was blocked: no block of rule tokens stands for", nil},
		{"no rule", []string{"floood", "ip=198.51.100.9", "device=tv-9"}, exitError, `there is no rule "floood"; did you mean flood?`, nil},
	} {
		o := b.weir(append([]string{"blocks", "release", "--reason", "ticket 4711"}, tc.args...)...)
		if o.code != tc.code || !strings.Contains(o.stderr, tc.stderr) {
			t.Errorf("%s: exit code %d, %s; want %d, %s", tc.name, o.code, o.stderr, tc.code, tc.stderr)
		}
		if got := strings.Count(o.stdout, "weir blocks release"); got != len(tc.offers) {
			t.Errorf("%s: %d offers, want %d:\n%s", tc.name, got, len(tc.offers), o.stdout)
		}
		for _, want := range tc.offers {
			if !strings.Contains(o.stdout, want) {
				t.Errorf("%s: no offer %s in\n%s", tc.name, want, o.stdout)
			}
		}
	}
	o := b.weir("blocks", "release", "flood", "ip=198.51.100.9", "device=tv-8", "--output", "json")
	var report releaseReport
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || o.code != exitError || report.Blocked == nil || *report.Blocked || report.Release != "" ||
		report.Done || len(report.Offers) != 1 || !strings.HasPrefix(report.Problem, "nothing was blocked") {
		t.Errorf("as JSON: exit code %d, %v\n%s", o.code, err, o.stdout)
	}
	awaitBlocks(b, 3)
	if n := b.releases(); n != 0 {
		t.Errorf("%d releases were recorded of nobody", n)
	}

	// What was offered, pasted, releases.
	for _, who := range []string{"ip=198.51.100.7/32 device=tv-7", "'ip=198.51.100.7%2F32&device=tv%208'"} {
		words := shellWords(t, who)
		if out := b.ok(append([]string{"blocks", "release", "flood", "--reason", "offered"}, words...)...); !strings.Contains(out, who+": released from rule flood, before the end of its block at ") {
			t.Errorf("released, it says %s", out)
		}
	}
	awaitBlocks(b, 1)
	testbed.Eventually(t, 30*time.Second, func() error { // and by when history has these, it would have those of nobody
		if n := b.releases(); n != 2 {
			return fmt.Errorf("%d releases were recorded, want 2", n)
		}
		return nil
	})
	if out := b.ok("blocks", "release", "flood", "ip=203.0.113.99", "device=tv-9", "--force"); !strings.Contains(out, "; nothing was blocked: only hits from before now are forgiven") {
		t.Errorf("released from nothing, it says %s", out)
	}
	stages.end()
}

// A client chooses what its device is called. What the list prints of it, pasted into a shell, releases that client and runs
// nothing; a name above 64 bytes is a digest in Redis, and is found by the name, too.
func TestListedBlocksAreReleasedAsPrinted(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule))
	b.ok("rules", "promote", "flood", "--reason", "test", "--yes", "--override", "tests")
	stages := b.start("run")
	long := strings.TrimSpace(strings.Repeat("long ", 20))
	devices := []string{";touch pwned|sh; user=alice", "$(touch pwned)", "`touch pwned`", "'", `"`, "a b", "~root", "a&user=b", "%41", "\u202eevil", "*", long, "sha256:" + strings.Repeat("0", 64)}
	for _, device := range devices {
		b.flood("198.51.100.7", device)
	}
	awaitBlocks(b, len(devices))
	dir := t.TempDir()
	for _, line := range strings.Split(strings.TrimSpace(b.ok("blocks", "list")), "\n")[1:] {
		printed, _, _ := strings.Cut(line, "  flood  ")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\000' `+strings.TrimSpace(printed))
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", printed, err)
		}
		words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		b.ok(append([]string{"blocks", "release", "flood", "--reason", "pasted"}, words...)...)
	}
	awaitBlocks(b, 0)
	if left, err := exec.CommandContext(t.Context(), "ls", "-A", dir).Output(); err != nil || len(left) > 0 {
		t.Errorf("pasting has made %s, %v", left, err)
	}
	b.flood("198.51.100.8", long)
	if blocks := awaitBlocks(b, 1); !strings.Contains(string(blocks[0].Subject), "&device=sha256:") {
		t.Errorf("the block's subject has no digest: %s", blocks[0].Subject)
	}
	b.ok("blocks", "release", "flood", "ip=198.51.100.8", "device="+long, "--reason", "by its name")
	awaitBlocks(b, 0)
	stages.end()
}

// shellWords are the arguments that a command gets of a line that was pasted behind it.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `printf '%s\000' `+line).Output()
	if err != nil {
		t.Fatalf("sh, given %q: %v", line, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}
