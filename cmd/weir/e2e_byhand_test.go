package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/internal/testbed"
)

// knock asks a gate about a request of an address and device.
func knock(t *testing.T, gate, ip, device, method, path string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+gate+"/v1/forward-auth", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"X-Forwarded-For": ip, "X-Device-Id": device,
		"X-Forwarded-Method": method, "X-Forwarded-Uri": path} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return exchange(t, r).status
}

// awaitKnock waits until a gate answers so.
func awaitKnock(t *testing.T, want int, gate, ip, device, method, path string) {
	t.Helper()
	testbed.Eventually(t, 30*time.Second, func() error {
		if got := knock(t, gate, ip, device, method, path); got != want {
			return fmt.Errorf("%s %s of %s %s is answered by %d, want %d", method, path, ip, device, got, want)
		}
		return nil
	})
}

// TestBlocksByHand: somebody blocks an address, a device and a prefix, whatever rules say; a gate refuses what he said
// and nothing else, and passes it when the block has ended or is released by its id. A restart of ENFORCE and a Redis
// that has lost everything change nothing of it.
func TestBlocksByHand(t *testing.T) {
	t.Parallel()
	server := testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)}
	b := newBed(t, server)
	b.ok("migrate")
	stages := b.start("run")
	gate := b.start("gate", "--listen", "127.0.0.1:0").awaitLog(`forward-auth checks" address=(\S+)`)

	said := b.ok("blocks", "add", "ip=198.51.100.7", "--everything", "--for", "1h", "--yes", "--by", "ann", "--reason",
		"ticket 4711, a scraper")
	if !strings.Contains(said, "ip=198.51.100.7/32: blocked until ") || !strings.Contains(said,
		"by rule by-hand; block id ") {
		t.Fatalf("it says %s", said)
	}
	b.ok("blocks", "add", "device=tv 8", "--match", "{method: POST, path: /v1/transfers}", "--for", "1h", "--yes",
		"--reason", "taken over")
	short := decode[acts.BlockDone](b, "blocks", "add", "ip=203.0.113.5/24", "--everything", "--for", "4s", "--yes",
		"--reason", "a burst")
	if !short.Done || short.Subject != "ip=203.0.113.0%2F24" || short.Outcome != "written" {
		t.Errorf("the prefix: %+v", short)
	}
	awaitKnock(t, 429, gate, "198.51.100.7", "", "GET", "/anything")
	awaitKnock(t, 429, gate, "192.0.2.1", "tv 8", "POST", "/v1/transfers")
	for _, free := range [][4]string{{"198.51.100.8", "", "GET", "/anything"}, {"192.0.2.1", "tv 8", "GET",
		"/v1/transfers"}, {"192.0.2.1", "tv 8", "POST", "/v1/other"}, {"192.0.2.1", "tv 9", "POST", "/v1/transfers"}} {
		if got := knock(t, gate, free[0], free[1], free[2], free[3]); got != 200 {
			t.Errorf("%q is answered by %d", free, got)
		}
	}
	awaitKnock(t, 200, gate, "203.0.113.77", "", "GET", "/") // it has ended by itself

	var listed []shownBlock
	for _, l := range decode[[]shownBlock](b, "blocks", "list", "--rule", "by-hand") {
		if l.Subject != short.Subject {
			listed = append(listed, l)
		}
	}
	if len(listed) != 1 || listed[0].Block.By != "ann" || listed[0].Block.Reason != "ticket 4711, a scraper" ||
		!listed[0].InForce {
		t.Fatalf("listed: %+v", listed)
	}
	if list := b.ok("blocks", "list"); !strings.Contains(list, "ann") || !strings.Contains(list, "ticket 4711") {
		t.Errorf("the list does not say who and why:\n%s", list)
	}
	id := listed[0].Block.Hit[:16]
	for _, of := range []string{id, "ip=198.51.100.7"} {
		testbed.Eventually(t, 30*time.Second, func() error { // RECORD stores the decision
			story := b.ok("why", of)
			for _, want := range []string{"by-hand: a block by hand", "blocked by hand by ann",
				"ticket 4711, a scraper", "HOLDS NOW   yes", "weir blocks release by-hand ip=198.51.100.7/32"} {
				if !strings.Contains(story, want) {
					return fmt.Errorf("why %s does not say %q:\n%s", of, want, story)
				}
			}
			return nil
		})
	}

	// ENFORCE anew, and a Redis without anything: the block stands again, from history.
	stages.end()
	stages = b.start("run")
	b.forget(server)
	awaitKnock(t, 429, b.start("gate", "--listen", "127.0.0.1:0").awaitLog(`forward-auth checks" address=(\S+)`),
		"198.51.100.7", "", "GET", "/anything")
	awaitKnock(t, 429, gate, "198.51.100.7", "", "GET", "/anything")
	if again := decode[[]shownBlock](b, "blocks", "list", "--rule", "by-hand"); len(again) != 1 ||
		again[0].Block.By != "ann" || again[0].Block.Reason != "ticket 4711, a scraper" {
		t.Errorf("put back: %+v", again)
	}

	if out := b.ok("blocks", "release", id, "--reason", "a customer", "--by", "ben"); !strings.Contains(out,
		"ip=198.51.100.7/32: released from rule by-hand") {
		t.Errorf("released by its id, it says %s", out)
	}
	awaitKnock(t, 200, gate, "198.51.100.7", "", "GET", "/anything")
	b.ok("blocks", "add", "ip=198.51.100.7", "--everything", "--for", "1h", "--yes", "--reason", "again")
	awaitKnock(t, 429, gate, "198.51.100.7", "", "GET", "/anything")
	b.ok("blocks", "release", "by-hand", "ip=198.51.100.7", "--reason", "and again")
	awaitKnock(t, 200, gate, "198.51.100.7", "", "GET", "/anything")

	testbed.Eventually(t, 30*time.Second, func() error {
		var told []string
		for _, e := range decode[[]audit.Entry](b, "history", "audit", "--source", "198.51.100.7") {
			told = append(told, e.Action+" by "+e.Actor+" of "+e.Object+": "+e.Reason)
		}
		all := strings.Join(told, "\n")
		for _, want := range []string{"block by ann of block by-hand ip=198.51.100.7%2F32: ticket 4711, a scraper",
			"release by ben of block by-hand ip=198.51.100.7%2F32: a customer"} {
			if !strings.Contains(all, want) {
				return fmt.Errorf("the audit trail lacks %q:\n%s", want, all)
			}
		}
		return nil
	})
	stages.end()
}

