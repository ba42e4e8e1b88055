package console

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// serveStream sends each section as a Server-Sent Event when it changes, the pulse once a second (WHATWG HTML, Server-sent
// events). It ends when the client leaves, when the client does not read, and when the console stops.
func (c *Console) serveStream(w http.ResponseWriter, r *http.Request) {
	v, err := c.hub.join()
	if err != nil {
		c.refuse(w, err)
		return
	}
	defer c.hub.leave(v)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	out := http.NewResponseController(w)
	next := []byte("retry: 1000\n\n")
	for {
		// A server's own WriteTimeout is meant for short answers, so the deadline is set anew for each frame.
		_ = out.SetWriteDeadline(time.Now().Add(c.slowAfter)) // a writer without deadlines is a test's
		if _, err = w.Write(next); err == nil {
			err = out.Flush()
		}
		if err != nil {
			c.lost(err)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-c.hub.done:
			return
		case <-v.ready:
		}
		next = events(c.hub.take(v))
	}
}

// lost counts a viewer that was dropped because it did not read. One that closed its connection just left.
func (c *Console) lost(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.metrics.dropped.Inc()
	}
}

// events writes frames as events, in the order of the page. A frame is JSON and so has no line break.
func events(frames map[string][]byte) []byte {
	var out []byte
	for _, section := range sections() {
		if frame, ok := frames[section]; ok {
			out = fmt.Appendf(out, "event: %s\ndata: %s\n\n", section, frame)
		}
	}
	return out
}
