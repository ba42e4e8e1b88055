package kafka

import (
	"sync/atomic"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// fetchRoom is what the answers of one Fetch may hold together, unpacked. A batch of a megabyte may unpack to hundreds, so
// what came over the wire says nothing; and since nobody knows how much before it is unpacked, every batch is asked for
// room before, and the last one may pass the bound. A nil room has no bound.
type fetchRoom struct{ left atomic.Int64 }

func newFetchRoom(positions []ingest.Position) *fetchRoom {
	room := &fetchRoom{}
	for _, p := range positions {
		if p.Room <= 0 {
			return nil
		}
		room.left.Add(int64(p.Room))
	}
	return room
}

// open reports whether anything more may be unpacked.
func (r *fetchRoom) open() bool { return r == nil || r.left.Load() > 0 }

// admits reports whether another batch may be unpacked at a position whose answer holds so many bytes already.
func (r *fetchRoom) admits(at ingest.Position, held int) bool {
	return r == nil || held < at.Room && r.open()
}

// take gives the messages of a batch their room, and says how much that is.
func (r *fetchRoom) take(messages []traffic.Message) int {
	if r == nil {
		return 0
	}
	bytes := 0
	for i := range messages {
		bytes += ingest.HeldBytes(&messages[i])
	}
	r.left.Add(-int64(bytes))
	return bytes
}
