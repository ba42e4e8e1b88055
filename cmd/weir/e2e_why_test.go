package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/asking"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/testbed"
)

// awaitWhy asks until the answer has all of want.
func awaitWhy(b *bed, id string, want ...string) {
	b.t.Helper()
	testbed.Eventually(b.t, 30*time.Second, func() error {
		o := b.weir("why", id)
		said := strings.Join(strings.Fields(o.stdout), " ") // the widths of columns are those of the longest
		for _, w := range want {
			if o.code != exitOK || !strings.Contains(said, w) {
				return fmt.Errorf("exit code %d, no %q in\n%s%s", o.code, w, o.stdout, o.stderr)
			}
		}
		return nil
	})
}

// The id that a refused client is told leads to what is behind its block, from the moment of the refusal to its release.
func TestTheBlockIDOfARefusalLeadsToItsEvidence(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule+"---\n"+tokenRule))
	b.ok("rules", "promote", "tokens", "--reason", "test", "--yes", "--override", "tests")
	b.ok("rules", "promote", "flood", "--reason", "test", "--yes", "--override", "tests")
	stages, door := b.start("run"), b.start("gate", "--listen", "127.0.0.1:0")
	address := door.awaitLog(`forward-auth checks" address=(\S+)`)
	abuser := "198.51.100.8"
	b.send(abuser, 6)
	awaitStatus(t, address, abuser, 429)
	id := check(t, address, abuser).header.Get(gate.HeaderBlock)
	awaitWhy(b, id, "BLOCK "+id+" ", "RULE tokens, version 1, mode block", "SOURCE ip=198.51.100.8/32", "over the limit, from ", "limit 3 in 1m, at most ",
		" POST /v1/guest-tokens 201 ip=198.51.100.8", " written, until ", "HOLDS NOW yes, until ", "TO RELEASE weir blocks release tokens ip=198.51.100.8/32")
	whole := decode[asking.BlockStory](b, "why", strings.ToUpper(id))
	if whole.Hit == nil || whole.ID != whole.Hit.ID || whole.BlockID != id || whole.Holds == nil || !*whole.Holds || whole.Block == nil || whole.Block.Hit != whole.ID || len(whole.Decisions) == 0 {
		t.Errorf("as JSON: %+v", whole)
	} else if peak := whole.Hit.Peak; peak < 4 || peak > 6 { // the hit opens with the fourth, and knows those that came with it
		t.Errorf("at most %d were seen in one window, want 4 to 6", peak)
	}
	awaitWhy(b, whole.ID, "HOLDS NOW yes")
	awaitWhy(b, whole.ID[:8], "HOLDS NOW yes")

	b.ok("blocks", "release", "tokens", "ip="+abuser, "--reason", "ticket 4711", "--by", "support")
	awaitWhy(b, id, " released by support: ticket 4711", "HOLDS NOW no: no block of the rule stands")
	if text := b.ok("why", id); strings.Contains(text, "TO RELEASE") {
		t.Errorf("a released block is offered for release:\n%s", text)
	}

	b.flood("198.51.100.9", "tv 9; rm")
	var held shownBlock
	testbed.Eventually(t, 30*time.Second, func() error {
		blocks := decode[[]shownBlock](b, "blocks", "list", "--rule", "flood")
		if len(blocks) != 1 {
			return fmt.Errorf("%d blocks, want 1", len(blocks))
		}
		held = blocks[0]
		return nil
	})
	awaitWhy(b, held.Block.Hit[:16], "SOURCE 'ip=198.51.100.9%2F32&device=tv%209%3B%20rm'", "TO RELEASE weir blocks release flood 'ip=198.51.100.9%2F32&device=tv%209%3B%20rm'")
	// Gates leave out what holds an address that is never blocked, and so the block holds nobody.
	b.flags = append(b.flags, "--set", "never_block=198.51.100.0/28")
	awaitWhy(b, held.Block.Hit[:16], "HOLDS NOW no: a block stands until ", ", but its address is one that is never blocked")
	if listed := decode[[]shownBlock](b, "blocks", "list", "--rule", "flood"); len(listed) != 1 || listed[0].InForce {
		t.Errorf("an address that is never blocked is listed as held: %+v", listed)
	}
	b.flags = b.flags[:len(b.flags)-2]
	b.ok("rules", "demote", "flood", "--reason", "enough")
	awaitWhy(b, held.Block.Hit[:16], "mode shadow", "HOLDS NOW no: a block stands until ", ", but its rule is in mode shadow")
	stages.end()
	door.end()

	// Without Redis it is said that it is not known whether the block holds.
	b.flags = append(b.flags, "--redis-url", "redis://"+nowhere(t)+"/0")
	if o := b.weir("why", id); o.code != exitOK || !strings.Contains(o.stdout, "not known: ") || !strings.Contains(o.stdout, "released by support") {
		t.Errorf("without Redis: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// An id that leads nowhere is an error that says where it was looked for.
func TestWhyOfAnUnknownID(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	b.ok("ingest", writeFile(t, "log.jsonl", over(12)), "--format", "weir", "--replay", "many", "--rules", writeFile(t, "r.yaml", smallRule))
	for id, want := range map[string]struct {
		code int
		text string
	}{
		"0123456789abcdef": {exitError, "no hit of 2 streams in history has an id that begins with " +
			"0123456789abcdef, nor has a block or a release in Redis"},
		"0123456":       {exitUsage, `ID: got "0123456"; allowed: 8 to 32 hex digits, such as the 16 of X-Weir-Block`},
		"no-hex-at-all": {exitUsage, "allowed: 8 to 32 hex digits"},
	} {
		if o := b.weir("why", id); o.code != want.code || !strings.Contains(o.stderr, want.text) || o.stdout != "" {
			t.Errorf("%s: exit code %d, %s%s", id, o.code, o.stdout, o.stderr)
		}
	}
	hits := decode[[]map[string]any](b, "history", "hits", "--replay", "many", "--limit", "1")
	if story := b.ok("why", fmt.Sprint(hits[0]["id"]), "--output", "json"); !strings.Contains(story, `"decisions": []`) {
		t.Errorf("no decisions are not an empty list:\n%s", story)
	}
	awaitWhy(b, fmt.Sprint(hits[0]["id"])[:16], "RULE small, version 1, of replay/many", "DECISIONS none: a replay blocks nobody", "HOLDS NOW no")
}
