package stream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/testbed"
)

// recreation is a migrated installation on a broker of its own.
type recreation struct {
	bed   *historytest.Bed
	kafka *kafka.Client
	conf  *config.Config
}

func newRecreation(t *testing.T) *recreation {
	t.Helper()
	cluster := testbed.EmbeddedKafka(t)
	log := slog.New(slog.DiscardHandler)
	client, err := kafka.New(kafka.Config{Brokers: cluster.ListenAddrs(), MetadataTTL: 50 * time.Millisecond,
		Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &recreation{bed: historytest.New(t), kafka: client, conf: config.Default()}
	r.conf.Namespace, r.conf.Kafka.Replication = historytest.Schema, 1
	r.conf.Kafka.Partitions.Requests, r.conf.Kafka.Partitions.Hits = 2, 2
	st, err := r.bed.Streams.Find(t.Context(), history.Live)
	if err != nil {
		t.Fatal(err)
	}
	r.conf.Kafka.Partitions.Keyed = st.Partitions.Keyed
	return r
}

// migrate runs a migration, and returns the stream's generation then.
func (r *recreation) migrate(t *testing.T, o MigrateOptions) (generation int64, err error) {
	t.Helper()
	m := NewMigration(r.conf, r.bed.Store, r.kafka, "test", o)
	for _, step := range m.Steps() {
		if err = step(t.Context()); err != nil {
			break
		}
	}
	st, errFind := r.bed.Streams.Find(t.Context(), history.Live)
	if errFind != nil {
		t.Fatal(errFind)
	}
	return st.Generation, err
}

// join makes a member of a stage's group, as a process of weir run has one. stop has it leave.
func (r *recreation) join(t *testing.T, stage, topic string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	group := r.kafka.Group(ingest.Live.Group(r.conf.Namespace, stage), topic,
		kafka.GroupOptions{Heartbeat: 50 * time.Millisecond})
	joined, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		done <- group.Run(ctx, func(ctx context.Context, _ ingest.Assignment) error {
			select {
			case joined <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return nil
		})
	}()
	<-joined
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// While a process routes or detects, no new generation begins, whatever is its reason, and the one attempt after it
// has stopped does it all.
func TestNoGenerationBeginsWhileStagesRun(t *testing.T) {
	t.Parallel()
	r := newRecreation(t)
	names := ingest.Live.Topics(r.conf.Namespace)
	before, err := r.migrate(t, MigrateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []struct{ name, topic string }{{ingest.StageRoute, names.Requests},
		{ingest.StageDetect, names.Keyed}} {
		for _, gone := range []bool{false, true} {
			stop := r.join(t, stage.name, stage.topic)
			if gone {
				if err := r.kafka.DeleteTopics(t.Context(), names.Requests); err != nil {
					t.Fatal(err)
				}
			}
			after, err := r.migrate(t, MigrateOptions{Recreated: !gone})
			if err == nil || !strings.Contains(err.Error(),
				"no new generation has begun: stage "+stage.name+" runs") || after != before {
				t.Errorf("stage %s, topic deleted %v: generation %d then %d, %v", stage.name, gone, before, after, err)
			}
			if err == nil || !strings.Contains(err.Error(), "run weir migrate --recreated") {
				t.Errorf("%v does not lead out", err)
			}
			stop()
			if after, err = r.migrate(t, MigrateOptions{Recreated: true}); err != nil || after == before {
				t.Errorf("as advised: generation %d then %d, %v", before, after, err)
			}
			before = after
			commits, err := r.kafka.FetchCommits(t.Context(), ingest.Live.Group(r.conf.Namespace, ingest.StageRoute),
				names.Requests,
				ingest.AllPartitions(r.conf.Kafka.Partitions.Requests))
			if err != nil || len(commits) != r.conf.Kafka.Partitions.Requests {
				t.Fatalf("%d commits, %v", len(commits), err)
			}
			for p, c := range commits {
				if a, err := ingest.DecodeAnnouncement(c.Metadata); err != nil || a.Generation != after {
					t.Errorf("commit of partition %d: %s, %v; want generation %d", p, fmt.Sprint(a), err, after)
				}
			}
		}
	}
}

// A new generation counts all that requests holds: unasked only where that was not counted before.
func TestWhatMayCountTwiceIsNotBegun(t *testing.T) {
	t.Parallel()
	at := func(offsets ...int64) map[int]*ingest.Announcement {
		all := map[int]*ingest.Announcement{}
		for p, o := range offsets {
			if all[p] = nil; o >= 0 {
				all[p] = &ingest.Announcement{Offset: o}
			}
		}
		return all
	}
	log := func(bounds ...ingest.Bounds) map[int]ingest.Bounds {
		all := map[int]ingest.Bounds{}
		for p, b := range bounds {
			all[p] = b
		}
		return all
	}
	for _, test := range []struct {
		name    string
		log     map[int]ingest.Bounds
		commits map[int]*ingest.Announcement
		want    bool
	}{
		{"as it was", log(ingest.Bounds{End: 50}, ingest.Bounds{End: 70}), at(50, 60), true},
		{"one partition never routed", log(ingest.Bounds{End: 50}, ingest.Bounds{}), at(50, 0), true},
		{"one partition without a commit", log(ingest.Bounds{End: 50}, ingest.Bounds{End: 9}), at(50, -1), true},
		{"one has lost its end", log(ingest.Bounds{End: 50}, ingest.Bounds{End: 59}), at(50, 60), true},
		{"all end before", log(ingest.Bounds{End: 49}, ingest.Bounds{End: 59}), at(50, 60), false},
		{"one ends before, one was never routed", log(ingest.Bounds{End: 9}, ingest.Bounds{End: 59}), at(0, 60), false},
		{"all that was routed is deleted", log(ingest.Bounds{Start: 50, End: 50}, ingest.Bounds{Start: 90, End: 99}),
			at(50, 60), false},
		{"some that was routed is there", log(ingest.Bounds{Start: 50, End: 50}, ingest.Bounds{Start: 59, End: 99}),
			at(50, 60), true},
		{"nothing was routed", log(ingest.Bounds{End: 50}, ingest.Bounds{End: 70}), at(0, 0), false},
		{"no commits", log(ingest.Bounds{End: 50}, ingest.Bounds{End: 70}), nil, true},
		{"no commits, and no records", log(ingest.Bounds{Start: 9, End: 9}, ingest.Bounds{}), nil, false},
		{"one without a commit, and nothing routed of the other", log(ingest.Bounds{End: 50}, ingest.Bounds{End: 9}),
			at(0, -1), true},
		{"one without a commit, the other ends before", log(ingest.Bounds{End: 50}, ingest.Bounds{End: 9}),
			at(51, -1), true},
	} {
		if got := mayCountTwice(test.log, test.commits); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
