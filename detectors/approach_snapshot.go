package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// approachWriter writes the events of keys on their way to a limit into a snapshot, some at a time.
type approachWriter struct {
	lost   traffic.Time
	events []*approachEvent
	begun  bool
}

// approachPiece is how many events are written at once.
const approachPiece = 256

// share is a writer of the events as they are now. They do not change, so only the list of them is copied.
func (a *approaches) share() approachWriter {
	w := approachWriter{lost: a.lost, events: make([]*approachEvent, 0, a.live)}
	for _, e := range a.queue {
		if e != nil {
			w.events = append(w.events, e)
		}
	}
	return w
}

// appendNext writes the next events and reports whether those were the last.
func (w *approachWriter) appendNext(dst []byte) (out []byte, whole bool) {
	if !w.begun {
		w.begun = true
		dst = binary.AppendUvarint(binary.AppendVarint(dst, int64(w.lost)), uint64(len(w.events)))
	}
	n := min(approachPiece, len(w.events))
	for _, e := range w.events[:n] {
		dst = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(e.of.key.append(dst), e.of.of), e.rule)
		dst = binary.AppendVarint(binary.AppendVarint(dst, int64(e.time)), int64(e.until))
		dst = appendBytes(dst, e.evidence)
	}
	w.events = w.events[n:]
	return dst, len(w.events) == 0
}

// restore reads what appendNext wrote. Beyond the room, which another budget may have made less, those that came first go.
func (a *approaches) restore(r *reader) {
	a.lost = traffic.Time(r.varint())
	for n := r.length(35, "events of keys on their way to a limit"); n > 0 && r.err == nil; n-- {
		e := &approachEvent{of: approachKey{Fingerprint{r.fixed64(), r.fixed64()}, r.fixed64()}, rule: r.fixed64(), time: traffic.Time(r.varint()), until: traffic.Time(r.varint())}
		e.evidence = append([]byte(nil), r.bytes()...)
		if r.err != nil {
			return
		}
		switch _, _, err := e.read(); {
		case err != nil:
			r.fail("an event of a key on its way to a limit: %w", err)
			return
		case a.keys[e.of][maxApproach-1] != nil:
			r.fail("more than %d events of one key on its way to a limit", maxApproach)
			return
		}
		a.put(e)
		a.makeRoom(traffic.BeforeTime)
	}
}
