package detect_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/traffic"
)

// tellings is a world whose log grows by and by, and whose owners die one after the other.
type tellings struct {
	*detectWorld
	t   *testing.T
	log []traffic.Message
	sum map[string]float64 // of what the metrics of all owners said in the end
}

func newTellings(t *testing.T) *tellings {
	w := newDetectWorld(t, 1)
	w.fill(400)
	c := &tellings{detectWorld: w, t: t, log: w.keyed[0], sum: map[string]float64{}}
	c.grow(0)
	return c
}

// untilScraped is so long that a commit says of all that was counted in the first half minute that it was.
const untilScraped = 3 * time.Minute

// grow makes the log n records long.
func (c *tellings) grow(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keyed[0] = c.log[c.start[0]:n]
}

// lives has an owner work for a while that dies without a word to the store. It has one snapshot, of its beginning, since the next
// one would be due in an hour.
func (c *tellings) lives(owner string, d time.Duration, edit ...func(*detect.Options)) {
	c.t.Helper()
	r := c.watch(owner, func(o *detect.Options) {
		o.Checkpoint = time.Hour
		for _, e := range edit {
			e(o)
		}
	}, 0)
	pass(d)
	c.takeStore(true)
	r.stop(c.t)
	c.takeStore(false)
	hits, opened, losses := r.counted(c.t)
	for name, n := range map[string]float64{
		"hits": hits, "opened": opened, "losses": losses,
		"events": r.sum(c.t, "weir_detect_events_total", "", ""), "duplicates": r.sum(c.t, "weir_detect_duplicates_total", "", ""),
		"rule events": r.sum(c.t, "weir_detect_rule_events_total", "outcome", "counted") + r.sum(c.t, "weir_rule_uncounted_events_total", "", ""),
		"over":        r.sum(c.t, "weir_detect_rule_events_total", "outcome", "over"), "ticks": r.sum(c.t, "weir_detect_ticks_total", "", ""),
	} {
		c.sum[name] += n
	}
}

// whole is what one owner counts that folds a log in one go.
func (c *tellings) whole() map[string]float64 {
	other := newTellings(c.t)
	other.start[0] = c.start[0]
	other.grow(len(other.log))
	other.lives("alone", time.Minute)
	return other.sum
}

func (c *tellings) expect(want map[string]float64) {
	c.t.Helper()
	if !maps.Equal(c.sum, want) {
		c.t.Errorf("all owners together count\n%v, want\n%v", c.sum, want)
	}
}

// TestWhatWasCountedBeforeACrashIsNotCountedAgain: a successor folds again what followed the snapshot, and one that dies while it does
// leaves that to the next.
func TestWhatWasCountedBeforeACrashIsNotCountedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTellings(t)
		c.grow(200)
		c.lives("a", untilScraped)
		if n := c.generations[0][0].Offset; len(c.generations[0]) != 1 || n > 20 {
			t.Fatalf("the snapshot is of offset %d: there is nothing to fold again", n)
		}
		if c.sum["opened"] < 2 || c.sum["hits"] < 5 || c.sum["over"] < 5 {
			t.Fatalf("%v: there is nothing to count again", c.sum)
		}
		c.lives("dies while it folds again", 500*time.Millisecond)
		c.lives("b", untilScraped)
		c.grow(300)
		c.lives("c", untilScraped)
		c.grow(len(c.log))
		c.lives("d", time.Minute)
		c.check()
		want := c.whole()
		if want["events"] != 400 || want["ticks"] != 1 {
			t.Fatalf("the whole log counts %v", want)
		}
		c.expect(want)
	})
}

// TestALossIsCountedThoughItLiesInThePast: retention deletes what a successor had to fold again. It was counted, but is not in the
// windows.
func TestALossIsCountedThoughItLiesInThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTellings(t)
		c.grow(200)
		c.lives("a", untilScraped)
		c.start[0] = 100
		c.grow(200)
		c.lives("b", untilScraped)
		if c.sum["losses"] != 1 || c.sum["events"] != c.eventsUntil(200) {
			t.Errorf("%v", c.sum)
		}
	})
}

// eventsUntil is how many events lie below a keyed offset.
func (c *tellings) eventsUntil(n int) (events float64) {
	seen := map[int64]bool{}
	for _, m := range c.log[:n] {
		var k detectors.Keyed
		if err := detectors.DecodeKeyed(m.Value, &k); err != nil {
			c.t.Fatal(err)
		}
		if k.Kind == detectors.KeyedEvent {
			seen[k.Offset] = true
		}
	}
	return float64(len(seen))
}

// silent are the commits of a group whose coordinator does not answer.
type silent struct{}

