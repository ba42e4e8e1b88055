package acceptance

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/testbed"
)

// The rule counts every event, and a key is over with its fourth.
const restoreRule = `
id: bench
owner: bench
match: {}
key: [device]
limit: 3
algorithm: sliding-log
window: 2h
lateness: 10m
`

const (
	restoreKeys    = 1_000_000
	restoreSources = 4
	restoreTail    = 100_000 // keys that get their third event around one kill -9
	restoreProbes  = 10      // keys a partition whose hits tell that the log up to them is folded
	restoreSample  = 10_000  // keys that are brought over their limit at the end
	restoreTimeout = 3 * time.Minute
)

// BenchmarkRestore kills the owner of a million windows with SIGKILL while events arrive, and measures what its successor
// needs: real servers, the real program, snapshots as the stage itself has written them.
//
//	wait-s       kill -9 until the group gave the partitions to the successor: the dead member's session timeout
//	restore-s    from then until the state of all partitions is there, ready to be folded into: the median
//	max-s        the same, the worst
//	caught-up-s  from that same instant until all that was sent meanwhile is counted, and its hits are acknowledged
//
// An iteration is one kill; ten at most. At the end each of the million keys is brought to its limit, which must give no
// hit (no count is doubled), and a sample of them over it, which must give exactly theirs (none is lost).
func BenchmarkRestore(b *testing.B) {
	for _, kind := range []testbed.Kind{testbed.KafkaKind, testbed.PostgresKind} {
		if os.Getenv(kind.Env()) == "" {
			b.Skip("needs " + kind.Env() + ": a server in this process would be measured with it")
		}
	}
	for _, keyed := range []int{4, 64} {
		b.Run(fmt.Sprintf("%d partitions", keyed), func(b *testing.B) {
			r := newRestoreBed(b, keyed)
			r.fill()
			var wait, restore, caughtUp []float64
			for b.Loop() {
				t := r.kill()
				wait = append(wait, t.given.Sub(t.killed).Seconds())
				restore = append(restore, t.restored.Sub(t.given).Seconds())
				caughtUp = append(caughtUp, t.caughtUp.Sub(t.given).Seconds())
			}
			r.check()
			for unit, all := range map[string][]float64{"wait-s": wait, "restore-s": restore, "caught-up-s": caughtUp} {
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2], unit)
			}
			b.ReportMetric(restore[len(restore)-1], "max-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fill gives each key two events, and waits until snapshots of all that are stored, both generations.
func (r *restoreBed) fill() {
	r.b.Helper()
	for range 2 {
		r.sendKeys(0, restoreKeys)
	}
	r.probe()
	r.await()
	since := time.Now()
	testbed.Eventually(r.b, restoreTimeout, func() error {
		var ready, size int64
		err := r.stream.Query(r.b.Context(), fmt.Sprintf(`SELECT count(*), coalesce(sum(size), 0)::bigint FROM (
			SELECT max(octet_length(data) + (SELECT coalesce(sum(octet_length(p.data)), 0) FROM {ns}.checkpoint_pieces p
				WHERE p.partition = c.partition AND p.epoch = c.epoch AND p.attempt = c.attempt)) AS size
			FROM {ns}.checkpoints c WHERE written_at > to_timestamp(%d)
			GROUP BY partition HAVING count(DISTINCT keyed_offset) = 2) p`, since.Unix()+1),
			func(rows pgx.Rows) error { return rows.Scan(&ready, &size) })
		switch {
		case err != nil:
			return err
		case ready < int64(r.keyed):
			return fmt.Errorf("%d of %d keyed partitions have two new snapshots", ready, r.keyed)
		case size < 25*restoreKeys: // a fingerprint and two events a key
			r.b.Fatalf("snapshots of %d keys in %d bytes", restoreKeys, size)
		}
		return nil
	})
}

// restoreTimes are the instants of one kill.
type restoreTimes struct{ killed, given, restored, caughtUp time.Time }

// kill ends the owner between two events, lets more come, and starts another one.
func (r *restoreBed) kill() (t restoreTimes) {
	r.b.Helper()
	if r.thirds+restoreTail > restoreKeys {
		r.b.Fatalf("the keys are used up; allowed: -benchtime 1x to %dx", restoreKeys/restoreTail)
	}
	r.sendKeys(r.thirds, restoreTail/2)
	t.killed = time.Now()
	r.owner.kill()
	r.sendKeys(r.thirds+restoreTail/2, restoreTail/2)
	r.thirds += restoreTail
	r.probe()
	r.owner = r.in.start("run", "--stages", "detect")
	t.given, t.restored = r.taken()
	t.caughtUp = r.await()
	r.holds()
	return t
}

// check brings every key to its limit, and a sample of them over it.
func (r *restoreBed) check() {
	r.b.Helper()
	r.sendKeys(r.thirds, restoreKeys-r.thirds)
	r.probe()
	r.await()
	const apart = restoreKeys / restoreSample
	for i := range restoreSample {
		r.over[fmt.Sprint("key-", i*apart)] = true
	}
	r.send(restoreSample, func(i int) string { return fmt.Sprint("key-", i*apart) })
	r.probe()
	r.await()
	r.owner.stop()
}
