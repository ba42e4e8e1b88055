package loadgen

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
)

// TruthVersion is the format of the truth: JSON lines, a Header first, then what became of each chunk, an End last.
const TruthVersion = 1

// Header says what load it was. With it the events can be made again.
type Header struct {
	Truth      int          `json:"truth"`     // TruthVersion
	Generator  int          `json:"generator"` // GeneratorVersion
	Started    traffic.Time `json:"started"`
	Parameters Settings     `json:"parameters"`

	// Of a load that was sent to an installation's live stream; empty for one that was written to a file.
	Namespace  string     `json:"namespace,omitempty"`
	Partitions int        `json:"partitions,omitempty"` // of requests
	Routing    int64      `json:"routing,omitempty"`    // routing version at the start
	Rules      []RuleUsed `json:"rules,omitempty"`      // its rules
}

// Live reports whether the load was sent to a live stream.
func (h *Header) Live() bool { return h.Namespace != "" }

// RuleUsed is a rule that was in force when the load began.
type RuleUsed struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Lineage int    `json:"lineage"`
}

// Sending announces a chunk of events, before it is sent.
type Sending struct {
	Events int    `json:"events"`
	Sum    string `json:"sum"` // FNV-1a, 64 bits, of the events' JSON, in hex
}

// Acked says how many events of the chunk announced last are certainly in the stream, the first ones, and when that was
// known.
type Acked struct {
	Events int          `json:"events"`
	At     traffic.Time `json:"at"`
}

// End closes the truth of a load that came to an end, or was stopped.
type End struct {
	At       traffic.Time `json:"at"`
	Events   int64        `json:"events"`            // acknowledged
	Complete bool         `json:"complete"`          // false: stopped, or failed
	Offsets  []int64      `json:"offsets,omitempty"` // end of each partition of requests after the last event
}

// record is one line after the header.
type record struct {
	Sending *Sending `json:"sending,omitempty"`
	Acked   *Acked   `json:"acked,omitempty"`
	End     *End     `json:"end,omitempty"`
}

// TruthWriter writes the truth while the load runs: each line is given to the file before the load goes on, so that a
// load that is killed leaves all that is true of it.
type TruthWriter struct{ enc *json.Encoder }

// NewTruthWriter begins a truth with its header. Version numbers are filled in.
func NewTruthWriter(to io.Writer, h Header) (*TruthWriter, error) {
	w := &TruthWriter{enc: json.NewEncoder(to)}
	w.enc.SetEscapeHTML(false)
	h.Truth, h.Generator = TruthVersion, GeneratorVersion
	return w, w.write(h)
}

func (w *TruthWriter) write(v any) error {
	if err := w.enc.Encode(v); err != nil {
		return fmt.Errorf("writing the truth: %w", err)
	}
	return nil
}

// Sending announces a chunk.
func (w *TruthWriter) Sending(s Sending) error { return w.write(record{Sending: &s}) }

// Acked says what became of it.
func (w *TruthWriter) Acked(a Acked) error { return w.write(record{Acked: &a}) }

// End closes the truth.
func (w *TruthWriter) End(e End) error { return w.write(record{End: &e}) }

// Truth is what a truth file says.
type Truth struct {
	Header Header
	Chunks []Chunk
	End    *End // nil: the load was killed
}

// Chunk is a chunk and what became of it. Without an answer none of it is certain.
type Chunk struct {
	Sending
	Acked Acked
}

// maxTruthLine is more than a header with ten thousand rules has.
const maxTruthLine = 4 << 20

