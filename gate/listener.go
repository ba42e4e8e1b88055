package gate

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxHead bounds what one check may say in the lines that a gate looks at: twice the megabyte that Caddy and Traefik
	// take of a client, so that no client of theirs can write a request that a gate does not take.
	maxHead = 2 << 20
	// rawBuffer is how much of a head is read at a time.
	rawBuffer = 4 << 10
	// The bounds of lingering on a connection whose other end may still be sending a body.
	lingerTime  = 200 * time.Millisecond
	lingerBytes = 1 << 20
)

// Server is an HTTP server for Handler. It has to serve what Listener accepts.
func (g *Gate) Server() *http.Server {
	return &http.Server{
		Handler: g.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		WriteTimeout:   10 * time.Second, // of a head, a check and its answer
		MaxHeaderBytes: 2 * maxHead,      // never reached: head keeps to its own bound
	}
}

// Listener accepts the connections of proxies, and reads heads in place of net/http, which answers 400 by itself for a
// control byte in any header, a missing Host, or an odd method or target. All of these are text of a proxy's client, who
// must not be able to choose that its request is not checked. docs/adr/0005 has the alternatives.
func (g *Gate) Listener(l net.Listener) net.Listener {
	keep := make(map[string]string)
	for _, name := range append(g.o.Identifier.Headers(),
		"X-Forwarded-For", headerForwardedMethod, headerForwardedURI, headerForwardedHost, headerOriginalMethod, headerOriginalURI, headerOriginalHost,
		HeaderRoute, "Host",
		"Connection", "Content-Length", "Expect", "Transfer-Encoding") {
		keep[strings.ToLower(name)] = http.CanonicalHeaderKey(name)
	}
	// What else net/http acts on, it is not told, though an identity map names it; nor the Host, see head.
	delete(keep, "trailer")
	return &listener{Listener: l, keep: keep, lingers: lingerTime}
}

type listener struct {
	net.Listener
	keep    map[string]string // headers that are looked at: their canonical names by those in lower case
	lingers time.Duration     // lingerTime, but for tests
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // net/http tells apart what it says
	}
	return &conn{Conn: c, raw: bufio.NewReaderSize(c, rawBuffer), keep: l.keep, lingers: l.lingers}, nil
}

// conn is a connection of a proxy. What is read from it are the heads that the proxy sent, written anew, each with the
// lines that a gate looks at and no others, and without bodies: those are skipped. So net/http finds exactly one request
// for each head that was read here, and no byte of a client decides where a request ends, except that a Content-Length
// says how much is skipped; where it could be read in two ways, nothing that follows is read.
type conn struct {
	net.Conn
	raw     *bufio.Reader
	keep    map[string]string
	lingers time.Duration
	head    head         // that is being read
	busy    bool         // one is
	out     bytes.Buffer // what has been written anew and not been read yet
	body    int64        // bytes of the last request's body that have not been skipped yet
	last    bool         // no head is read any more
	// unread says that a body may be under way when the connection is closed. Server.Close closes from elsewhere.
	unread atomic.Bool
}

// Read reads the heads anew. After an error such as a deadline's, it goes on where it was.
func (c *conn) Read(p []byte) (int, error) {
	for c.out.Len() == 0 {
		if c.out.Cap() > rawBuffer {
			c.out = bytes.Buffer{}
		}
		if err := c.advance(); err != nil {
			return 0, err
		}
	}
	return c.out.Read(p)
}

// advance reads one line, or what the buffer holds of it.
func (c *conn) advance() error {
	if c.last {
		return io.EOF
	}
	if c.body > 0 {
		n, err := c.raw.Discard(int(min(c.body, lingerBytes)))
		c.body -= int64(n)
		return err
	}
	fragment, err := c.raw.ReadSlice('\n')
	if len(fragment) > 0 {
		if !c.busy {
			c.head, c.busy = head{keep: c.keep, out: &c.out, line: c.head.line, held: c.head.held}, true
		}
		if c.head.take(fragment) {
			c.body, c.last = c.head.length, c.head.last
			c.unread.Store(c.head.unread)
			c.head.line, c.head.held = kept(c.head.line), kept(c.head.held)
			c.busy = false
		}
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil // the rest of the line comes next
	}
	return err
}

// kept is a buffer for the next head, unless it is large: a connection that waits for its next request holds no memory of a
// great one.
func kept(buffer []byte) []byte {
	if cap(buffer) > rawBuffer {
		return nil
	}
	return buffer[:0]
}

// CloseWrite ends this direction of the connection, where it has one.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close ends the connection. One that was closed over a body under way would be reset, and the answer lost with it.
func (c *conn) Close() error {
	if c.unread.Swap(false) && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(c.lingers)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // however it ends, the connection is closed
	}
	return c.Conn.Close()
}
