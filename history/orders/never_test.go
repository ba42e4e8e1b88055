package orders_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// TestAnEntryLastsFromTheDatabasesNowOn: who waits for another change loses nothing of it, and what its end refuses is
// not stored.
func TestAnEntryLastsFromTheDatabasesNowOn(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	ctx, prefix := t.Context(), netip.MustParsePrefix("192.0.2.0/24")
	ended := errors.New("has ended")
	err := b.Orders.ChangeNever(ctx, orders.NeverChange{Prefixes: []netip.Prefix{prefix}, By: "ann", Reason: "x",
		End: func(traffic.Time) (traffic.Time, error) { return 0, ended }})
	if listed, lerr := b.Orders.NeverList(ctx); !errors.Is(err, ended) || lerr != nil || len(listed) != 0 {
		t.Errorf("refused with %v, and %+v is stored, %v", err, listed, lerr)
	}
	b.Run(t, "SELECT pg_advisory_lock(hashtextextended('weir never block ' || current_schema(), 0))")
	done := make(chan error, 1)
	go func() {
		done <- b.Orders.ChangeNever(ctx, orders.NeverChange{Prefixes: []netip.Prefix{prefix}, By: "ann", Reason: "x",
			End: func(now traffic.Time) (traffic.Time, error) { return now.Add(time.Hour), nil }})
	}()
	testbed.Eventually(t, 10*time.Second, func() error {
		if b.Number(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 0 {
			return errors.New("nobody waits")
		}
		return nil
	})
	var free time.Time
	if err := b.Conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&free); err != nil {
		t.Fatal(err)
	}
	b.Run(t, "SELECT pg_advisory_unlock_all()")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	listed, err := b.Orders.NeverList(ctx)
	if err != nil || len(listed) != 1 || listed[0].Until.Std().Before(free.Add(time.Hour)) {
		t.Errorf("%+v, %v; want an hour from %s on, when it had waited", listed, err, free)
	}
}

// TestNeverBlockList: what is entered holds until it ends or is removed, each change has a greater revision, and a
// change is made whole or not at all.
func TestNeverBlockList(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	ctx := t.Context()
	change := func(remove bool, until time.Duration, prefixes ...string) error {
		c := orders.NeverChange{Remove: remove, By: "ann", Via: "local", Reason: "the office"}
		if until != 0 {
			c.End = func(now traffic.Time) (traffic.Time, error) { return now.Add(until), nil }
		}
		for _, p := range prefixes {
			c.Prefixes = append(c.Prefixes, netip.MustParsePrefix(p))
		}
		return b.Orders.ChangeNever(ctx, c)
	}
	last := int64(0)
	holds := func(later bool, want ...string) {
		t.Helper()
		told, err := b.Orders.NeverEntries(ctx)
		if err != nil || later != (told.Revision > last) {
			t.Errorf("revision %d after %d, %v", told.Revision, last, err)
		}
		last = told.Revision
		listed, err := b.Orders.NeverList(ctx)
		got := []string{}
		for _, n := range listed {
			got = append(got, n.Prefix.String())
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || len(told.Entries) != len(want) {
			t.Errorf("listed %v, told %v, %v, want %v", got, told.Entries, err, want)
		}
	}
	holds(false)
	if err := change(false, 0, "192.0.2.0/24", "2001:db8::/48"); err != nil {
		t.Fatal(err)
	}
	holds(true, "192.0.2.0/24", "2001:db8::/48")
	var absent *orders.AbsentError
	if err := change(true, 0, "192.0.2.0/24", "192.0.2.7/32"); !errors.As(err, &absent) ||
		absent.Prefix.String() != "192.0.2.7/32" {
		t.Errorf("removed what is not there: %v", err)
	}
	holds(false, "192.0.2.0/24", "2001:db8::/48")
	if err := change(true, 0, "192.0.2.0/24"); err != nil {
		t.Fatal(err)
	}
	holds(true, "2001:db8::/48")
	if err := change(true, 0, "192.0.2.0/24"); !errors.As(err, &absent) {
		t.Errorf("removed twice: %v", err)
	}
	if err := change(false, time.Hour, "192.0.2.0/24"); err != nil {
		t.Fatal(err)
	}
	holds(true, "192.0.2.0/24", "2001:db8::/48")
	if err := change(false, time.Microsecond, "2001:db8::/48"); err != nil {
		t.Fatal(err)
	}
	holds(true, "192.0.2.0/24")

	var many []string
	for i := range orders.MaxNever {
		many = append(many, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
	}
	var full *orders.TooManyError
	if err := change(false, 0, many...); !errors.As(err, &full) || full.Most != orders.MaxNever {
		t.Errorf("a thousand entries beside one: %v", err)
	}
	holds(false, "192.0.2.0/24")
	if err := change(false, 0, many[1:]...); err != nil {
		t.Errorf("a thousand entries in all: %v", err)
	}
}
