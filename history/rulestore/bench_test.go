package rulestore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// BenchmarkApply stores n new rules, then an edit of one of them, with allow lists that they name. Ten times the rules shall take
// ten times as long, also where the server is a millisecond away, as one in another zone is. Beside it stands what the names of all of
// them take, which the shell asks for at the Tab key.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		for _, away := range []time.Duration{0, time.Millisecond} {
			b.Run(fmt.Sprintf("rules=%d/away=%s", n, away), func(b *testing.B) { benchmarkApply(b, n, away) })
		}
	}
}

func benchmarkApply(b *testing.B, n int, away time.Duration) {
	var docs []rules.Document
	var opts rulestore.ApplyOptions
	for i := range n / 50 {
		opts.AllowLists = append(opts.AllowLists, rules.AllowList{ID: fmt.Sprintf("list-%03d", i), Owner: "tests",
			Entries: []rules.AllowEntry{{Kind: rules.AllowCIDR, Value: fmt.Sprintf("192.0.2.%d/32", i), Reason: "a probe"}}})
	}
	for i := range n {
		d := historytest.Document(fmt.Sprintf("rule-%05d", i))
		d.Match.Path = fmt.Sprintf("/service-%d/{id}", i)
		d.Allow = []string{fmt.Sprintf("list-%03d", i/50)}
		docs = append(docs, d)
	}
	var stored, edited, named time.Duration
	for b.Loop() {
		b.StopTimer()
		bed := historytest.New(b)
		bed.Publish(b, rules.Format{Name: "weir"})
		store := historytest.Open(b, distant(b, bed.URL, away)).Rules
		b.StartTimer()
		apply := func() time.Duration {
			begun := time.Now()
			if _, err := store.Apply(b.Context(), rulestore.WithSources(&rules.Set{Rules: docs}), "ann", "", opts); err != nil {
				b.Fatal(err)
			}
			return time.Since(begun)
		}
		stored += apply()
		docs[n/2].Limit++
		edited += apply()
		begun := time.Now()
		if all, err := store.Labels(b.Context(), ""); err != nil || len(all) != n {
			b.Fatal(len(all), err)
		}
		named += time.Since(begun)
	}
	each := float64(b.N)
	b.ReportMetric(float64(stored.Nanoseconds())/each/float64(n), "ns/stored-rule")
	b.ReportMetric(float64(edited.Nanoseconds())/each/float64(n), "ns/rule-of-an-edit")
	b.ReportMetric(float64(named.Microseconds())/each/1000, "ms/names")
}

// distant is the URL of the same server with a round trip of so much.
func distant(b *testing.B, server string, trip time.Duration) string {
	b.Helper()
	at, err := url.Parse(server)
	if err != nil || trip == 0 {
		return server
	}
	near := at.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", near)
			if err != nil {
				_ = client.Close()
				continue
			}
			go carry(b.Context(), server, client, trip/2)
			go carry(b.Context(), client, server, trip/2)
		}
	}()
	at.Host = listener.Addr().String()
	return at.String()
}

// carry copies what comes from a connection, each piece after a delay, and however much is on its way meanwhile.
func carry(ctx context.Context, to io.WriteCloser, from io.Reader, delay time.Duration) {
	type piece struct {
		due  time.Time
		text []byte
	}
	pieces := make(chan piece, 1<<12)
	go func() {
		defer close(pieces)
		for {
			text := make([]byte, 16<<10)
			n, err := from.Read(text)
			if err != nil {
				return
			}
			pieces <- piece{time.Now().Add(delay), text[:n]}
		}
	}()
	for p := range pieces {
		select {
		case <-time.After(time.Until(p.due)):
		case <-ctx.Done():
		}
		if _, err := to.Write(p.text); err != nil {
			break
		}
	}
	_ = to.Close()
	for range pieces { // until the other end is closed, too
	}
}
