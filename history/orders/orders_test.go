package orders_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func order(subject traffic.Subject, match string) (orders.Order, error) {
	o := orders.Order{Subject: subject, By: "ann", Via: "local", Reason: "ticket\x004711"}
	m := rules.Match{}
	if match != "" {
		var err error
		if m, err = rules.ParseReach(match); err != nil {
			return o, err
		}
	}
	mode, err := rules.ByHandOf(m)
	o.Rule, o.Match = mode.Rule, mode.Match
	return o, err
}

// TestOrders: what is ordered is due until ENFORCE has had its last word or the order's time is over; its rule is a
// mode for as long as that, with the match as it was ordered; the audit trail has it.
func TestOrders(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	heard := make(chan struct{}, 10)
	go b.Orders.Watch(ctx, func() { heard <- struct{}{} })
	<-heard
	add := func(subject traffic.Subject, match string, length time.Duration) orders.Order {
		t.Helper()
		o, err := order(subject, match)
		if err == nil {
			o, err = b.Orders.Add(ctx, o, length)
		}
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	all := add("ip=198.51.100.0%2F24&device=tv%208", "", time.Hour)
	<-heard
	some := add("user=alice", "{method: post, path: [/v2/login, /login], host: Example.com}", time.Hour)
	over := add("user=bob", "", time.Microsecond)
	if all.Until.Sub(all.Since) != time.Hour || len(all.ID) != 32 || all.Rule != rules.ByHand ||
		!strings.HasPrefix(some.Rule, rules.ByHand+"-") {
		t.Errorf("ordered %+v and %+v", all, some)
	}
	due, err := b.Orders.Due(ctx, 10)
	if err != nil || len(due) != 2 || due[0].ID != all.ID || due[1].ID != some.ID || due[0].By != "ann" ||
		due[0].Since != all.Since {
		t.Fatalf("due are %+v, %v", due, err)
	}
	modes, err := b.Orders.Modes(ctx)
	if err != nil || len(modes) != 2 || modes[0].Rule != rules.ByHand || modes[1].Rule != some.Rule ||
		!modes[1].Mode.Blocks() {
		t.Fatalf("modes are %+v, %v", modes, err)
	}
	for path, held := range map[string]bool{"/login": true, "/v2/login": true, "/other": false} {
		if got := modes[1].Match.Reaches(&rules.Target{Method: "POST", Path: path, Host: "example.com"}); got != held {
			t.Errorf("%s is held: %v, want %v", path, got, held)
		}
	}
	for _, outcome := range []struct {
		id, outcome string
		last        bool
	}{{all.ID, "full", false}, {all.ID, "written", true}, {all.ID, "released", true}, {some.ID, "unreachable", false}} {
		if err := b.Orders.Settle(ctx, outcome.id, outcome.outcome, outcome.last); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]string{all.ID[:16]: "written true", some.ID: "unreachable false",
		over.ID[:8]: " false"} {
		found, err := b.Orders.Find(ctx, id, 5)
		if err != nil || len(found) != 1 || fmt.Sprintf("%s %v", found[0].Outcome, found[0].Done) != want {
			t.Errorf("%s is %+v, %v, want %s", id, found, err, want)
		}
	}
	if due, err := b.Orders.Due(ctx, 10); err != nil || len(due) != 1 || due[0].ID != some.ID {
		t.Errorf("due are %+v, %v", due, err)
	}
	entries, err := b.Audit.Find(ctx, audit.Query{Action: "block"})
	if err != nil || len(entries) != 3 || entries[2].Object != "block by-hand ip=198.51.100.0%2F24&device=tv%208" ||
		entries[2].Reason != traffic.Printable("ticket\x004711") {
		t.Errorf("audited %+v, %v", entries, err)
	}
}

// TestOrdersAreBounded: neither more orders nor more matches than may be are taken, and what has ended makes room.
func TestOrdersAreBounded(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	add := func(match string) error {
		o, err := order("user=alice", match)
		if err != nil {
			return err
		}
		_, err = b.Orders.Add(t.Context(), o, time.Hour)
		return err
	}
	for i := range orders.MaxMatches {
		if err := add(fmt.Sprintf("{path: /v%d}", i)); err != nil {
			t.Fatal(i, err)
		}
	}
	var many *orders.TooManyError
	if err := add("{path: /more}"); !errors.As(err, &many) || many.Most != orders.MaxMatches {
		t.Errorf("one match more: %v", err)
	}
	if err := add("{path: /v7}"); err != nil {
		t.Errorf("a match that there is: %v", err)
	}
	b.Run(t, `INSERT INTO block_orders (id, rule, subject, match, until, ordered_by, via, reason)
		SELECT 'x' || i, 'by-hand', 'user=' || i, '{}', now() + interval '1h', 'ann', 'local', 'r' FROM generate_series(1, $1::int) i`, orders.MaxOrders)
	if err := add("{path: /v7}"); !errors.As(err, &many) || many.Most != orders.MaxOrders {
		t.Errorf("one order more: %v", err)
	}
	b.Run(t, "UPDATE block_orders SET until = now() WHERE rule = 'by-hand'")
	if err := add("{path: /v7}"); err != nil {
		t.Errorf("when others have ended: %v", err)
	}
}
