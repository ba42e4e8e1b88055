// Package serving is HTTP servers that nobody can fill. Each head, body and answer has a time, a body that nobody reads
// ends its connection, and connections are bounded by address and in all.
package serving

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
)

// Times of a request. They are those of one that comes and goes slowly, not of what is done between.
const (
	headWithin   = 5 * time.Second
	bodyWithin   = 20 * time.Second // who expects more than a form says so by the request's controller
	answerWithin = 30 * time.Second // each write
	idleFor      = 2 * time.Minute
	lingers      = time.Second // how long a body that nobody wants is read, so that its sender sees the answer
	maxHead      = 64 << 10
)

// Run answers requests until ctx ends, and then lets those under way finish, for a second at most.
func Run(ctx context.Context, l net.Listener, h http.Handler) error {
	return Until(ctx, l, &http.Server{
		Handler: Timed(h), ReadHeaderTimeout: headWithin, IdleTimeout: idleFor, MaxHeaderBytes: maxHead,
		DisableGeneralOptionsHandler: true, // it would wait for a body
		ConnState:                    watchState, ConnContext: withConn,
	})
}

// Until lets server answer requests until ctx ends, and then lets those under way finish, for a second at most.
func Until(ctx context.Context, l net.Listener, server *http.Server) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		_ = server.Close() // connections that are still at it are cut: the process is going away
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Timed gives what h reads and writes its times, and takes no multipart form: none of weir's forms has files, and what
// reads one keeps it on disk.
func Timed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := connOf(r.Context())
		from.owes(nil, time.Time{}) // its head is here
		x := &exchange{ResponseWriter: w, connection: http.NewResponseController(w), body: r.Body, from: from}
		if r.Body != nil && r.Body != http.NoBody {
			x.unread = true
			x.until(time.Now().Add(bodyWithin))
			r.Body = &body{ReadCloser: r.Body, of: x, from: from}
		}
		x.allow()
		defer x.awaitTaken(r)
		defer x.end()
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); strings.HasPrefix(kind, "multipart/") {
			http.Error(x, "multipart bodies are not taken here; allowed: application/json, "+
				"application/x-www-form-urlencoded", http.StatusUnsupportedMediaType)
			return
		}
		h.ServeHTTP(x, r)
	})
}

// exchange is a request and its answer on their connection.
type exchange struct {
	http.ResponseWriter
	connection *http.ResponseController
	body       io.ReadCloser
	from       *conn
	unread     bool // there is a body whose end has not been read
	headed     bool // the answer's head is out
	own        bool // the handler has times of its own for what it writes
}

// until bounds what is read. A connection without deadlines is a test's.
func (x *exchange) until(t time.Time) { _ = x.connection.SetReadDeadline(t) }

// allow bounds what is written next.
func (x *exchange) allow() {
	if !x.own {
		_ = x.connection.SetWriteDeadline(time.Now().Add(answerWithin)) // a connection without deadlines is a test's
	}
}

// SetWriteDeadline lets a handler set the times of what it writes itself.
func (x *exchange) SetWriteDeadline(t time.Time) error {
	x.own = true
	return x.connection.SetWriteDeadline(t)
}

// Unwrap gives http.ResponseController what it looks for.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader writes the answer's head. An answer before the body was read is the last one of its connection.
func (x *exchange) WriteHeader(status int) {
	if status >= http.StatusOK && !x.headed {
		x.headed = true
		if x.unread {
			x.Header().Set("Connection", "close")
		}
		x.allow()
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write writes some of the answer.
func (x *exchange) Write(p []byte) (int, error) {
	if !x.headed {
		x.WriteHeader(http.StatusOK)
	}
	x.allow()
	x.from.owes(x, time.Now())
	defer x.from.owes(x, time.Time{})
	return x.ResponseWriter.Write(p)
}

// end lets net/http close the connection, where the body was not read, without waiting for it.
func (x *exchange) end() {
	if !x.headed && x.unread {
		x.Header().Set("Connection", "close")
	}
	if x.unread {
		x.until(time.Now().Add(lingers))
	}
	x.allow()
}

// awaitTaken notes that what is left of the answer is to be taken. It is when the connection is idle, and over HTTP/2,
// where others may be under way, when the request's context ends.
func (x *exchange) awaitTaken(r *http.Request) {
	if r.ProtoMajor < 2 {
		x.from.owes(nil, time.Now())
		return
	}
	x.from.owes(x, time.Now())
	context.AfterFunc(r.Context(), func() { x.from.owes(x, time.Time{}) })
}

// body is what a request brings.
type body struct {
	io.ReadCloser
	of    *exchange
	from  *conn
	asked time.Time // when it was read first
}

// Read reads some of it. Behind its end no time runs: the next read is net/http's, which looks whether the client is
// there.
func (b *body) Read(p []byte) (int, error) {
	if b.asked.IsZero() {
		b.asked = time.Now()
	}
	b.from.owes(b, b.asked)
	n, err := b.ReadCloser.Read(p)
	b.from.owes(b, time.Time{})
	if errors.Is(err, io.EOF) && b.of.unread {
		b.of.unread = false
		b.of.until(time.Time{})
	}
	return n, err
}