// forget empties Redis of all that it has of the installation, as one has nothing that was restarted without its files.
// Others use the same server: what is theirs stays.
func (b *bed) forget(server testbed.RedisServer) {
	b.t.Helper()
	ctx, client := b.t.Context(), server.Client(b.t)
	var all []string
	keys := client.Scan(ctx, 0, b.flag("--namespace")+":*", 1000).Iterator()
	for keys.Next(ctx) {
		all = append(all, keys.Val())
	}
	if err := keys.Err(); err != nil || len(all) == 0 {
		b.t.Fatalf("there are %d keys to forget: %v", len(all), err)
	}
	if err := client.Del(ctx, all...).Err(); err != nil {
		b.t.Fatal(err)
	}
}

// TestNeverBlockAtRunTime: an entry lifts the blocks that hold its addresses, by hand and by a rule, keeps ENFORCE and
// people from blocking them, at gates too and through a Redis that has forgotten; when it is removed they may be
// blocked again.
func TestNeverBlockAtRunTime(t *testing.T) {
	t.Parallel()
	server := testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)}
	b := newBed(t, server)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule))
	b.ok("rules", "promote", "flood", "--reason", "test", "--yes", "--override", "tests")
	stages := b.start("run")
	gate := b.start("gate", "--listen", "127.0.0.1:0").awaitLog(`forward-auth checks" address=(\S+)`)
	b.ok("blocks", "add", "ip=198.51.100.7", "--everything", "--for", "1h", "--yes", "--reason", "a mistake")
	b.flood("198.51.100.9", "tv-9")
	b.ok("blocks", "add", "ip=203.0.113.7", "--everything", "--for", "1h", "--yes", "--reason", "a scraper")
	awaitKnock(t, 429, gate, "198.51.100.7", "", "GET", "/")
	awaitKnock(t, 429, gate, "198.51.100.9", "tv-9", "POST", "/v1/guest-tokens")
	awaitKnock(t, 429, gate, "203.0.113.7", "", "GET", "/")

	done := decode[acts.NeverDone](b, "never-block", "add", "198.51.100.0/24", "--until", "1h", "--by", "ann",
		"--reason", "the office")
	if len(done.Released) != 2 || done.Unknown != "" || len(done.Entries) != 1 || done.Entries[0] != "198.51.100.0/24" {
		t.Errorf("entered: %+v", done)
	}
	awaitKnock(t, 200, gate, "198.51.100.7", "", "GET", "/")
	awaitKnock(t, 200, gate, "198.51.100.9", "tv-9", "POST", "/v1/guest-tokens")
	awaitBlocks(b, 1)
	if got := knock(t, gate, "203.0.113.7", "", "GET", "/"); got != 429 {
		t.Errorf("another source is answered by %d", got)
	}
	const refused = "198.51.100.0/24 is in the never-block list, since the office (ann)"
	for _, args := range [][]string{{"ip=198.51.100.7", "--dry-run"}, {"ip=198.51.100.8", "--yes"},
		{"ip=198.51.0.0/16", "--yes"}} {
		if o := b.weir(append([]string{"blocks", "add", "--everything", "--for", "1h", "--reason", "test"},
			args...)...); o.code != exitError || !strings.Contains(o.stderr, refused) {
			t.Errorf("%v: exit code %d\n%s%s", args, o.code, o.stdout, o.stderr)
		}
	}
	if list := b.ok("never-block", "list"); !strings.Contains(list, "198.51.100.0/24") || !strings.Contains(list,
		"the office") || !strings.Contains(list, "ann") {
		t.Errorf("the list is\n%s", list)
	}
	b.forget(server) // gates are told of the entries again
	b.flood("198.51.100.10", "tv-10")
	testbed.Eventually(t, 30*time.Second, func() error {
		if text := b.ok("history", "decisions", "--source", "198.51.100.10", "--output",
			"json"); !strings.Contains(text, "never_block") {
			return fmt.Errorf("decided: %s", text)
		}
		return nil
	})
	if got := knock(t, gate, "198.51.100.10", "tv-10", "POST", "/v1/guest-tokens"); got != 200 {
		t.Errorf("who is on the list is answered by %d", got)
	}

	if o := b.weir("never-block", "remove", "198.51.100.7", "--reason", "moved"); o.code != exitError ||
		!strings.Contains(o.stderr, "198.51.100.7/32 is no entry of the never-block list") {
		t.Errorf("removed what is no entry: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	b.ok("never-block", "remove", "198.51.100.0/24", "--reason", "moved")
	b.ok("blocks", "add", "ip=198.51.100.7", "--everything", "--for", "1h", "--yes", "--reason", "now it is")
	awaitKnock(t, 429, gate, "198.51.100.7", "", "GET", "/")
	stages.end()
}

// TestByHandThroughAServer: an admin's token is enough, with the same output; others are refused, and see no less than
// before.
func TestByHandThroughAServer(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	stages := b.start("run")
	web := b.start("console", "--console-listen", "127.0.0.1:0", "--set", "console.tokens="+token("ada", "admin", "")+
		","+token("anna", "analyst", "")+","+token("otto", "owner", "identity"))
	address := "http://" + web.awaitLog(`serving the console" address=(\S+)`)
	ada := b.at(address, "ada")
	for _, name := range []string{"anna", "otto"} {
		for _, args := range [][]string{
			{"blocks", "add", "ip=198.51.100.7", "--everything", "--for", "1h", "--yes", "--reason", "test"},
			{"blocks", "add", "ip=198.51.100.7", "--everything", "--for", "1h", "--dry-run"},
			{"never-block", "add", "198.51.100.7", "--reason", "test"},
		} {
			if o := b.at(address, name).weir(args...); o.code != exitError || !strings.Contains(o.stderr,
				"needs the role admin") {
				t.Errorf("%s: %v: exit code %d\n%s%s", name, args, o.code, o.stdout, o.stderr)
			}
		}
	}
	if said := ada.ok("blocks", "add", "ip=2001:db8::7", "--everything", "--for", "1h", "--yes", "--reason",
		"ticket 4711"); !strings.Contains(said, "ip=2001:db8::/64: blocked until ") {
		t.Errorf("it says %s", said)
	}
	listed := decode[[]shownBlock](b.at(address, "anna"), "blocks", "list", "--rule", "by-hand")
	if len(listed) != 1 || listed[0].Block.By != "token:ada" || listed[0].Block.Reason != "ticket 4711" {
		t.Fatalf("listed: %+v", listed)
	}
	if o := ada.weir("blocks", "add", "ip=0.0.0.0/0", "--everything", "--for", "1h", "--yes", "--reason",
		"test"); o.code != exitUsage || !strings.Contains(o.stderr, "SOURCE: got") {
		t.Errorf("everybody: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	done := decode[acts.NeverDone](ada, "never-block", "add", "2001:db8::/48", "--reason", "a partner")
	if len(done.Released) != 1 {
		t.Errorf("entered: %+v", done)
	}
	awaitBlocks(b, 0)
	if o := ada.weir("blocks", "add", "ip=2001:db8::7", "--everything", "--for", "1h", "--yes", "--reason",
		"test"); o.code != exitError || !strings.Contains(o.stderr, "2001:db8::/48 is in the never-block list") {
		t.Errorf("never blocked: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if here, there := b.ok("never-block", "list"), b.at(address, "anna").ok("never-block", "list"); here != there ||
		!strings.Contains(here, "token:ada") {
		t.Errorf("the list is here\n%s\nand through the server\n%s", here, there)
	}
	web.end()
	stages.end()
}
