package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// drawnClient is one client of a drawn stream, as Redis has it and as the oracle does. Seconds count from begin.
type drawnClient struct {
	*blocktest.Stage
	subject  traffic.Subject
	begin    traffic.Time
	now      int64
	shadow   bool
	version  int
	rule     oracle.BlockRule // of version
	want     oracle.Blocks
	released int64 // when the newest release is of; 0: there was none
}

// What ENFORCE leaves in Redis after each record is what the oracle says, and gates are told of each change once: hits
// of several episodes and of a rule that is edited, promoted and demoted, in any order and of any age, in a busy stream
// and in one that falls idle, and releases that come late or again.
func TestBlocksInRedisAreThoseOfTheOracle(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Clock.Stop()
		s.Clock.Add(time.Hour) // so that Redis, whose own clock goes on, expires nothing by itself
		versions := map[int]rules.Document{}
		s.Rules.Edit = func(v *rules.Version) { v.Document = versions[v.Number] }
		clients, version, shadow := 0, 0, false
		seen := map[string]int{}
		rapid.Check(t, func(t *rapid.T) {
			clients++
			c := &drawnClient{Stage: s, subject: traffic.Subject(fmt.Sprint("device=tv-", clients)), shadow: shadow}
			s.Clock.Add(time.Hour)
			c.begin, c.now = s.Clock.Now().Add(-10000*time.Second), 10000
			edit := func() {
				version++
				c.version = version
				versions[version], c.rule = drawVersion(t)
			}
			edit()
			if shadow {
				c.turn(rules.ModeBlock)
			}
			c.want = oracle.Blocks{}
			for range rapid.IntRange(1, 40).Draw(t, "records") {
				c.pass(t, rapid.SampledFrom([]int64{0, 1, 5, 20, 61, 400}).Draw(t, "after"))
				what := rapid.SampledFrom([]string{
					"open", "open", "open", "update", "update", "closed", "closed", "closed", "release", "edit", "mode",
				}).Draw(t, "what")
				var told []string
				begun, heard := len(c.want.Spans), c.heard(t)
				switch what {
				case "edit":
					edit()
				case "mode":
					for range rapid.IntRange(1, 2).Draw(t, "changes") {
						c.turn(map[bool]rules.Mode{true: rules.ModeBlock, false: rules.ModeShadow}[c.shadow])
					}
				case "release":
					told = c.release(t, c.now-rapid.SampledFrom([]int64{0, 0, 30, 700}).Draw(t, "told after"))
				default:
					told = c.hit(t, what)
				}
				for _, word := range told {
					seen[word]++
				}
				c.check(t, begun, what, told)
				if n := c.heard(t) - heard; heard > 0 && n != int64(len(told)-withheld(told)) {
					t.Fatalf("after %s at %d, told of as %v, gates are told of %d changes", what, c.now, told, n)
				}
			}
			shadow = c.shadow
		})
		for _, word := range []string{"written", "extended", "released", "withheld max_lag", "withheld expired", "withheld released"} {
			if seen[word] == 0 {
				t.Errorf("nothing drawn was %s, of %v", word, seen)
			}
		}
	})
}

// drawVersion draws what a version says of blocks, as a document has it and as the oracle does.
func drawVersion(t *rapid.T) (rules.Document, oracle.BlockRule) {
	seconds := func(name string, of ...int64) (int64, time.Duration) {
		n := rapid.SampledFrom(of).Draw(t, name)
		return n, time.Duration(n) * time.Second
	}
	address, device := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldDevice}
	d := rules.Document{
		ID: blocktest.FloodRule, Key: []traffic.KeyField{address},
		Block: &rules.Block{Key: []traffic.KeyField{address}, Extend: rules.ExtendNever},
	}
	var r oracle.BlockRule
	r.TTL, d.Block.TTL = seconds("ttl", 1, 10, 60, 300, 300)
	r.MaxLag, d.MaxLag = seconds("max_lag", 1, 20, 60)
	r.Window, d.Window = seconds("window", 1, 10)
	r.Lateness, d.Lateness = seconds("lateness", 0, 5)
	r.Cooldown, d.Cooldown = seconds("cooldown", 1, 60)
	if r.OnHit = rapid.Bool().Draw(t, "on hit"); r.OnHit {
		d.Block.Extend = rules.ExtendOnHit
	}
	if r.Tuples = rapid.Bool().Draw(t, "tuples"); r.Tuples {
		d.Block.Key = append(d.Block.Key, device)
	}
	return d, r
}

// at is a second of the stream.
func (c *drawnClient) at(second int64) traffic.Time {
	return c.begin.Add(time.Duration(second) * time.Second)
}

