package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/server"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/internal/testbed"
)

// tokens let each of names in by a token that is made of it: adam as an admin, the others as viewers.
func tokens(names ...string) func(*config.Config) {
	return func(c *config.Config) {
		for _, name := range names {
			role := "viewer"
			if name == "adam" {
				role = "admin"
			}
			sum := sha256.Sum256([]byte(tokenOf(name)))
			c.Console.Tokens = append(c.Console.Tokens, config.Token{
				Name: name, Role: role, SHA256: hex.EncodeToString(sum[:]), Expires: "2999-01-01",
			})
		}
	}
}

func tokenOf(name string) string { return "the-token-of-" + name + "-which-nobody-guesses" }

// request is what somebody asks of a server.
func request(ctx context.Context, who, method, url, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+tokenOf(who))
	r.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(r)
}

// status is what somebody's request is answered with, for ten seconds at most.
func status(t *testing.T, who, method, url, body string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := request(ctx, who, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// hang lets somebody ask n times what does not answer, until ctx ends.
func hang(ctx context.Context, asking *sync.WaitGroup, who, url string, n int) {
	for range n {
		asking.Go(func() {
			if answer, err := request(ctx, who, http.MethodGet, url, ""); err == nil {
				_ = answer.Body.Close()
			}
		})
	}
}

// TestQuestionsThatHangCostNobodyElse locks a table that the explorer reads, and lets viewers ask for it many times.
func TestQuestionsThatHangCostNobodyElse(t *testing.T) {
	b := newBed(t, tokens("vera", "victor", "viola", "una", "adam"))
	b.prepare(own)
	_, address := b.listen(t, server.Options{Config: b.in.Config})
	at := "http://" + address
	tx, err := b.in.History.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE saved_views IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	hung := func(want int) {
		t.Helper()
		testbed.Eventually(t, 20*time.Second, func() error {
			var n int
			err := b.in.History.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE '% questions' AND
				wait_event_type = 'Lock'`).Scan(&n)
			if err == nil && n != want {
				err = fmt.Errorf("%d questions hang, want %d", n, want)
			}
			return err
		})
	}
	hang(ctx, &asking, "vera", at+"/explore", 6)
	hung(2)
	hang(ctx, &asking, "victor", at+"/explore", 6)
	hung(4)
	if got := status(t, "una", http.MethodGet, at+"/api/v1/rulebook", ""); got != http.StatusOK {
		t.Errorf("somebody else's question: %d", got)
	}
	if got := status(t, "vera", http.MethodGet, at+"/api/v1/me", ""); got != http.StatusOK {
		t.Errorf("who has questions that hang asks who he is: %d", got)
	}
	hang(ctx, &asking, "viola", at+"/explore", 6)
	hung(6)
	disable := at + "/api/v1/rules/" + own + "/disable"
	if got := status(t, "adam", http.MethodPost, disable, `{"reason":"tests"}`); got != http.StatusOK {
		t.Errorf("an act, while all turns are taken: %d", got)
	}
	hung(6)                                                         // still: the act was done beside them
	if lent, most := b.in.History.InUse(postgres.Work); lent != 1 { // the transaction of this test
		t.Errorf("%d of the %d connections of stages are in use", lent, most)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	asking.Wait()
	if got := status(t, "vera", http.MethodGet, at+"/explore", ""); got != http.StatusOK {
		t.Errorf("afterwards: %d", got)
	}
}

// TestOneActorsStreamsLeavePlacesToOthers opens more streams by one token than one may have.
func TestOneActorsStreamsLeavePlacesToOthers(t *testing.T) {
	b := newBed(t, tokens("vera", "una"))
	_, address := b.listen(t, server.Options{Config: b.in.Config})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	open := func(who string) int {
		answer, err := request(ctx, who, http.MethodGet, "http://"+address+"/api/v1/stream", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer.StatusCode
	}
	for i := range 8 {
		if got := open("vera"); got != http.StatusOK {
			t.Fatalf("stream %d: %d", i+1, got)
		}
	}
	if got := open("vera"); got != http.StatusTooManyRequests {
		t.Errorf("a ninth stream: %d, want 429", got)
	}
	if got := open("una"); got != http.StatusOK {
		t.Errorf("somebody else's: %d", got)
	}
}

// TestBodiesThatNeverComeLeaveTheDoorOpen fills console and metrics from one address with requests whose bodies do not
// come; nobody has signed in.
func TestBodiesThatNeverComeLeaveTheDoorOpen(t *testing.T) {
	b := newBed(t, tokens("una"), func(c *config.Config) { c.HTTP.Listen = "127.0.0.1:0" })
	_, console := b.listen(t, server.Options{Config: b.in.Config})
	quiet := slog.New(slog.DiscardHandler)
	health, err := service.NewHealth(b.in.Config, service.NewRegistry("test", b.in.Config.Namespace), quiet)
	if err != nil {
		t.Fatal(err)
	}
	part := health.Part()
	ended := make(chan error, 1)
	go func() { ended <- part.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	metrics := health.Listener.Addr().String()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var waiting sync.WaitGroup
	for i := range 400 {
		address := []string{console, metrics}[i%2]
		c, err := from.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(c, "POST /signout HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a connection of %s is open after a minute", address)
			}
		})
	}
	if got := status(t, "una", http.MethodGet, "http://"+metrics+"/readyz", ""); got != http.StatusOK {
		t.Errorf("/readyz: %d", got)
	}
	if got := status(t, "una", http.MethodGet, "http://"+console+"/api/v1/me", ""); got != http.StatusOK {
		t.Errorf("/api/v1/me: %d", got)
	}
	waiting.Wait()
}