// ReadTruth reads a truth; name is the file's, for errors. A last line that ends early is left out: whoever wrote it was
// killed.
func ReadTruth(name string, from io.Reader) (*Truth, error) {
	r := bufio.NewReader(from)
	t := &Truth{}
	answered := true
	for number := 1; ; number++ {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) {
			if number == 1 {
				return nil, fmt.Errorf("%s: no truth in it; allowed: a file that weir loadgen --truth wrote", name)
			}
			return t, nil
		}
		if err == nil && number == 1 {
			err = t.readHeader(line)
		} else if err == nil {
			answered, err = t.readRecord(line, answered)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
}

// readLine gives a line that ends with a line feed, or io.EOF.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxTruthLine {
			return nil, fmt.Errorf("got a line of more than %d bytes", maxTruthLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func (t *Truth) readHeader(line []byte) error {
	h := &t.Header
	if err := json.Unmarshal(line, h); err != nil {
		return fmt.Errorf("not the header of a truth: %w", err)
	}
	if h.Truth != TruthVersion || h.Generator != GeneratorVersion {
		return fmt.Errorf("got truth %d of generator %d; allowed: truth %d of generator %d: use the weir that wrote it",
			h.Truth, h.Generator, TruthVersion, GeneratorVersion)
	}
	if err := h.Parameters.Validate(); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	if h.Live() && h.Partitions < 1 {
		return fmt.Errorf("partitions: got %d; allowed: 1 and more", h.Partitions)
	}
	return nil
}

func (t *Truth) readRecord(line []byte, answered bool) (bool, error) {
	var r record
	d := json.NewDecoder(strings.NewReader(string(line)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return answered, err
	}
	switch {
	case t.End != nil:
		return answered, errors.New("got a line after the end")
	case r.Sending != nil && r.Acked == nil && r.End == nil:
		if r.Sending.Events < 1 || r.Sending.Events > maxChunk {
			return answered, fmt.Errorf("sending: got %d events; allowed: 1 to %d", r.Sending.Events, maxChunk)
		}
		t.Chunks = append(t.Chunks, Chunk{Sending: *r.Sending})
		return false, nil
	case r.Acked != nil && r.Sending == nil && r.End == nil:
		if answered {
			return answered, errors.New("acked: nothing was announced")
		}
		c := &t.Chunks[len(t.Chunks)-1]
		if r.Acked.Events < 0 || r.Acked.Events > c.Events {
			return answered, fmt.Errorf("acked: got %d events; allowed: 0 to the %d that were announced", r.Acked.Events, c.Events)
		}
		c.Acked = *r.Acked
		return true, nil
	case r.End != nil && r.Sending == nil && r.Acked == nil:
		t.End = r.End
		return answered, nil
	}
	return answered, errors.New("allowed: one of sending, acked and end")
}

// Fate is what became of an event.
type Fate struct {
	Certain bool         // it is in the stream; otherwise it may be, once
	At      traffic.Time // when that was known
}

// Each makes the load's events again, in the order of sending, with what became of each. It fails where they are not
// those that were sent.
func (t *Truth) Each(visit func(e *Event, f Fate)) error {
	st := NewStream(t.Header.Parameters)
	var e Event
	var value []byte
	for n := range t.Chunks {
		c := &t.Chunks[n]
		sum := fnv.New64a()
		for k := range c.Events {
			if !st.Next(&e) {
				return fmt.Errorf("chunk %d: the load of these parameters is over before it", n+1)
			}
			value = st.Append(value[:0], &e, t.Header.Started)
			_, _ = sum.Write(value) // a hash takes everything
			visit(&e, Fate{Certain: k < c.Acked.Events, At: c.Acked.At})
		}
		if got := fmt.Sprintf("%016x", sum.Sum64()); got != c.Sum {
			return fmt.Errorf("chunk %d: its events have the sum %s, those that were sent had %s: "+
				"the truth was changed, or this weir makes other events than the one that wrote it", n+1, got, c.Sum)
		}
	}
	return nil
}

// LastAck is when the last event was known to be in the stream; the start where none was.
func (t *Truth) LastAck() traffic.Time {
	last := t.Header.Started
	for n := range t.Chunks {
		last = max(last, t.Chunks[n].Acked.At)
	}
	return last
}

// Earliest is before every event's own time.
func (t *Truth) Earliest() traffic.Time {
	return t.Header.Started.Add(-t.Header.Parameters.Disorder - time.Microsecond)
}
