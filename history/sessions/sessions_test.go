package sessions_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"strings"
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

func TestSignInsAreTakenOnce(t *testing.T) {
	bed := historytest.New(t)
	s := sessions.New(bed.DB)
	ctx, until := t.Context(), time.Now().Add(time.Minute)
	if err := s.Take(ctx, hash("good"), until); err != nil {
		t.Fatal(err)
	}
	if err := sessions.New(bed.DB).Take(ctx, hash("good"), until); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("it is taken again: %v", err)
	}
	if err := s.Take(ctx, hash("other"), until); err != nil {
		t.Error(err)
	}
	bed.Run(t, "UPDATE weir.sign_ins SET expires_at = now() - interval '61 minutes'")
	if err := s.Take(ctx, hash("later"), until); err != nil {
		t.Error(err)
	}
	if n := bed.Number(t, "SELECT count(*) FROM weir.sign_ins"); n != 1 {
		t.Errorf("%d are kept, the time of one is not over", n)
	}
}

func TestTheKeyIsOneForAllConsoles(t *testing.T) {
	bed := historytest.New(t)
	key := func() string {
		t.Helper()
		key, err := sessions.New(bed.DB).Key(t.Context())
		if err != nil || len(key) != sha256.Size {
			t.Fatalf("%d bytes, %v", len(key), err)
		}
		return string(key)
	}
	first := key()
	if key() != first {
		t.Error("two consoles have two keys")
	}
	step, err := os.ReadFile("../../migrations/sql/0033_session_key.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, insert, _ := strings.Cut(string(step), ");\n")
	bed.Run(t, "DELETE FROM weir.session_keys")
	bed.Run(t, strings.Replace(insert, "session_keys", "weir.session_keys", 1))
	if key() == first {
		t.Error("another installation has the same key")
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
	bed.Run(t, "UPDATE weir.sessions SET seen_at = now() - interval '59 minutes'")
	if who, err := s.Look(ctx, hash("two"), time.Hour); err != nil || who.Name != "ann" {
		t.Errorf("looked at: %+v, %v", who, err)
	}
	if n := bed.Number(t, "SELECT count(*) FROM weir.sessions WHERE seen_at > now() - interval '1 minute'"); n != 0 {
		t.Error("a look is a use")
	}
	bed.Run(t, "UPDATE weir.sessions SET seen_at = now() - interval '61 minutes'")
	if _, err := s.Look(ctx, hash("two"), time.Hour); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("looked at: %v", err)
	}
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
