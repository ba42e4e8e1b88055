package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
)

// A keyed topic that was deleted and made anew while weir runs stops its partitions, and what doctor says of them leads
// out in one attempt: all go on, nobody is counted twice, and each loss is told.
//
// Not parallel: a broker that is busy forgets a deleted topic seconds later.
func TestKeyedThatWasMadeAnewGoesOn(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	stages := b.start("run")
	for n := range 60 { // so that no partition's new log soon reaches as far as the old one
		b.send(fmt.Sprint("198.51.101.", n), 2)
	}
	b.send("198.51.100.7", 6)
	awaitHits(b, "198.51.100.7", 1)
	k := b.kafka()
	if err := k.DeleteTopics(t.Context(), b.names().Keyed); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 30*time.Second, func() error {
		if there, err := k.TopicExists(t.Context(), b.names().Keyed); err != nil || there {
			return fmt.Errorf("the topic exists: %v, %v", there, err)
		}
		return nil
	})
	b.ok("migrate")
	var stopped []acts.Partition
	testbed.Eventually(t, time.Minute, func() error {
		stopped = decode[[]acts.Partition](b, "partitions", "list", "--stopped")
		for _, p := range stopped {
			if p.Side != ingest.SideKeyed || p.GapSource == nil || *p.GapSource != ingest.KeyedAnew {
				return fmt.Errorf("%s has stopped: %s", p.Name(), p.Reason)
			}
		}
		if len(stopped) == 0 {
			return fmt.Errorf("no partition has stopped")
		}
		return nil
	})
	for _, p := range stopped {
		b.ok("partitions", "resume", "--keyed", strconv.Itoa(p.Partition), "--accept-gap", "--reason", "made anew")
	}
	testbed.Eventually(t, 30*time.Second, func() error {
		if rows := decode[[]acts.Partition](b, "partitions", "list", "--stopped"); len(rows) != 0 {
			return fmt.Errorf("still stopped: %+v", rows)
		}
		return nil
	})
	b.send("198.51.100.8", 6)
	awaitHits(b, "198.51.100.8", 1)
	awaitHits(b, "198.51.100.7", 1)
	n, newest, err := b.streams().RecentLosses(t.Context())
	if err != nil || n != len(stopped) || !strings.Contains(newest, "made anew") {
		t.Errorf("%d losses are told of %d partitions, the newest: %s, %v", n, len(stopped), newest, err)
	}
	stages.end()
}
