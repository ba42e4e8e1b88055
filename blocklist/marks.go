package blocklist

import (
	"sync"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Streams are trimmed by age: a reader that was away for less misses nothing, however much has changed meanwhile.
const (
	// deltaAge is how long an entry is kept at least, but for streamLength.
	deltaAge = 2 * time.Minute
	// streamLength bounds a stream's memory, not its age: 100,000 entries are some 40 MB of Redis. A stream has to take
	// more than 800 changes a second for two minutes before it counts.
	streamLength = 100_000
	// modesLength is how many entries the stream of modes keeps. It is not trimmed by age: they are few, and never so old
	// that a gate which was away would not rather read them.
	modesLength = 10_000

	markEvery = deltaAge / 8
)

// marks remembers which entry this process appended when, since an id does not tell. A process that has just begun trims
// nothing for deltaAge: what others appended before its first mark is at least as old as that.
type marks struct {
	mu      sync.Mutex
	streams map[string][]mark // oldest first
}

type mark struct {
	at traffic.Time
	id string
}

func newMarks() *marks { return &marks{streams: map[string][]mark{}} }

// old is the id before which all entries of a stream are older than deltaAge; "" when that is not known of any.
func (m *marks) old(stream string, now traffic.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := ""
	list := m.streams[stream]
	for len(list) > 0 && now.Sub(list[0].at) >= deltaAge {
		id, list = list[0].id, list[1:]
	}
	m.streams[stream] = list
	return id
}

// note remembers that an entry was appended, unless another one was shortly before.
func (m *marks) note(stream string, now traffic.Time, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.streams[stream]
	if n := len(list); n == 0 || now.Sub(list[n-1].at) >= markEvery {
		m.streams[stream] = append(list, mark{now, id})
	}
}
