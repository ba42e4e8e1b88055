package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// modelNodes is how many masters the modelled cluster has; the first holds the streams and the modes.
const modelNodes = 3

// modelSlots are the slots in which subjects lie. All others are the first node's.
const modelSlots = 4

// modelSubjects are few, so that what happens to one happens soon to the same one again.
const modelSubjects = 6

// modelCount is how many entries of a stream one answer has at most.
const modelCount = 3

// modelKey is what stands under the names of one block.
type modelKey struct {
	block *blocklist.Block
	tomb  *blocklist.Tombstone
	node  int // on which it lies: while its slot moves that is either of two
}

type modelStream struct {
	entries []redis.XMessage
	last    string
}

// modelRedis is a cluster in a few maps, and what ENFORCE, the reconciler and operators do to it. Whatever a test wants to
// happen while keys are read happens in between.
type modelRedis struct {
	keys    map[blocklist.Name]modelKey
	owner   [modelSlots]int
	moving  [modelSlots]int // to which node, -1: to none
	away    [modelNodes]bool
	silent  bool // of deltas alone
	streams map[string]*modelStream
	modes   map[string]rules.ModeState
	marker  bool

	truth   map[blocklist.Name]modelKey // what history knows
	promote map[string]rules.ModeState
	pending []redis.XMessage // of ENFORCE: keys are written, their deltas not yet
	lost    bool             // Redis lacks what history knows, and the reconciler has not put it back
	told    map[string]bool  // values of blocks and tombstones that the follower was given since nothing was lost
	number  uint64
	token   int
	between func()
}

var errAway = errors.New("away")

func newModelRedis() *modelRedis {
	m := &modelRedis{
		keys: map[blocklist.Name]modelKey{}, streams: map[string]*modelStream{}, modes: map[string]rules.ModeState{}, marker: true,
		truth: map[blocklist.Name]modelKey{}, promote: map[string]rules.ModeState{}, number: 1000, told: map[string]bool{}, between: func() {},
	}
	for i := range m.moving {
		m.owner[i], m.moving[i] = i%modelNodes, -1
	}
	return m
}

// subject is in slot i%modelSlots.
func modelSubject(i int) traffic.Subject { return traffic.Subject("device=d" + strconv.Itoa(i)) }

func modelSlot(h blocklist.Name) int {
	i, err := strconv.Atoi(string(h.Subject[len("device=d"):]))
	if err != nil {
		panic(err)
	}
	return i % modelSlots
}

// append writes an entry as luaAppend does.
func (m *modelRedis) append(stream string, fields map[string]any) {
	s := m.streams[stream]
	if s == nil {
		s = &modelStream{}
		m.streams[stream] = s
	}
	n := m.number
	if s.last != "" {
		n = number(s.last)
	}
	m.token++
	id := fmt.Sprintf("%d-%d", n+1, m.token)
	fields = maps.Clone(fields)
	fields["prev"] = s.last
	s.entries, s.last = append(s.entries, redis.XMessage{ID: id, Values: fields}), id
}

// put stores a key where its slot is, in Redis and in history.
func (m *modelRedis) put(h blocklist.Name, k modelKey) {
	k.node = m.nodeFor(h)
	m.keys[h], m.truth[h] = k, k
}

// nodeFor is where a new key of a slot is written: while the slot moves, where it moves to.
func (m *modelRedis) nodeFor(h blocklist.Name) int {
	slot := modelSlot(h)
	if k, stands := m.keys[h]; stands {
		return k.node
	}
	if m.moving[slot] >= 0 {
		return m.moving[slot]
	}
	return m.owner[slot]
}

// block does what luaRaise does; the delta waits in pending.
func (m *modelRedis) block(h blocklist.Name, b blocklist.Block) {
	k := m.truth[h]
	if k.tomb != nil && k.tomb.Covers(b.Hit, b.Since) {
		return
	}
	if old := k.block; old != nil && (old.Generation > b.Generation || old.Generation == b.Generation && old.Until >= b.Until) {
		return
	}
	k.block = &b
	m.put(h, k)
	m.pending = append(m.pending, redis.XMessage{Values: map[string]any{
		"op": blocklist.OpBlock, "identity": string(h.Subject), "rule": h.Rule, "value": blocktest.JSONText(&b)}})
}

func (m *modelRedis) release(h blocklist.Name, t blocklist.Tombstone) {
	k := m.truth[h]
	if k.tomb != nil && k.tomb.Released >= t.Released {
		return
	}
	k.tomb = &t
	if k.block != nil && t.Covers(k.block.Hit, k.block.Since) {
		k.block = nil
	}
	m.put(h, k)
	m.pending = append(m.pending, redis.XMessage{Values: map[string]any{
		"op": blocklist.OpRelease, "identity": string(h.Subject), "rule": h.Rule, "value": blocktest.JSONText(&t)}})
}

func (m *modelRedis) tell() {
	for _, x := range m.pending {
		m.append("0", x.Values)
	}
	m.pending = nil
}

func (m *modelRedis) setMode(s rules.ModeState) {
	m.modes[s.Rule], m.promote[s.Rule] = s, s
	m.append(blocklist.StreamModes, map[string]any{"op": blocklist.OpMode, "rule": s.Rule, "value": modeText(&s)})
}

func modeText(s *rules.ModeState) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// reconcile puts back what history knows, and tells gates to load before it sets the marker.
func (m *modelRedis) reconcile() {
	for h, k := range m.truth {
		k.node = m.nodeFor(h)
		m.keys[h] = k
	}
	for _, s := range m.promote {
		if !equalModes(s, m.modes[s.Rule]) {
			m.setMode(s)
		}
	}
	m.append(blocklist.StreamReconcile, map[string]any{"op": blocklist.OpReload})
	m.marker, m.lost = true, false
	clear(m.told)
}

