package server_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tap stands between the server and a store, passes all on, and keeps what the store is asked: what an answer costs
// is told by that, not by a clock.
type tap struct {
	address string
	mu      sync.Mutex
	asked   []string
}

// newTap listens in front of a store. reader makes what reads one message after the other of a connection, and says
// what is asked by it; empty: nothing that counts.
func newTap(t *testing.T, store string, reader func() func(from io.Reader) (string, error)) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{address: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", store)
			if err != nil {
				_ = from.Close()
				continue
			}
			all.Go(func() { p.pass(from, to, reader()) })
			all.Go(func() {
				_, _ = io.Copy(from, to)
				_, _ = from.Close(), to.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return p
}

// pass passes messages on. What one asks is kept before the store has it, and so before it is answered.
func (p *tap) pass(from, to net.Conn, next func(io.Reader) (string, error)) {
	var held bytes.Buffer
	tee := io.TeeReader(bufio.NewReader(from), &held)
	for {
		said, err := next(tee)
		if said != "" {
			p.say(said)
		}
		if err == nil {
			_, err = to.Write(held.Bytes())
		}
		if held.Reset(); err != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

func (p *tap) say(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, what)
}

// took is what was asked since it was asked last.
func (p *tap) took() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

// redisCommands reads commands as clients write them, and says their names.
func redisCommands() func(io.Reader) (string, error) {
	return func(from io.Reader) (string, error) {
		n, err := number(from, '*')
		name := ""
		for i := 0; i < n && err == nil; i++ {
			var length int
			if length, err = number(from, '$'); err != nil {
				break
			}
			word := make([]byte, length+2)
			if _, err = io.ReadFull(from, word); i == 0 {
				name = strings.ToUpper(string(word[:length]))
			}
		}
		if slices.Contains([]string{"PING", "HELLO", "CLIENT", "AUTH", "SELECT", "QUIT"}, name) {
			name = ""
		}
		return name, err
	}
}

// number reads a line byte by byte: nothing behind it is taken.
func number(from io.Reader, kind byte) (int, error) {
	var line []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(line, []byte("\r\n")) {
		if _, err := io.ReadFull(from, one); err != nil {
			return 0, err
		}
		line = append(line, one[0])
	}
	if line[0] != kind {
		return 0, io.ErrUnexpectedEOF
	}
	return strconv.Atoi(string(line[1 : len(line)-2]))
}

// statements reads what a client of PostgreSQL has carried out, and says its text.
func statements() func(io.Reader) (string, error) {
	named, first := map[string]string{}, true
	return func(from io.Reader) (string, error) {
		head := make([]byte, 5)
		if first {
			head = head[1:] // the first message has no kind
		}
		if _, err := io.ReadFull(from, head); err != nil {
			return "", err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[len(head)-4:])-4)
		if _, err := io.ReadFull(from, body); err != nil || first {
			first = false
			return "", err
		}
		parts := strings.SplitN(string(body), "\x00", 3)
		switch head[0] {
		case 'P':
			named[parts[0]] = parts[1]
		case 'B':
			return named[parts[1]], nil
		case 'Q':
			if text := parts[0]; text != ";" && !strings.HasPrefix(text, "-- ") {
				return text, nil
			}
		}
		return "", nil
	}
}

// at is a store's URL with the tap in front of it.
func (p *tap) at(store string) string {
	u, err := url.Parse(store)
	if err != nil {
		return store
	}
	u.Host = p.address
	if u.Scheme != "redis" {
		u.RawQuery = "sslmode=disable"
	}
	return u.String()
}

// touched is what a request has asked of the stores.
type touched struct {
	reads, writes []string // tables, each once
	redis         int      // commands
	all           []string // statements, in order
}

var (
	readsOf  = regexp.MustCompile(`(?i)\b(?:FROM|JOIN)\s+([a-z_]+)`)
	writesOf = regexp.MustCompile(`(?i)\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+([a-z_]+)`)
)

func touchedBy(asked []string, redis int) touched {
	out := touched{redis: redis, all: asked}
	for _, text := range asked {
		lower := strings.ToLower(text)
		for _, m := range writesOf.FindAllStringSubmatch(lower, -1) {
			if m[1] != "set" && m[1] != "skip" && m[1] != "of" && m[1] != "nowait" { // FOR UPDATE OF
				out.writes = append(out.writes, m[1])
			}
		}
		for _, m := range readsOf.FindAllStringSubmatch(lower, -1) {
			out.reads = append(out.reads, m[1])
		}
	}
	for _, list := range []*[]string{&out.reads, &out.writes} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return out
}

// only reports whether nothing but these tables was touched.
func (d *touched) only(tables ...string) bool {
	return d.redis == 0 && !slices.ContainsFunc(append(slices.Clone(d.reads), d.writes...),
		func(name string) bool { return !slices.Contains(tables, name) })
}
