package blocklist

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Names of delta streams that are no partition's. A partition's stream is named by its number.
const (
	StreamModes     = "modes"
	StreamReconcile = "reconcile"
)

// What an entry of a delta stream says.
const (
	OpBlock   = "block"   // a block was written or raised; value: Block
	OpRelease = "release" // a tombstone was put; value: Tombstone
	OpMode    = "mode"    // a rule's mode changed; value: rules.ModeState
	OpNever   = "never"   // never-block entries have changed; value: NeverEntries
	OpStream  = "stream"  // a stream was written to for the first time; value: its name
	OpReload  = "reload"  // so much has changed that readers load everything anew
)

// deltasPerCall bounds one script call, which holds up its node while it runs.
const deltasPerCall = 200

// Delta is one change of a block, as it is appended.
type Delta struct {
	Op string
	Name
	Value string
}

// BlockDelta says that b was written or raised under the name h.
func BlockDelta(h Name, b *Block) Delta { return Delta{Op: OpBlock, Name: h, Value: encode(b)} }

// ReleaseDelta says that t was put under the name h.
func ReleaseDelta(h Name, t *Tombstone) Delta { return Delta{Op: OpRelease, Name: h, Value: encode(t)} }

// ReloadDelta says that so much has changed that readers load everything anew.
func ReloadDelta() Delta { return Delta{Op: OpReload} }

// numbering gives the arguments that luaAppend needs, and the stream's name.
func numbering(base traffic.Time, stream string, length int) ([]any, error) {
	var token [4]byte
	if _, err := rand.Read(token[:]); err != nil {
		return nil, fmt.Errorf("delta token: %w", err)
	}
	return []any{int64(base), length, strconv.FormatUint(uint64(binary.BigEndian.Uint32(token[:])), 10), stream}, nil
}

// Change is one entry of a delta stream, decoded.
type Change struct {
	Op        string
	Subject   traffic.Subject
	Block     Block
	Tombstone Tombstone
	Mode      rules.ModeState
	ModeText  string // of Mode, as it stands there
	Never     NeverEntries
	Stream    string // the name of a stream that was written to for the first time
}

// DecodeChange reads the fields of an entry. An op that this build does not know is an error; the reader skips it.
func DecodeChange(fields map[string]any) (Change, error) {
	text := func(name string) string {
		v, _ := fields[name].(string)
		return v
	}
	c := Change{Op: text("op"), Subject: traffic.Subject(text("identity")).Stored()}
	rule, value := text("rule"), text("value")
	var err error
	var inside string
	switch c.Op {
	case OpBlock:
		c.Block, err = DecodeBlock([]byte(value))
		inside = c.Block.Rule
	case OpRelease:
		c.Tombstone, err = DecodeTombstone([]byte(value))
		inside = c.Tombstone.Rule
	case OpMode:
		c.ModeText = value
		c.Mode, err = DecodeMode(rule, value)
		return c, err
	case OpNever:
		c.Never, err = decodeNever(value)
		return c, err
	case OpStream:
		c.Stream = value
		return c, nil
	case OpReload:
		return c, nil
	default:
		return c, fmt.Errorf("op %q, known: block, release, mode, never, stream, reload", c.Op)
	}
	if err != nil {
		return c, err
	}
	if inside != rule {
		return c, fmt.Errorf("op %s of rule %q with a value of rule %q", c.Op, rule, inside)
	}
	return c, Name{Subject: c.Subject, Rule: rule}.Check()
}

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
