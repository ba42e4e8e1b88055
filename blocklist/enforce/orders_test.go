package enforce_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ordered are orders as PostgreSQL keeps them, with what became of each.
type ordered struct {
	now      func() traffic.Time
	all      []blocklist.Order
	outcomes map[string]string
	last     map[string]bool
	fail     error // of Settle, once
}

func (o *ordered) Due(_ context.Context, most int) ([]blocklist.Order, error) {
	var due []blocklist.Order
	for _, one := range o.all {
		if !o.last[one.ID] {
			due = append(due, one)
		}
	}
	return due[:min(len(due), most)], nil
}

func (o *ordered) Settle(_ context.Context, id, outcome string, last bool) error {
	if err := o.fail; err != nil {
		o.fail = nil
		return err
	}
	o.outcomes[id], o.last[id] = outcome, last
	return nil
}

// give orders a block of subject for so long, by the rule of every request.
func (o *ordered) give(n int, subject traffic.Subject, length time.Duration) string {
	id := fmt.Sprintf("%032x", n)
	o.all = append(o.all, blocklist.Order{
		ID: id, Name: blocklist.Name{Subject: subject, Rule: rules.ByHand}, Since: o.now(), Until: o.now().Add(length),
		By: "ann", Reason: "ticket 4711",
	})
	return id
}

func orderStage(t *testing.T, server testbed.RedisServer) (*blocktest.Stage, *ordered) {
	s := blocktest.NewStage(t, server)
	s.Clock.Stop()
	o := &ordered{now: s.Clock.Now, outcomes: map[string]string{}, last: map[string]bool{}}
	s.Orders = o
	s.Rules.States[rules.ByHand] = rules.ModeState{Rule: rules.ByHand, Mode: rules.ModeBlock, Generation: 1}
	s.Restart()
	return s, o
}

func carry(t *testing.T, s *blocktest.Stage) {
	t.Helper()
	if err := enforce.NewCarrier(s.Enforcer).Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestOrdersAreCarriedOut: an order becomes a block with who gave it and why, once, also where ENFORCE stops between
// its effect and its word; a longer one extends it, a shorter one changes nothing, a release ends it and what was
// ordered before.
func TestOrdersAreCarriedOut(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s, o := orderStage(t, server)
		const who traffic.Subject = "ip=198.51.100.7%2F32"
		stands := func() *blocklist.Block {
			t.Helper()
			b, _, err := s.Store.Get(t.Context(), who, rules.ByHand)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		first := o.give(1, who, time.Hour)
		o.fail = context.DeadlineExceeded
		if err := enforce.NewCarrier(s.Enforcer).Look(t.Context()); err == nil {
			t.Fatal("it could not be settled, and was no failure")
		}
		s.Restart()
		carry(t, s)
		b := stands()
		if b == nil || b.Hit != first || b.By != "ann" || b.Reason != "ticket 4711" || b.Until != o.all[0].Until ||
			o.outcomes[first] != enforce.OrderWritten || !o.last[first] {
			t.Fatalf("the block is %+v, its outcome %q", b, o.outcomes[first])
		}
		var ids []string
		for _, d := range s.Log.All {
			if d.By != "ann" || d.Reason != "ticket 4711" || d.Action != blocklist.ActionWritten {
				t.Errorf("decided %+v", d)
			}
			ids = append(ids, d.ID)
		}
		if len(slices.Compact(ids)) != 1 {
			t.Errorf("told under several ids: %v", ids)
		}
		carry(t, s)
		if got := s.Log.Take(); len(got) != 2 { // before the restart, and after it
			t.Errorf("decided %v", got)
		}

		shorter, longer := o.give(2, who, time.Minute), o.give(3, who, 2*time.Hour)
		carry(t, s)
		if b := stands(); b.Hit != longer || !b.Extended || o.outcomes[shorter] != enforce.OrderUnchanged ||
			o.outcomes[longer] != enforce.OrderWritten {
			t.Errorf("the block is %+v, outcomes %v", b, o.outcomes)
		}
		before := o.give(4, who, 3*time.Hour)
		release, err := blocklist.NewRelease(who, rules.ByHand, "ben", "a customer", s.Clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		s.Decide(release)
		carry(t, s)
		if stands() != nil || o.outcomes[before] != blocklist.ReasonReleased || !o.last[before] {
			t.Errorf("released, %+v stands; outcome %q", stands(), o.outcomes[before])
		}
		s.Clock.Add(time.Second)
		o.give(5, who, time.Hour)
		carry(t, s)
		if stands() == nil {
			t.Error("ordered after the release, nothing stands")
		}
	})
}

// TestOrdersThatAreNotCarriedOut: each has its reason, and is tried again only where that may help.
func TestOrdersThatAreNotCarriedOut(t *testing.T) {
	s, o := orderStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	s.Restart(netip.MustParsePrefix("198.51.100.0/24"))
	never, special := o.give(1, "ip=198.51.100.7%2F32&device=tv", time.Hour), o.give(2, "ip=10.0.0.7%2F32", time.Hour)
	over, odd := o.give(3, "user=alice", -time.Second), o.give(4, "ip=198.51.100.7&user=x", time.Hour)
	unknown := o.give(5, "user=bob", time.Hour)
	o.all[4].Rule = rules.ByHand + "-0123456789abcdef"
	carry(t, s)
	for id, want := range map[string]string{
		never: blocklist.ReasonNeverBlock, special: blocklist.ReasonNeverBlock, over: blocklist.ReasonExpired,
		odd: blocklist.ReasonUnreadable,
	} {
		if o.outcomes[id] != want || !o.last[id] {
			t.Errorf("order %s: %q, last %v, want %q", id, o.outcomes[id], o.last[id], want)
		}
	}
	if _, settled := o.outcomes[unknown]; settled {
		t.Errorf("its rule is not known yet, and it is settled: %q", o.outcomes[unknown])
	}
	if got := s.Log.Take(); len(got) != 4 || slices.Contains(got, "written") {
		t.Errorf("decided %v", got)
	}
	s.Rules.States[o.all[4].Rule] = rules.ModeState{Rule: o.all[4].Rule, Mode: rules.ModeBlock, Generation: 1}
	s.ModesChanged()
	carry(t, s)
	if o.outcomes[unknown] != enforce.OrderWritten {
		t.Errorf("its rule is known, and it is %q", o.outcomes[unknown])
	}
}

// TestAnOrderIsOneProcesss: who was given other partitions of the hits topic leaves it to others.
func TestAnOrderIsOneProcesss(t *testing.T) {
	s, o := orderStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	s.Grouped = true
	s.Restart()
	id := o.give(1, "user=alice", time.Hour)
	carry(t, s)
	if o.outcomes[id] != "" {
		t.Fatalf("without a partition, it was %s", o.outcomes[id])
	}
	s.Standing().Assigned([]int{0})
	carry(t, s)
	if o.outcomes[id] != enforce.OrderWritten {
		t.Errorf("with its partition, it was %q", o.outcomes[id])
	}
}
