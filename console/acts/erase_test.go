package acts_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/traffic"
)

// What is no person is refused before anything is asked, with the name that is near.
func TestErasePerson(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"usr=alice":        "did you mean user?",
		"alice":            "each with =VALUE",
		"user=":            "a value behind user=",
		"ip=192.0.2":       "an address",
		"ip=192.0.0.0/16":  "/24 or longer",
		"ip=2001:db8::/32": "IPv6 /48 or longer",

		"user=bob&session=x":          "FIELD=VALUE of one field",
		"ip=192.0.2.1%2F32&device=tv": "FIELD=VALUE of one field",
	} {
		_, err := new(acts.Service).Erase(t.Context(), access.Actor{Name: "root", Role: access.Admin}, acts.EraseRequest{Subject: subject, Reason: "asked for it"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", subject, err, want)
		}
	}
	for role := access.Viewer; role < access.Admin; role++ {
		_, err := new(acts.Service).Erase(t.Context(), access.Actor{Name: "ann", Role: role}, acts.EraseRequest{Subject: "user=alice", Reason: "asked for it"})
		if err == nil || !strings.Contains(err.Error(), "erase needs the role admin") {
			t.Errorf("%v: %v", role, err)
		}
	}
}

// TestErasesWhoIsNamed: whatever a person calls himself, he is erased, and nobody whose name begins as his.
func TestErasesWhoIsNamed(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"user=alice":                 "alice",
		"user=rule":                  "rule",
		"user=alice&device=tv":       "alice&device=tv",
		"user=alice%26device%3Dtv":   "alice&device=tv",
		"user=bob%26session%3Dx":     "bob&session=x",
		"user=alice%20smith":         "alice smith",
		"user=100%":                  "100%",
		"ip=192.0.2.1":               "192.0.2.1/32",
		"ip=192.0.2.1%2F32":          "192.0.2.1/32",
		"device=a=b":                 "a=b",
		"session=\u202e;x":           "\u202e;x",
		"user=" + `"' OR 1=1 --`:     `"' OR 1=1 --`,
		"api_key=~notapseudonym&a=b": "~notapseudonym&a=b",
		"user=p%3Bq":                 "p;q",
		"user=a\nb":                  "a\ufffdb",
		"user=a%0Ab":                 "a\ufffdb",
		"user= a\x1bb ":              "a\ufffdb",
	} {
		asked := &named{}
		_, err := eraserOf(t, asked).Erase(t.Context(), access.Actor{Name: "root", Role: access.Admin},
			acts.EraseRequest{Subject: subject, Reason: "asked for it", Wait: time.Minute})
		got := asked.person.Value
		if asked.person.Field == traffic.FieldIP {
			got = asked.person.Prefix.String()
		}
		if err != nil || got != want {
			t.Errorf("%s: %q is erased, %v, want %q", subject, got, err, want)
		}
	}
}

// named remembers who was to be erased.
type named struct{ person erasure.Person }

func (n *named) Erase(_ context.Context, r erasure.Request) (erasure.Done, error) {
	n.person = r.Person
	return erasure.Done{}, nil
}

// slow erases in a minute, by the clock of a bubble.
type slow struct {
	begun atomic.Int64
	fails error
}

func (s *slow) Erase(ctx context.Context, r erasure.Request) (erasure.Done, error) {
	s.begun.Add(1)
	r.Progress("episodes")
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case <-timer.C:
		return erasure.Done{Pseudonym: "user:erased-1", Erased: []erasure.Count{{What: "episodes", N: s.begun.Load()}}}, s.fails
	case <-ctx.Done():
		return erasure.Done{}, ctx.Err()
	}
}

func eraserOf(t *testing.T, s acts.Erasing) *acts.Service {
	t.Helper()
	does, err := acts.New(acts.Options{Erasing: s, Rules: struct{ acts.Rules }{}, Gates: struct{ acts.Gates }{}, Blocks: struct{ acts.Blocks }{},
		Releases: struct{ acts.Releases }{}, Documents: struct{ acts.Documents }{},
		Dossiers: struct{ acts.Dossiers }{}, Orders: struct{ acts.Orders }{}, Knows: struct{ acts.Knows }{},
		Partitions: struct{ acts.PartitionStore }{},
		Clock:      func() traffic.Time { return traffic.At(time.Now()) }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return does
}

// TestErasureOutlivesWhoAsked: a request that gives up leaves the erasure running, the same one again joins it, and each outcome is told once.
func TestErasureOutlivesWhoAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		does := eraserOf(t, s)
		root := access.Actor{Name: "root", Role: access.Admin}
		request := acts.EraseRequest{Subject: "user=alice", Reason: "asked for it", Wait: 21 * time.Second}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for i, ctx := range []context.Context{gone, t.Context(), t.Context()} {
			if state, err := does.Erase(ctx, root, request); err != nil || !state.Running || state.Done != nil || state.Step != "episodes" && i > 0 {
				t.Fatalf("request %d: %+v, %v", i, state, err)
			}
		}
		state, err := does.Erase(t.Context(), root, request)
		if err != nil || state.Running || state.Done == nil || state.Done.Erased[0].N != 1 || s.begun.Load() != 1 {
			t.Fatalf("at last %+v, %v; begun %d times", state, err, s.begun.Load())
		}
		for i, other := range []acts.EraseRequest{
			request, {Subject: "user=bob", Reason: request.Reason, Wait: time.Second}, {Subject: request.Subject, Reason: "another", Wait: time.Second},
			{Subject: request.Subject, Reason: request.Reason, DryRun: true, Wait: time.Second},
		} {
			if state, err := does.Erase(t.Context(), root, other); err != nil || !state.Running || s.begun.Load() != int64(i+2) {
				t.Errorf("another erasure %+v: %+v, %v; begun %d times", other, state, err, s.begun.Load())
			}
		}
		time.Sleep(2 * time.Minute) // all have ended, and one of them is asked for, another too late
		if state, err := does.Erase(t.Context(), root, request); err != nil || state.Done == nil || s.begun.Load() != 5 {
			t.Errorf("the outcome was not kept: %+v, %v", state, err)
		}
		time.Sleep(20 * time.Minute)
		if state, err := does.Erase(t.Context(), root, acts.EraseRequest{Subject: "user=bob", Reason: request.Reason, Wait: time.Second}); err != nil || !state.Running || s.begun.Load() != 6 {
			t.Errorf("the outcome was kept for ever: %+v, %v", state, err)
		}
		does.Close()
		var away *acts.AwayError
		if _, err := does.Erase(t.Context(), root, acts.EraseRequest{Subject: "user=carl", Reason: "asked", Wait: time.Second}); err == nil || s.begun.Load() != 6 {
			t.Errorf("begun after the end: %v", err)
		}
		if _, err := does.Erase(t.Context(), root, acts.EraseRequest{Subject: "user=bob", Reason: request.Reason, Wait: time.Second}); !errors.As(err, &away) || !strings.Contains(away.Consequence, "at once, or nothing") {
			t.Errorf("ended with the process: %v", err)
		}
	})
}
