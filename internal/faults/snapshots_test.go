package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/testbed"
)

// flipSnapshots flips a bit in the newest snapshot of every keyed partition while no detector runs, so that the older one
// must do; then in both, so that only the keyed log itself is left.
func (s *scene) flipSnapshots() {
	for _, flipped := range []int{1, 2} {
		s.twoGenerations()
		s.pause(2 * time.Second)
		for _, d := range s.detectors {
			d.kill()
		}
		at := s.harmed()
		s.nobodyWrites()
		for n := range flipped {
			s.flip(n)
		}
		for _, d := range s.detectors {
			d.again()
		}
		s.works(at)
		s.awaitShares(s.detectors)
		s.foundDamaged(flipped * s.stream.Keyed)
	}
}

// twoGenerations waits until the two generations of every partition were written since it was called, and differ.
func (s *scene) twoGenerations() {
	s.Helper()
	since := time.Now()
	testbed.Eventually(s, workTimeout, func() error {
		ready := 0
		err := s.stream.Query(s.Context(), fmt.Sprintf(`SELECT count(*) FROM (SELECT partition FROM {ns}.checkpoints
			WHERE stream = 'live' AND written_at > to_timestamp(%d) GROUP BY partition HAVING count(DISTINCT keyed_offset) = 2) p`, since.Unix()),
			func(rows pgx.Rows) error { return rows.Scan(&ready) })
		if err == nil && ready < s.stream.Keyed {
			err = fmt.Errorf("%d of %d keyed partitions have two new snapshots", ready, s.stream.Keyed)
		}
		return err
	})
}

// nobodyWrites waits until PostgreSQL has done what the detectors had asked for when they were killed: a snapshot that came after the
// flipping would stand in the place of one that was flipped.
func (s *scene) nobodyWrites() {
	s.Helper()
	testbed.Eventually(s, workTimeout, func() error {
		writing := 0
		err := s.stream.Query(s.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND state <> 'idle' AND query LIKE '%checkpoint%'`, func(rows pgx.Rows) error { return rows.Scan(&writing) })
		if err == nil && writing > 0 {
			err = fmt.Errorf("%d statements about snapshots are under way", writing)
		}
		return err
	})
}

// flip changes one random bit of the newest snapshot of every partition, or, with older 1, of the one before it.
func (s *scene) flip(older int) {
	s.Helper()
	flipped := 0
	for q := range s.stream.Keyed {
		// A random place anywhere from the first byte to the checksum's last.
		err := s.stream.Query(s.Context(), fmt.Sprintf(`UPDATE {ns}.checkpoints c
			SET data = set_bit(c.data, p.bit, 1 - get_bit(c.data, p.bit))
			FROM (SELECT c.slot, floor(%.9f * 8 * octet_length(c.data))::bigint AS bit FROM {ns}.checkpoints c
				JOIN {ns}.partition_owners o USING (stream, partition)
				WHERE stream = 'live' AND partition = %d AND (c.slot = o.slot) = (%d = 0)) p
			WHERE c.stream = 'live' AND c.partition = %d AND c.slot = p.slot RETURNING 1`, s.rnd.Float64(), q, older, q),
			func(pgx.Rows) error { flipped++; return nil })
		if err != nil {
			s.Fatal(err)
		}
	}
	if flipped != s.stream.Keyed {
		s.Fatalf("%d of %d snapshots were found", flipped, s.stream.Keyed)
	}
}

// foundDamaged holds that the detectors, since they were started, have said of so many snapshots that they are damaged.
func (s *scene) foundDamaged(want int) {
	s.Helper()
	got := 0
	for _, d := range s.detectors {
		got += strings.Count(d.said(), "snapshot is damaged")
	}
	if got < want {
		s.Errorf("%d snapshots were flipped, only %d were found to be damaged", want, got)
	}
}