func (silent) Fetch(ctx context.Context, _ []int) (map[int]ingest.Commit, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (silent) Commit(context.Context, map[int]ingest.Commit) error { return errAway }

// TestCountsAreNotWorthAStandstill: where it is not known what was counted, or it is said of another log, all is folded and counted.
func TestCountsAreNotWorthAStandstill(t *testing.T) {
	for name, commit := range map[string]*ingest.Commit{
		"no answer": nil, "no metadata": {Offset: 3}, "another's metadata": {Metadata: "200"}, "no number": {Metadata: "counted=many"},
		"of a longer log": {Metadata: "counted=9999"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTellings(t)
				c.grow(200)
				c.lives("a", untilScraped)
				before := c.sum
				c.sum = map[string]float64{}
				c.grow(len(c.log))
				edit := func(*detect.Options) {}
				if commit == nil {
					edit = func(o *detect.Options) { o.Group.(*oneMember).commits = silent{} }
				} else {
					c.commits[0] = *commit
				}
				c.lives("b", time.Minute, edit)
				if want := c.whole(); c.sum["events"] < want["events"]-20 || c.sum["hits"] < want["hits"]-5 || before["events"] < 150 {
					t.Errorf("after %v, b counts\n%v, all is\n%v", before, c.sum, want)
				}
			})
		})
	}
}

// TestACrashLosesNoCount: whoever scrapes once a minute misses nothing of what processes count that die between two scrapes, and sees
// two minutes of it twice at most.
func TestACrashLosesNoCount(t *testing.T) {
	for _, life := range []time.Duration{170 * time.Second, 200 * time.Second} {
		t.Run(life.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTellings(t)
				scraped, again := 0.0, 0.0
				for grown := 0; grown < len(c.log); {
					r := c.watch("a", func(o *detect.Options) { o.Checkpoint = time.Hour }, 0)
					last := 0.0
					for second := range int(life / time.Second) {
						grown = min(grown+1, len(c.log))
						c.grow(grown)
						pass(time.Second)
						if second%60 == 30 {
							last = r.sum(t, "weir_detect_events_total", "", "")
						}
					}
					if grown == len(c.log) {
						pass(2 * time.Minute)
						last = r.sum(t, "weir_detect_events_total", "", "")
					}
					scraped, again = scraped+last, again+min(life.Seconds(), 125)
					c.takeStore(true)
					r.stop(t)
					c.takeStore(false)
				}
				if c.check(); scraped < 400 || scraped > 400+again {
					t.Errorf("%v events were scraped, of 400; %v may be counted again", scraped, again)
				}
			})
		})
	}
}

// interrupted are commits whose first answer is waited for until the generation ends.
type interrupted struct {
	ingest.Commits
	end  chan struct{}
	once sync.Once
}

func (c *interrupted) Fetch(ctx context.Context, partitions []int) (map[int]ingest.Commit, error) {
	first := false
	c.once.Do(func() { first = true })
	if first {
		c.end <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.Commits.Fetch(ctx, partitions)
}

// TestAGenerationThatEndsBeforeItKnowsAsksAgain: the next one finds the windows warm, and still does not know what was counted.
func TestAGenerationThatEndsBeforeItKnowsAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTellings(t)
		c.grow(200)
		c.lives("a", untilScraped)
		c.grow(len(c.log))
		c.lives("b", time.Minute, func(o *detect.Options) {
			group := o.Group.(*oneMember)
			group.commits = &interrupted{Commits: group.commits, end: group.end}
		})
		c.check()
		c.expect(c.whole())
	})
}

// TestTakingWaitsLittleForCounts: a coordinator that does not answer costs a restored partition half a second, and others nothing.
func TestTakingWaitsLittleForCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTellings(t)
		c.grow(10)
		takes := func(what, owner string, most time.Duration) *watched {
			r := c.watch(owner, func(o *detect.Options) { o.Group.(*oneMember).commits = silent{} }, 0)
			c.folds(r, what, most)
			return r
		}
		a := takes("fresh", "a", 100*time.Millisecond)
		pass(10 * time.Second)
		for range 3 {
			a.group.end <- struct{}{}
			synctest.Wait() // until it has let its partition go
			c.grow(len(c.keyed[0]) + 1)
			c.folds(a, "warm", 400*time.Millisecond)
		}
		a.stop(t)
		b := takes("restored", "b", 700*time.Millisecond)
		b.stop(t)
	})
}

// folds waits until r has taken its partition, and folds.
func (c *tellings) folds(r *watched, what string, most time.Duration) {
	c.t.Helper()
	began := time.Now()
	for r.Stats().Owned == 0 {
		if pass(10 * time.Millisecond); time.Since(began) > most {
			c.t.Errorf("%s: not taken after %s", what, most)
			return
		}
	}
}
