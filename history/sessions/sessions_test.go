package sessions_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func hash(text string) sessions.Hash { return sha256.Sum256([]byte(text)) }

func entry(action string) audit.Entry {
	return audit.Entry{Actor: "ann", Action: action, Object: "session"}
}

func TestSignInsAreTakenOnceAndInTime(t *testing.T) {
	bed := historytest.New(t)
	s := sessions.New(bed.DB)
	ctx := t.Context()
	for name, within := range map[string]time.Duration{"good": time.Minute, "late": -time.Second} {
		if err := s.Begin(ctx, hash(name), "/rules/a?x=1", within); err != nil {
			t.Fatal(err)
		}
	}
	if next, err := s.Take(ctx, hash("good")); err != nil || next != "/rules/a?x=1" {
		t.Errorf("got %q, %v", next, err)
	}
	for _, token := range []string{"good", "late", "never"} {
		if next, err := s.Take(ctx, hash(token)); !errors.Is(err, postgres.ErrNotFound) || next != "" {
			t.Errorf("%s is taken again: %q, %v", token, next, err)
		}
	}
	bed.Run(t, "INSERT INTO weir.sign_ins SELECT sha256(n::text::bytea), '/', now() + '1 minute' FROM generate_series(1, 10000) n")
	if err := s.Begin(ctx, hash("more"), "/", time.Minute); !errors.Is(err, sessions.ErrBusy) {
		t.Errorf("beyond the bound: %v", err)
	}
	bed.Run(t, "UPDATE weir.sign_ins SET expires_at = now()")
	if err := s.Begin(ctx, hash("more"), "/", time.Minute); err != nil {
		t.Errorf("when the others are over: %v", err)
	}
}

func TestSessionsEnd(t *testing.T) {
	bed := historytest.New(t)
	s := sessions.New(bed.DB)
	ctx := t.Context()
	who := sessions.Session{Name: "ann", Subject: "https://id.example ann\x00", Groups: []string{"a", "b\xff"}}
	start := func(token, replaced string, lasts time.Duration) {
		t.Helper()
		if err := s.Start(ctx, hash(token), hash(replaced), who, lasts, entry("sign-in")); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(token string, idle time.Duration) {
		t.Helper()
		if _, err := s.Find(ctx, hash(token), idle); !errors.Is(err, postgres.ErrNotFound) {
			t.Errorf("%s: got %v", token, err)
		}
	}
	start("one", "", time.Hour)
	got, err := s.Find(ctx, hash("one"), time.Hour)
	if err != nil || got.Name != "ann" || got.Subject != `https://id.example ann\x00` || len(got.Groups) != 2 || got.Groups[1] != `b\xff` {
		t.Errorf("got %+v, %v", got, err)
	}
	if lasts := got.Expires.Sub(got.Created); lasts != time.Hour {
		t.Errorf("it lasts for %s", lasts)
	}
	gone("other", time.Hour)

	start("two", "one", time.Hour)
	gone("one", time.Hour)

	bed.Run(t, "UPDATE weir.sessions SET seen_at = now() - interval '59 minutes'")
	if _, err := s.Find(ctx, hash("two"), time.Hour); err != nil {
		t.Errorf("in use: %v", err)
	}
	if n := bed.Number(t, "SELECT count(*) FROM weir.sessions WHERE seen_at > now() - interval '1 minute'"); n != 1 {
		t.Error("its use was not written down")
	}
	bed.Run(t, "UPDATE weir.sessions SET seen_at = now() - interval '61 minutes'")
	gone("two", time.Hour)
	bed.Run(t, "UPDATE weir.sessions SET seen_at = now(), expires_at = now()")
	gone("two", time.Hour)

	start("three", "", time.Hour)
	if n := bed.Number(t, "SELECT count(*) FROM weir.sessions"); n != 1 {
		t.Errorf("%d sessions are kept, one lives", n)
	}
	for range 2 {
		if err := s.End(ctx, hash("three"), entry("sign-out")); err != nil {
			t.Fatal(err)
		}
	}
	gone("three", time.Hour)
	trail, err := bed.Audit.Of(context.Background(), "session", 0)
	if err != nil || len(trail) != 4 || trail[0].Action != "sign-out" || trail[1].Action != "sign-in" {
		t.Errorf("audited: %+v, %v", trail, err)
	}
}
