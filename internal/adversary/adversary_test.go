package adversary

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// requests is how many of them a run sends: 2,000 in a landing, 20,000 at night.
func requests(t *testing.T) int {
	t.Helper()
	switch text := os.Getenv("WEIR_TEST_REQUESTS"); {
	case text != "":
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("WEIR_TEST_REQUESTS: got %q, allowed: a whole number above 0", text)
		}
		return n
	case testbed.AtNight():
		return 20_000
	case testing.Short():
		return 1000
	}
	return 2000
}

// TestNoWayPastABlockOrOutOfTheCounts sends what clients may think of through real gateways, set up as the documents say,
// to APIs in three languages that say what they served, and to whom. It asks three things:
//
//   - A blocked client is never served the watched operation.
//   - Whoever is served it is counted, under the identity that is really its own.
//   - Nobody is counted or held for what others have sent.
func TestNoWayPastABlockOrOutOfTheCounts(t *testing.T) {
	all := clients()
	records := t.TempDir()
	open(records)
	languages := []string{"go", "node", "python"}
	var files []string
	for _, language := range languages {
		files = append(files, filepath.Join(records, language))
	}
	apis := []string{startGoAPI(t, files[0]).address, startNode(t, files[1]), startPython(t, files[2])}
	gate := startGate(t, all)
	gateways := []*gateway{startNginx(t, gate, apis), startCaddy(t, gate, apis)}

	begun := time.Now()
	sent := sendAll(t, all, gateways, len(apis))
	t.Logf("%d requests in %s", len(sent), time.Since(begun).Round(time.Second))
	j := newJudge(t, sent, gateways, languages)
	for i, file := range files {
		j.readServed(i, file)
	}
	for i := range gateways {
		j.readLog(i)
	}
	j.judge()
	j.replay()
}

// sendAll sends requests, several on one connection as a client may, and returns them by their numbers.
func sendAll(t *testing.T, all []*client, gateways []*gateway, apis int) []request {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed(t), 2))
	sent := make([]request, 0, requests(t))
	type connection struct {
		from     *client
		to, text string
		plain    bool // its first request is, and is answered therefore
	}
	var queue []connection
	for len(sent) < cap(sent) {
		c := all[dice.IntN(len(all))]
		if c.victim && dice.IntN(4) > 0 {
			continue // it has its own business, and never enough of it for a rule
		}
		g, api := dice.IntN(len(gateways)), dice.IntN(apis)
		count := min(1+dice.IntN(4)*dice.IntN(2), cap(sent)-len(sent))
		var text strings.Builder
		first := len(sent)
		for i := range count {
			r := draw(dice, len(sent), c, i == count-1)
			r.gateway, r.api = g, api
			sent = append(sent, r)
			text.WriteString(r.text)
		}
		queue = append(queue, connection{c, gateways[g].addresses[api], text.String(), sent[first].plain})
	}
	next := make(chan connection)
	var sending sync.WaitGroup
	for range 16 {
		sending.Go(func() {
			for c := range next {
				if err := exchange(c.from, c.to, c.text, c.plain); err != nil {
					t.Errorf("%s: %v", c.from.name, err)
				}
			}
		})
	}
	for _, c := range queue {
		next <- c
	}
	close(next)
	sending.Wait()
	return sent
}

// exchange sends a text on a connection of its own and reads until the other end closes it, or has nothing more to say. The answer to a plain
// request is waited for however busy the machine is: whoever hangs up before may not be served.
func exchange(from *client, to, text string, plain bool) error {
	dialer := net.Dialer{Timeout: time.Minute}
	if loopback(from.ip) {
		dialer.LocalAddr = &net.TCPAddr{IP: from.ip.AsSlice()}
	}
	connection, err := dialer.Dial("tcp", to)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	defer func() { _ = connection.Close() }()
	const silence = 10 * time.Second
	patience := silence
	if plain {
		patience = 2 * time.Minute
	}
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, _ = io.WriteString(connection, text) // it may hang up over what it reads
	for answer := make([]byte, 32<<10); ; {
		if _, err := connection.Read(answer); err != nil { // or wait for a body that never comes
			return nil
		}
		if err := connection.SetDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
	}
}
