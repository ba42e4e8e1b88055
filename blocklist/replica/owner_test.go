package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

func TestWhoseRedisMayBeRead(t *testing.T) {
	is := func(installation string) blocklist.Owner {
		return blocklist.Owner{Format: 1, Installation: installation}
	}
	unreadable := blocklist.Owner{Installation: "which this build cannot read"}
	for _, tt := range []struct {
		what, mine string
		met        []blocklist.Owner
		want       string // f: foreign
	}{
		{"its own", "production", []blocklist.Owner{is("production"), is("production")}, ".."},
		{"another one's from the beginning", "production", []blocklist.Owner{is("staging")}, "f"},
		{"nobody's, after a flush", "production", []blocklist.Owner{is("production"), {}, is("production")}, "..."},
		{"the first it meets", "", []blocklist.Owner{{}, is("staging"), is("staging"), is("production"),
			is("staging")}, "...f."},
		{"what it cannot read proves nothing", "production", []blocklist.Owner{unreadable}, "."},
		{"nor does it name a first", "", []blocklist.Owner{unreadable, is("production"), is("staging")}, "..f"},
	} {
		o, got := &owner{mine: tt.mine}, ""
		for _, met := range tt.met {
			err := o.judge(met, func() string { return "redis" })
			if foreign := (*blocklist.ForeignError)(nil); errors.As(err, &foreign) {
				got += "f"
			} else {
				got += "."
			}
			if (o.refusal() == nil) != (err == nil) {
				t.Errorf("%s: it refuses %v, and says %v", tt.what, err, o.refusal())
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

// A Redis becomes another installation's. A gate goes on with what it had: it takes neither that one's promotions
// nor its blocks, says so, and stays ready. One that starts there is not ready, and knows nothing. When the Redis
// is its own again, it follows again.
func TestAnotherInstallationsRedis(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	deed := blocklist.NewOwnership(s.Store)
	take := func(installation string) {
		t.Helper()
		me := blocklist.Owner{Installation: installation, Since: s.Clock.Now()}
		if err := deed.Take(t.Context(), me); err != nil {
			t.Fatal(err)
		}
	}
	take("production")
	if err := reconcilerOf(t, s).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.PublishModes()
	s.Decide(s.Hit())
	begin := func(installation string) doubting {
		d := doubting{log: &said{}, registry: prometheus.NewRegistry()}
		var err error
		d.Replica, err = New(Options{Store: s.Store, Installation: installation, Clock: s.Clock.Now,
			Reload: time.Second, Logger: slog.New(slog.NewTextHandler(d.log, nil)), Registerer: d.registry})
		if err != nil {
			t.Fatal(err)
		}
		blocktest.Run(t, d.Run)
		return d
	}
	told, first := begin("production"), begin("")
	for _, d := range []doubting{told, first} {
		d.awaits(t, "begun", isReady)
		blocktest.EventuallyHeld(t, d, s.Clock, true)
	}

	take("staging")
	for _, d := range []doubting{told, first} {
		testbed.Eventually(t, 10*time.Second, func() error {
			if err := d.Foreign(); err == nil || !strings.Contains(err.Error(), `"staging"`) {
				return fmt.Errorf("it says of staging's Redis %w", err)
			}
			return nil
		})
	}
	s.Publish(blocktest.FloodRule, rules.ModeShadow) // staging's demotion
	late := begin("production")
	late.awaits(t, "started there", func(err error) bool {
		foreign := (*blocklist.ForeignError)(nil)
		return errors.As(err, &foreign) && foreign.Mine == "production"
	})
	begin("").awaits(t, "one that was told nothing takes it for its own", isReady)
	behind := told.Behind()
	testbed.Eventually(t, 10*time.Second, func() error { // long enough for a round, and for a load
		if now := told.Behind(); now < behind+3*time.Second {
			return fmt.Errorf("it is behind by %s", now)
		}
		return nil
	})
	for _, d := range []doubting{told, first} {
		blocktest.EventuallyHeld(t, d, s.Clock, true)
		if err := d.Unready(); err != nil {
			t.Errorf("it has what it had, and says %v", err)
		}
		if got := blocktest.Metric(t, d.registry, "weir_blocklist_foreign"); got != 1 {
			t.Errorf("weir_blocklist_foreign is %v", got)
		}
		if d.log.count(`belongs to installation`) == 0 {
			t.Error("the log does not say whose Redis it is")
		}
	}
	if late.Len() != 0 || late.Ready() {
		t.Errorf("it has %d blocks of another installation's Redis, ready %v", late.Len(), late.Ready())
	}

	take("production")
	for _, d := range []doubting{told, first} {
		blocktest.EventuallyHeld(t, d, s.Clock, false)
		if got := blocktest.Metric(t, d.registry, "weir_blocklist_foreign"); got != 0 {
			t.Errorf("weir_blocklist_foreign is %v when Redis is its own", got)
		}
	}
	late.awaits(t, "at its own", isReady)
}
