package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	// streamKept is how many entries a stream of changes has room for: a burst fills it within a second.
	streamKept = 25
	// scanned is how many keys a step of a SCAN gives.
	scanned = 4
)

// stream is a delta stream in Redis.
type stream struct {
	entries []entryOfStream
	expires traffic.Time // 0: never
}

type entryOfStream struct {
	redis.XMessage
	at   traffic.Time
	kept *judge.Kept // what it is about
}

func (k *keyspace) stream(key string) *stream {
	x := k.streams[key]
	if x == nil {
		x = &stream{}
		k.streams[key] = x
	}
	if x.expires != 0 && x.expires <= now() {
		x.entries, x.expires = nil, 0
	}
	return x
}

// append is XADD. Beyond its bound a stream loses its oldest entries, read or not; that of the modes has room for all.
func (k *keyspace) append(key, id string, fields []string) {
	values := map[string]any{}
	for i := 0; i+1 < len(fields); i += 2 {
		values[fields[i]] = fields[i+1]
	}
	x := k.stream(key)
	x.entries = append(x.entries, entryOfStream{redis.XMessage{ID: id, Values: values}, now(), k.tell(values)})
	if over := len(x.entries) - streamKept; over > 0 && key != k.names.Stream("modes") {
		k.lose(x.entries[:over])
		x.entries = x.entries[over:]
	}
	close(k.grown)
	k.grown = make(chan struct{})
}

// tell notes what gates are told.
func (k *keyspace) tell(values map[string]any) *judge.Kept {
	text := func(name string) string { s, _ := values[name].(string); return s }
	switch text("op") {
	case "mode":
		var m rules.ModeState
		if err := json.Unmarshal([]byte(text("value")), &m); err != nil {
			k.w.say("a delta stream says %v: %v", values, err)
		}
		k.modes[m.Rule] = judge.Mode{From: int64(now()), Rule: m.Rule, Generation: m.Generation, Blocks: m.Mode == rules.ModeBlock}
	case "block", "release":
		var v struct {
			Generation      int64
			Until, Released traffic.Time
		}
		if err := json.Unmarshal([]byte(text("value")), &v); err != nil {
			k.w.say("a delta stream says %v: %v", values, err)
		}
		kept := k.keep(text("identity"), text("rule"))
		kept.Told = judge.Told{At: int64(now()), Generation: v.Generation, Until: int64(v.Until), Released: int64(v.Released)}
		if k.sinceFailover() < judge.Acts+1_000_000 {
			kept.Told.Lost = true // its number may be one that gates have seen: they find out when they compare the newest
		}
		return kept
	}
	return nil
}

// keep is what is known of a block.
func (k *keyspace) keep(subject, rule string) *judge.Kept {
	name := judge.Name(subject, rule)
	if k.kept[name] == nil {
		k.kept[name] = &judge.Kept{Rule: rule}
		k.about[subject] = append(k.about[subject], k.kept[name])
		k.subjects = append(k.subjects, subject)
		clear(k.asked) // it may be one more for some of them
	}
	return k.kept[name]
}

// lose notes which entries are gone before a gate had to have read them.
func (k *keyspace) lose(entries []entryOfStream) {
	for _, e := range entries {
		if e.kept != nil && int64(now().Sub(e.at).Microseconds()) <= judge.Acts {
			k.lost = now()
			k.w.seen.lostDeltas++
			if e.kept.Told.At == int64(e.at) {
				e.kept.Told.Lost = true
			}
		}
	}
}

func (x *stream) trimBelow(id string) {
	at := slices.IndexFunc(x.entries, func(e entryOfStream) bool { return !laterID(id, e.ID) })
	if at < 0 {
		at = len(x.entries)
	}
	x.entries = x.entries[at:]
}

// laterID reports whether a comes after b, as Redis compares ids.
func laterID(a, b string) bool {
	part := func(id string) (uint64, uint64) {
		first, second, _ := strings.Cut(id, "-")
		x, err := strconv.ParseUint(first, 10, 64)
		if err != nil {
			panic(err) // ids are made by scripts
		}
		y, err := strconv.ParseUint(second, 10, 64)
		if err != nil {
			panic(err)
		}
		return x, y
	}
	a1, a2 := part(a)
	b1, b2 := part(b)
	return a1 > b1 || a1 == b1 && a2 > b2
}

// after reads streams as XREAD does.
func (k *keyspace) after(keys, ids []string, count int) []redis.XStream {
	var out []redis.XStream
	for i, key := range keys {
		var found []redis.XMessage
		for _, e := range k.stream(key).entries {
			if len(found) < count && laterID(e.ID, ids[i]) {
				found = append(found, e.XMessage)
			}
		}
		if len(found) > 0 {
			out = append(out, redis.XStream{Stream: key, Messages: found})
		}
	}
	return out
}

// scan is a step of SCAN. Keys that stand all the time are found.
func (k *keyspace) scan(cursor, pattern string) (keys []string, next uint64, err error) {
	at, err := strconv.Atoi(cursor)
	if err != nil || at > len(k.scans) {
		return nil, 0, fmt.Errorf("ERR invalid cursor %s", cursor)
	}
	if at == 0 {
		for key := range k.strings {
			if _, stands := k.get(key); stands && strings.HasPrefix(key, strings.TrimSuffix(pattern, "*")) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		k.scans = append(k.scans, keys)
		at = len(k.scans)
	}
	left := k.scans[at-1]
	n := min(scanned, len(left))
	k.scans[at-1] = left[n:]
	if n == len(left) {
		return left[:n], 0, nil
	}
	return left[:n], uint64(at), nil
}

// failover loses what the delta streams were given last, none of it as old as the newest change of a mode: the hash of the
// modes lies on the same node.
func (k *keyspace) failover(back time.Duration) (lost bool) {
	since := now().Add(-back)
	for _, m := range k.modes {
		since = max(since, traffic.Time(m.From))
	}
	for name := range k.sets[k.names.Streams()] {
		x := k.stream(k.names.Stream(name))
		n := len(x.entries)
		for n > 0 && x.entries[n-1].at > since {
			n--
		}
		if name == "modes" || n == len(x.entries) || n == 0 {
			continue // without a last entry the numbers would begin anew
		}
		k.lose(x.entries[n:])
		x.entries = x.entries[:n]
		k.strings[k.names.Last(name)] = stored{text: x.entries[n-1].ID}
		k.failed, k.lost, lost = now(), now(), true
		k.w.seen.failovers++
	}
	return lost
}

func (k *keyspace) sinceFailover() int64 { return int64(now()) - int64(k.failed) }
