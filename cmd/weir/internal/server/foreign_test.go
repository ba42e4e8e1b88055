package server_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// TestActsLeaveAnotherOnesBlocks: at a Redis of another installation a release is refused, an entry of the never-block
// list releases none of its blocks, and each says whose it is. At the installation's own Redis both look at the blocks.
func TestActsLeaveAnotherOnesBlocks(t *testing.T) {
	bed := historytest.New(t)
	c := config.Default()
	c.Namespace, c.Redis.URL = testbed.Namespace(t), config.Secret(testbed.Redis(t))
	c.Kafka.Brokers = []string{"127.0.0.1:1"} // nobody is there to take a release
	redis, err := service.OpenRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	now := traffic.At(time.Now())
	deed := blocklist.NewOwnership(redis)
	if err := deed.Own(t.Context(), blocklist.Owner{Installation: "staging", Since: now, By: "somebody"}); err != nil {
		t.Fatal(err)
	}
	const source traffic.Subject = "ip=198.51.100.60%2F32"
	block := blocklist.NewBlock("flood", 1, strings.Repeat("a", 32), now, now.Add(time.Hour))
	if _, err := blocklist.NewWriter(redis).Raise(t.Context(), []blocklist.Raise{{
		Name: blocklist.Name{Subject: source, Rule: "flood"}, Block: block}}); err != nil {
		t.Fatal(err)
	}
	bed.Publish(t, rules.Format{Name: "weir"})
	bed.Apply(t, historytest.Document("flood"))
	admin := access.Actor{Name: "ann", Role: access.Admin, Via: access.ViaOIDC}
	does, done, err := service.OpenActs(service.ActsOptions{Config: c, Log: slog.New(slog.DiscardHandler),
		History: bed.Store})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	acting := func() (released, entered error) {
		_, released = does.Release(t.Context(), admin, acts.ReleaseRequest{Rule: "flood", Subject: source, Force: true,
			Reason: "a mistake"})
		_, entered = does.ChangeNeverBlock(t.Context(), admin, acts.NeverRequest{Entries: []string{"198.51.100.0/24"},
			Reason: "the office"})
		return released, entered
	}
	released, entered := acting()
	var unfinished *acts.UnfinishedError
	for _, err := range []error{released, entered} {
		var foreign *blocklist.ForeignError
		if !errors.As(err, &foreign) || foreign.Owner.Installation != "staging" {
			t.Errorf("at a Redis of another installation: %v", err)
		}
	}
	if !errors.As(entered, &unfinished) {
		t.Errorf("the entry is stored, and that is said: %v", entered)
	}
	mine, err := bed.Streams.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := deed.Take(t.Context(), blocklist.Owner{Installation: mine, Since: now, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	released, entered = acting()
	for _, err := range []error{released, entered} { // they come to Kafka, which is away
		if foreign := (*blocklist.ForeignError)(nil); err == nil || errors.As(err, &foreign) {
			t.Errorf("at its own Redis: %v", err)
		}
	}
}