// pass lets seconds pass, for Redis too: what is over by then is gone.
func (c *drawnClient) pass(t *rapid.T, seconds int64) {
	c.now += seconds
	c.Clock.Add(time.Duration(seconds) * time.Second)
	b := c.block(t)
	if b == nil {
		return
	}
	if b.Until <= c.Clock.Now() {
		if err := c.Client.Del(context.Background(), c.Keys.Block(c.subject, blocktest.FloodRule)).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// block reads the client's block, which Redis is to drop when it is over.
func (c *drawnClient) block(t *rapid.T) *blocklist.Block {
	b, _, err := c.Store.Get(context.Background(), c.subject, blocktest.FloodRule)
	if err != nil {
		t.Fatal(err)
	}
	if b == nil || os.Getenv("WEIR_TEST_REDIS") == "" { // the embedded one has no times of expiry, only durations
		return b
	}
	expires, err := c.Client.PExpireTime(context.Background(), c.Keys.Block(c.subject, blocktest.FloodRule)).Result()
	if err != nil || expires.Milliseconds() != (int64(b.Until)+999)/1000 {
		t.Fatalf("the block's key expires at %s, its value says %s, %v", time.UnixMilli(expires.Milliseconds()), b.Until, err)
	}
	return b
}

// turn promotes or demotes the rule.
func (c *drawnClient) turn(mode rules.Mode) {
	c.Rules.Set(blocktest.FloodRule, mode)
	c.ModesChanged()
	c.shadow = mode == rules.ModeShadow
	c.want.Take(oracle.BlockRecord{At: c.now, What: string(mode)})
}

// release tells of a release that is of some second, now or before.
func (c *drawnClient) release(t *rapid.T, of int64) []string {
	r, err := blocklist.NewRelease(c.subject, blocktest.FloodRule, "ops", "false alarm", c.at(of))
	if err != nil {
		t.Fatal(err)
	}
	messages := c.Messages(r)
	messages[0].Appended = c.at(of)
	c.ApplyMessages(messages)
	if c.released == 0 || of > c.released { // an older one, or the same again, changes nothing
		c.released = of
		c.want.Take(oracle.BlockRecord{At: c.now, Of: of, What: "release", Kept: int64(enforce.DefaultTombstoneTTL / time.Second)})
	}
	return c.Log.Take()
}

// hit tells of a hit of some age: of any, of the greatest at which it still has an effect, and older by a second; and of
// one that began with the newest release, or a second after it.
func (c *drawnClient) hit(t *rapid.T, what string) []string {
	update := c.rule.MaxLag
	closing := update + c.rule.Window + c.rule.Lateness
	last := c.now - rapid.SampledFrom([]int64{
		-7, 0, 0, 0, 1, 5, 20, update, update + 1, closing, closing + 1, closing + c.rule.Cooldown, closing + c.rule.Cooldown + 1, 140,
	}).Draw(t, "last before")
	first := last - rapid.SampledFrom([]int64{0, 0, 3, 50, last - c.released, last - c.released - 1}).Draw(t, "lasting")
	first = min(first, last)
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
	told := c.Decide(c.Hit(func(h *detectors.Hit) {
		h.ID, h.Phase, h.RuleVersion, h.Subject, h.BlockSubject = id, detectors.Phase(what), c.version, c.subject, c.subject
		h.First, h.Last, h.Seen = c.at(first), c.at(last), c.at(last)
	}))
	c.want.Take(oracle.BlockRecord{At: c.now, What: what, Hit: id, First: first, Last: last, Rule: c.rule})
	return told
}

// heard is the number of the last change that gates are told of; 0 before the first.
func (c *drawnClient) heard(t *rapid.T) (number int64) {
	last, err := c.Client.Get(context.Background(), c.Keys.Last("3")).Result() // Stage's hits are in partition 3
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(last, "%d-", &number); last != "" && err != nil {
		t.Fatalf("%q: %v", last, err)
	}
	return number
}

// withheld counts the decisions that change nothing.
func withheld(told []string) (n int) {
	for _, word := range told {
		if strings.HasPrefix(word, "withheld") {
			n++
		}
	}
	return n
}

// check wants the block in Redis to be the oracle's last one; one that begins is told of.
func (c *drawnClient) check(t *rapid.T, begun int, after string, told []string) {
	var until traffic.Time
	spans := c.want.Spans
	if n := len(spans); n > 0 && !spans[n-1].Released && spans[n-1].Until > c.now {
		until = c.at(spans[n-1].Until)
	}
	b, untold := c.block(t), len(spans) > begun && !slices.Contains(told, "written")
	if (b != nil) != (until != 0) || b != nil && b.Until != until || untold {
		t.Fatalf("after %s at %d, told of as %v: block %+v, want one until %s, %d begun",
			after, c.now, told, b, until, len(spans)-begun)
	}
}
