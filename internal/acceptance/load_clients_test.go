package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// loadClientsEnv names the console that this program is to load instead of testing anything.
const loadClientsEnv = "WEIR_TEST_LOAD_CLIENTS"

// told is what the clients of a console tell of their load, some times a second, as a line of JSON.
type told struct {
	Asked   int64          // questions that were answered, in whatever way
	Open    int64          // bodies that the console waits for
	Bodies  int64          // for how many it has waited
	Answers map[string]int // by status, or by what is wrong
}

// loadClients are a process of all who ask a console. It gives way to whatever else there is to do: those who ask have
// machines of their own, and a gate that waits for them would be told of in the figures.
type loadClients struct {
	ask   io.Closer // until then they go on
	ended chan struct{}

	mu  sync.Mutex
	now told
}

func startLoadClients(t testing.TB, address string) *loadClients {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("nice", "-n", "19", program)
	command.Env, command.Stderr = append(os.Environ(), loadClientsEnv+"="+address), os.Stderr
	ask, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	c := &loadClients{ask: ask, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var now told
			if err := json.Unmarshal(lines.Bytes(), &now); err != nil {
				t.Errorf("the clients say %q: %v", lines.Text(), err)
				continue
			}
			c.mu.Lock()
			c.now = now
			c.mu.Unlock()
		}
		if err := command.Wait(); err != nil {
			t.Errorf("the clients: %v", err)
		}
	}()
	t.Cleanup(func() { c.end() })
	return c
}

// told is what they said last.
func (c *loadClients) told() told {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// end ends them, and gives what they say in the end.
func (c *loadClients) end() told {
	_ = c.ask.Close() // it may be closed already
	<-c.ended
	return c.told()
}

// loadConsole is the program of loadClients: it asks until its standard input ends.
func loadConsole(address string) int {
	ctx, stop := context.WithCancel(context.Background())
	a := &asking{address: address, now: told{Answers: map[string]int{}}}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // whoever has started them may be gone, too
		stop()
	}()
	var going sync.WaitGroup
	for i := range loadViewers {
		going.Go(func() { a.asks(ctx, i) })
	}
	for i := range loadLists {
		going.Go(func() { a.lists(ctx, i) })
	}
	for i := range loadBodies {
		going.Go(func() { a.keepsOpen(ctx, i) })
	}
	for out := json.NewEncoder(os.Stdout); ; {
		if err := out.Encode(a.told()); err != nil {
			stop()
		}
		select {
		case <-time.After(200 * time.Millisecond):
			continue
		case <-ctx.Done():
		}
		going.Wait()
		if err := out.Encode(a.told()); err != nil {
			return 1
		}
		return 0
	}
}

// asking is all who ask a console.
type asking struct {
	address string

	mu  sync.Mutex
	now told
}

func (a *asking) told() told {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now
	now.Answers = maps.Clone(now.Answers)
	return now
}

func (a *asking) note(change func(*told)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.now)
}

// from is a client at an address of its own, with one connection.
func from(ip string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: 10 * time.Second}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxConnsPerHost: 1},
		Timeout: time.Minute}
}

// send makes a request of the API, of whoever has the token.
func send(ctx context.Context, client *http.Client, address, who, method, path string, body any) (
	*http.Response, error,
) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/api/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer the-long-token-of-"+who)
	r.Header.Set("Content-Type", "application/json")
	return client.Do(r)
}

// asks what is expensive until ctx ends.
func (a *asking) asks(ctx context.Context, i int) {
	a.repeats(ctx, i, "history/sources?since=7d&limit=1000", "blocklist?limit=1000&released=true",
		"history/top?by=hour&since=7d",
		"why/0123456789abcdef", "history/seen-with?source=ip=10.0.0.7", "blocklist?rule=kept&limit=1")
}

// lists blocks until ctx ends.
func (a *asking) lists(ctx context.Context, i int) {
	a.repeats(ctx, i, "blocklist?limit=1000", "blocklist?rule=kept&limit=1000")
}

// repeats asks for paths in turn until ctx ends.
func (a *asking) repeats(ctx context.Context, i int, paths ...string) {
	client := from(fmt.Sprintf("127.0.2.%d", 1+i%250))
	defer client.CloseIdleConnections()
	for n := i; ctx.Err() == nil; n++ {
		path, said := paths[n%len(paths)], ""
		answer, err := send(ctx, client, a.address, fmt.Sprint("v", i), http.MethodGet, path, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			said = answer.Status
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			said = "no answer"
		}
		a.note(func(now *told) { now.Asked, now.Answers[said] = now.Asked+1, now.Answers[said]+1 })
		if err != nil {
			pause(ctx)
		}
	}
}

// pause is before one tries again.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

// keepsOpen sends heads whose bodies never come, until ctx ends: half of them are of nobody, half of an analyst.
func (a *asking) keepsOpen(ctx context.Context, i int) {
	head := "POST /signout HTTP/1.1\r\nHost: " + a.address + "\r\nContent-Length: 100\r\n\r\n"
	if i%2 == 1 {
		head = "POST /api/v1/rules/kept/release HTTP/1.1\r\nHost: " + a.address +
			"\r\nAuthorization: Bearer the-long-token-of-ann\r\nContent-Type: application/json" +
			"\r\nContent-Length: 100\r\n\r\n"
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 3, byte(1+i%6))}, Timeout: 10 * time.Second}
	for ctx.Err() == nil {
		connection, err := dialer.DialContext(ctx, "tcp", a.address)
		if err == nil {
			unhook := context.AfterFunc(ctx, func() { _ = connection.Close() })
			if _, err = io.WriteString(connection, head); err == nil {
				a.note(func(now *told) { now.Open, now.Bodies = now.Open+1, now.Bodies+1 })
				_, _ = io.Copy(io.Discard, connection) // until the console has had enough
				a.note(func(now *told) { now.Open-- })
			}
			unhook()
			_ = connection.Close()
		}
		pause(ctx)
	}
}
