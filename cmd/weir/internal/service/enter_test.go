package service

import (
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

// TestWhoBringsEventsNeedsNoOtherTopics: while topics are missing that the stages behind read, a shipper starts all the
// same and a stage does not; without requests nobody does.
func TestWhoBringsEventsNeedsNoOtherTopics(t *testing.T) {
	cluster := testbed.EmbeddedKafka(t)
	log := slog.New(slog.DiscardHandler)
	client, err := kafka.New(kafka.Config{Brokers: cluster.ListenAddrs(), MetadataTTL: 50 * time.Millisecond,
		Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	bed := historytest.New(t)
	c := config.Default()
	c.Namespace = historytest.Schema
	names := ingest.Live.Topics(c.Namespace)
	if _, err := client.EnsureTopics(t.Context(), c.TopicSettings().Topics(names)); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteTopics(t.Context(), names.Hits, names.Blocks, names.Keyed); err != nil {
		t.Fatal(err)
	}
	enter := func() (live, stage error) {
		in := &Installation{Config: c, Log: log, History: bed.Store, Kafka: client}
		_, live = in.EnterLive(t.Context(), c)
		in = &Installation{Config: c, Log: log, History: bed.Store, Kafka: client}
		return live, in.Enter(t.Context(), history.Live, c.TopicSettings())
	}
	missing := func(err error, name string) bool {
		return err != nil && strings.Contains(err.Error(), "topic "+name+" does not exist")
	}
	testbed.Eventually(t, 10*time.Second, func() error { // clients hear of deletions a little later
		live, stage := enter()
		if live != nil && !strings.Contains(live.Error(), "no routing version yet") {
			return fmt.Errorf("a shipper does not start: %w", live)
		}
		for _, name := range []string{names.Keyed, names.Hits, names.Blocks} {
			if !missing(stage, name) {
				return fmt.Errorf("a stage without %s: %w", name, stage)
			}
		}
		return nil
	})
	if err := client.DeleteTopics(t.Context(), names.Requests); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 10*time.Second, func() error {
		if live, _ := enter(); !missing(live, names.Requests) {
			return fmt.Errorf("a shipper without requests: %w", live)
		}
		return nil
	})
}