func equalModes(a, b rules.ModeState) bool { return a.Generation == b.Generation && a.Mode == b.Mode }

// failover loses the last changes of a node: some keys of it, and of the first one the ends of streams.
func (m *modelRedis) failover(n, keys, entries int) {
	for h, k := range m.keys {
		if k.node == n && keys > 0 {
			delete(m.keys, h)
			keys--
		}
	}
	m.lost = true
	if n != 0 {
		return
	}
	m.pending = nil // ENFORCE's batch fails and is read again; the reconciler tells of it here
	for _, s := range m.streams {
		cut := min(entries, len(s.entries))
		s.entries = s.entries[:len(s.entries)-cut]
		if len(s.entries) > 0 {
			s.last = s.entries[len(s.entries)-1].ID
		}
	}
}

func (m *modelRedis) flush() {
	clear(m.keys)
	clear(m.streams)
	clear(m.modes)
	m.pending, m.marker, m.lost = nil, false, true
	m.number += 1_000_000
}

// move takes a step in the migration of a slot: it begins, a key moves, it ends.
func (m *modelRedis) move(slot, to int) {
	if m.moving[slot] < 0 {
		if m.owner[slot] != to {
			m.moving[slot] = to
		}
		return
	}
	for h, k := range m.keys {
		if modelSlot(h) == slot && k.node != m.moving[slot] {
			k.node = m.moving[slot]
			m.keys[h] = k
			return
		}
	}
	m.owner[slot], m.moving[slot] = m.moving[slot], -1
}

func (m *modelRedis) calm() {
	m.away = [modelNodes]bool{}
	for slot := range m.moving {
		for m.moving[slot] >= 0 {
			m.move(slot, 0)
		}
	}
	m.tell()
	m.reconcile()
}

var (
	_ source = (*modelRedis)(nil)
	_ node   = modelNode{}
)

func (m *modelRedis) Cursor(context.Context) (blocklist.Cursor, error) {
	if m.away[0] {
		return nil, errAway
	}
	at := blocklist.Cursor{blocklist.StreamModes: ""}
	for name, s := range m.streams {
		at[name] = s.last
	}
	return at, nil
}

func (m *modelRedis) Deltas(_ context.Context, after blocklist.Cursor, _ time.Duration) ([]blocklist.Streamed, error) {
	if m.away[0] || m.silent {
		return nil, errAway
	}
	var out []blocklist.Streamed
	for name, id := range after {
		s := m.streams[name]
		if s == nil {
			continue
		}
		i := slices.IndexFunc(s.entries, func(x redis.XMessage) bool { return idAfter(x.ID, id) })
		if i >= 0 {
			some := s.entries[i:min(i+modelCount, len(s.entries))]
			out = append(out, blocklist.Streamed{Stream: name, Entries: some})
			for _, x := range some {
				if value, ok := x.Values["value"].(string); ok {
					m.told[value] = true
				}
			}
		}
	}
	return out, nil
}

func idAfter(a, b string) bool {
	if number(a) != number(b) {
		return number(a) > number(b)
	}
	return false // tokens differ where a stretch was written anew: Redis compares them as numbers, so either may come first
}

func (m *modelRedis) ModeTexts(context.Context) (map[string]string, error) {
	if m.away[0] {
		return nil, errAway
	}
	texts := map[string]string{}
	for rule, state := range m.modes {
		texts[rule] = modeText(&state)
	}
	return texts, nil
}

func (m *modelRedis) Never(context.Context) (blocklist.NeverEntries, error) {
	return blocklist.NeverEntries{}, nil
}

func (m *modelRedis) Owner(context.Context) (blocklist.Owner, error) { return blocklist.Owner{}, nil }

func (m *modelRedis) HasMarker(context.Context) (bool, error) { return m.marker, nil }

func (m *modelRedis) EachNode(ctx context.Context, visit func(ctx context.Context, n node)) error {
	for i := range modelNodes {
		visit(ctx, modelNode{m, i})
		m.between()
	}
	return nil
}

type modelNode struct {
	m *modelRedis
	n int
}

func (n modelNode) slots(context.Context) (slotSet, error) {
	if n.m.away[n.n] {
		return slotSet{}, errAway
	}
	var s slotSet
	if n.n == 0 {
		s = allSlots()
		for slot := range modelSlots {
			one := slotSet{}
			one.add(slot)
			s.subtract(&one)
		}
	}
	for slot, owner := range n.m.owner {
		if owner == n.n && n.m.moving[slot] < 0 {
			s.add(slot)
		}
	}
	return s, nil
}

func (n modelNode) Scan(_ context.Context, take func(blocklist.Name, bool, string), _ func()) error {
	for _, tombstones := range []bool{true, false} {
		for i := range modelSubjects {
			for _, rule := range []string{"r1", "r2"} {
				if n.m.away[n.n] {
					return errAway
				}
				h := blocklist.Name{Subject: modelSubject(i), Rule: rule}
				k := n.m.keys[h]
				switch {
				case k.node != n.n:
				case tombstones && k.tomb != nil:
					take(h, true, blocktest.JSONText(k.tomb))
				case !tombstones && k.block != nil:
					take(h, false, blocktest.JSONText(k.block))
				}
				n.m.between()
			}
		}
	}
	return nil
}

// newModelReplica is a Replica of m whose parts the test moves by hand.
func newModelReplica(t interface{ Fatal(...any) }, m *modelRedis) *Replica {
	r, err := New(Options{
		Store: &blocklist.Store{}, Clock: func() traffic.Time { return 0 }, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.from = m
	return r
}
