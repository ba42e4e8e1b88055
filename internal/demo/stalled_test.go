package demo_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/traffic"
)

// standing has the machine stand still for three of four parts of each 100 ms, from one instant to another.
func standing(a *demo.Answers, from, until traffic.Time) {
	a.Stalls = nil
	for at := from; at < until; at = at.Add(100 * time.Millisecond) {
		a.Stalls = append(a.Stalls, demo.Stall{From: at, Until: at.Add(75 * time.Millisecond)})
	}
}

// TestStallsAreTheMachines: what comes late is weir's fault where the machine let it run, and is not known to be where
// it did not. Where nothing could be in time, nobody says that it was.
func TestStallsAreTheMachines(t *testing.T) {
	alone(t)
	late := world{seed: 1, prepare: func(e *engine) { e.lateHits = 2500 * time.Millisecond }}
	fine := world{seed: 1}
	givenUp := func(a *demo.Answers) {
		r := &a.Requests[7]
		r.Status, r.Err, r.Received = 0, "deadline exceeded", r.Sent.Add(10*time.Second)
	}
	slow := world{seed: 5, slow: time.Minute}
	for _, test := range []struct {
		name   string
		world  world
		stand  func(a *demo.Answers)
		failed []string
		unsure []string
		says   string
	}{
		{"hits come late", late, func(*demo.Answers) {}, []string{refused, everybody}, nil, "is not the truth"},
		{"hits come late, it stood before", late, func(a *demo.Answers) { standing(a, a.Began, a.Promotion) },
			[]string{refused, everybody}, nil, "is not the truth"},
		{"hits come late, it stood all the time", late, func(a *demo.Answers) { standing(a, a.Began, a.Ended) },
			nil, []string{everybody}, "not known: the machine stood still for"},
		{"requests are slow", slow, func(*demo.Answers) {}, []string{everybody}, nil, "is not the truth"},
		{"requests are slow, it stood before", slow, func(a *demo.Answers) {
			standing(a, a.Began.Add(-time.Minute), a.Began)
		}, []string{everybody}, nil, "is not the truth"},
		{"requests are slow, it stood all the time", slow, func(a *demo.Answers) { standing(a, a.Began, a.Ended) },
			nil, []string{everybody}, "not known: the machine stood still for"},
		{"a request was given up", fine, givenUp, []string{matching}, nil, "is not the truth"},
		{"a request was given up, it stood meanwhile", fine, func(a *demo.Answers) {
			givenUp(a)
			standing(a, a.Requests[7].Sent, a.Requests[7].Received)
		}, nil, []string{matching}, "not known: the machine stood still for"},
		{"a connection broke, it stood all the time", fine, func(a *demo.Answers) {
			a.Requests[7].Status, a.Requests[7].Err = 0, "EOF"
			standing(a, a.Began, a.Ended)
		}, []string{matching}, nil, "is not the truth"},
		{"a phase was cut short", slow, func(a *demo.Answers) { a.CutShort = true }, nil, []string{everybody},
			"not known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p played
			synctest.Test(t, func(t *testing.T) { p.ledger, p.answers, p.recorded = test.world.play(t) })
			r := p.judge(t, func(_ *demo.Ledger, a *demo.Answers, _ *demo.Recorded) { test.stand(a) })
			if r.Failed() < len(test.failed) || test.failed == nil && r.Failed() > 0 || r.Unsure() != len(test.unsure) {
				t.Errorf("%d checks failed, %d are not sure", r.Failed(), r.Unsure())
			}
			for _, name := range test.failed {
				if !failed(&r, name) {
					t.Errorf("%q found nothing", name)
				}
			}
			for _, name := range test.unsure {
				if c := check(&r, name); c.Unsure == 0 || c.Failures > 0 {
					t.Errorf("%q: %d failures, %d times not sure", name, c.Failures, c.Unsure)
				}
			}
			if text := table(t, &r); !strings.Contains(text, test.says) || r.Err() == nil || t.Failed() {
				t.Errorf("error %v, want %q:\n%s", r.Err(), test.says, text)
			}
		})
	}
}
