package ingest

import (
	"strings"
	"testing"
	"time"
)

// TestSilenceBehindABacklog: a prefetcher that has much to read leaves partitions out again and again, and a silent one among
// them is still found out. What was left out for long has not been silent.
func TestSilenceBehindABacklog(t *testing.T) {
	begin := time.Unix(1e9, 0)
	for _, test := range []struct {
		every   time.Duration // between two times that the partition is asked for
		blocked bool
	}{
		{100 * time.Millisecond, true},
		{notAskedFor, true},
		{notAskedFor + time.Second, false},
	} {
		var r Readable
		now := begin
		for ; now.Sub(begin) < 4*UnansweredFor; now = now.Add(test.every) {
			r.Ask(now)
			r.Failed(now, 7, nil)
			if r.Blocked != nil && now.Sub(begin) < UnansweredFor {
				t.Fatalf("asked for every %v: blocked after %v", test.every, now.Sub(begin))
			}
		}
		if (r.Blocked != nil) != test.blocked {
			t.Errorf("asked for every %v: blocked is %v, want %v", test.every, r.Blocked, test.blocked)
		}
		if r.Blocked != nil {
			r.Ask(now.Add(time.Hour))
			if r.Blocked == nil {
				t.Errorf("asked for every %v: what is known to be blocked is forgotten for want of room", test.every)
			}
		}
	}
}

// An open transaction that stays where it is blocks; one after the other, as who writes in transactions has them,
// does not.
func TestAnOpenTransactionThatStands(t *testing.T) {
	begin := time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)
	var r Readable
	for n := range 100 {
		r.Held(begin.Add(time.Duration(n)*time.Second), int64(n/10))
		if r.Blocked != nil {
			t.Fatalf("blocked after %d s by one that moves", n)
		}
	}
	r.Held(begin.Add(119*time.Second), 9) // it stands at 9 since the second 90
	if r.Blocked != nil {
		t.Error("blocked after 29 s")
	}
	r.Held(begin.Add(120*time.Second), 9)
	if b := r.Blocked; b == nil || b.Offset != 9 || b.Next != NoOffset ||
		!strings.Contains(b.Reason, "at offset 9 since 2026-11-29 08:01:30 UTC") {
		t.Fatalf("%+v", b)
	}
	before := r.Blocked
	r.Held(begin.Add(130*time.Second), 9)
	if !r.Blocked.Same(before) {
		t.Errorf("news: %+v", r.Blocked)
	}
	r.Held(begin.Add(131*time.Second), 10)
	if r.Blocked != nil {
		t.Errorf("it has moved: %+v", r.Blocked)
	}
	r.Held(begin.Add(170*time.Second), 10)
	r.Answered()
	if r.Blocked != nil {
		t.Errorf("it has ended: %+v", r.Blocked)
	}
}

// A transactional id is whatever a producer has chosen: none is shown as it is, nor fills a line.
func TestTransactionalIDsAreShownInPart(t *testing.T) {
	for id, want := range map[string]string{
		"":                             "Kafka does not tell its transactional id",
		"payments-1":                   `its transactional id is "payments-1" (producer 7`,
		"\x1b[2J\u202e\n":              `its transactional id is "\x1b[2J\u202e\n" (`,
		strings.Repeat("é", 100):       `id is "` + strings.Repeat("é", 100) + `" (`,
		strings.Repeat("\x00", 32_767): `has 32767 bytes and begins "` + strings.Repeat(`\x00`, 200) + `" (`,
		"x" + strings.Repeat("é", 999): `has 1999 bytes and begins "x` + strings.Repeat("é", 99) + `\xc3" (`,
	} {
		transaction := Transaction{Start: 3, Producer: 7, ID: id}
		said := transaction.String()
		brief := transaction.Brief()
		if strings.ContainsFunc(brief, func(c rune) bool { return c < ' ' || c > '~' }) || len(brief) > 500 {
			t.Errorf("in a few words: %q", brief)
		}
		if !strings.Contains(said, want) {
			t.Errorf("id of %d bytes: %s", len(id), said)
		}
	}
}

// TestShortTransactionsAreSummedUp: transactions none of which blocks a partition are told together, where they stand
// for a second and longer; those of who writes in transactions all the time are not, nor those of before.
func TestShortTransactionsAreSummedUp(t *testing.T) {
	const poll = 500 * time.Millisecond
	for _, test := range []struct {
		what        string
		each, pause time.Duration
		least, most time.Duration // that is waited of the last five minutes
	}{
		{"of 20 s, one after the other", 20 * time.Second, poll, 255 * time.Second, WaitsWithin},
		{"of 10 s, and as long between", 10 * time.Second, 10 * time.Second, 120 * time.Second, 150 * time.Second},
		{"of 2 s, one after the other", 2 * time.Second, poll, 150 * time.Second, WaitsWithin},
		{"of half a second, one after the other", poll, 0, 0, 0},
	} {
		var r Readable
		begin := time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)
		now, offset := begin, int64(0)
		for now.Sub(begin) < time.Hour {
			for end := now.Add(test.each); now.Before(end); now = now.Add(poll) {
				r.Held(now, offset)
				if r.Blocked != nil {
					t.Fatalf("%s: blocked: %+v", test.what, r.Blocked)
				}
			}
			offset++
			for end := now.Add(test.pause); now.Before(end); now = now.Add(poll) {
				r.Answered()
			}
		}
		if waited := r.Waited(now); waited < test.least || waited > test.most {
			t.Errorf("%s: waited for %v, want %v to %v", test.what, waited, test.least, test.most)
		}
		for end := now.Add(WaitsWithin + waitSpan); now.Before(end); now = now.Add(poll) {
			r.Answered()
		}
		if waited := r.Waited(now); waited != 0 {
			t.Errorf("%s: five minutes later it has waited for %v", test.what, waited)
		}
	}
}
