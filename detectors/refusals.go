package detectors

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// refusalSums are the sums of the requests that gates refused, by rule, block and minute of event time, in one minute
// of append time: a sum is over when that minute is, and its hit needs no correction. There are at most maxRefusalSums,
// beside one of each rule and minute for blocks beyond them.
type refusalSums struct {
	appended traffic.Time // the minute of all sums; of no meaning where there are none
	sums     map[refusalKey]*refusalSum
}

type refusalKey struct {
	rule, block string
	minute      traffic.Time
}

type refusalSum struct {
	count, known int64
	latest       traffic.Time // newest event time
	source       int          // of the first event added, for the id
	offset       int64
}

const (
	maxRefusalSums = 10_000
	// mostRefusalSums bounds those of rules, too: whoever writes the log may make up any number of them.
	mostRefusalSums = maxRefusalSums + 10_000
)

func newRefusalSums() refusalSums { return refusalSums{sums: map[refusalKey]*refusalSum{}} }

// add sums up a request that a gate refused. appended is the minute of append time.
func (u *refusalSums) add(k *Keyed, appended traffic.Time) {
	u.appended = appended
	minute := k.Time - (k.Time%minute+minute)%minute
	key := refusalKey{k.Verdict.Rule, k.Verdict.Block, minute}
	sum := u.sums[key]
	if sum == nil && len(u.sums) >= maxRefusalSums {
		key.block = ""
		sum = u.sums[key]
	}
	if sum == nil && len(u.sums) >= mostRefusalSums {
		key.rule = ""
		sum = u.sums[key]
	}
	if sum == nil {
		key.rule, key.block = strings.Clone(key.rule), strings.Clone(key.block) // those of the record go with it
		sum = &refusalSum{source: k.Source, offset: k.Offset, latest: k.Time}
		u.sums[key] = sum
	}
	sum.count++
	if k.Good == KnownGood {
		sum.known++
	}
	sum.latest = max(sum.latest, k.Time)
}

// some reports whether there are sums. Without any the minute of append time need not be known, nor kept.
func (u *refusalSums) some() bool { return len(u.sums) > 0 }

// due reports whether the sums that there are can be sent: their minute of append time is over, or the stream has
// ended.
func (u *refusalSums) due(appended traffic.Time, ended bool) bool {
	return appended != u.appended || ended
}

// ordered are the keys of all sums in the order in which they are sent and written.
func (u *refusalSums) ordered() []refusalKey {
	return slices.SortedFunc(maps.Keys(u.sums), func(a, b refusalKey) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.block, b.block), cmp.Compare(a.minute, b.minute))
	})
}

// refusals appends the sums, and forgets them.
func (r *report) refusals(u *refusalSums, generation int64, seen traffic.Time, out []Hit) []Hit {
	for _, key := range u.ordered() {
		sum := u.sums[key]
		h := Hit{
			Format: HitFormat, Kind: KindRefused, Rule: key.rule, Block: key.block, Count: sum.count, Known: sum.known,
			First: key.minute, Last: sum.latest, Seen: seen,
			Generation: generation, Source: sum.source, Offset: sum.offset, Keyed: r.keyed,
		}
		h.ID = r.secret.hitID(&h, 0)
		out = append(out, h)
	}
	clear(u.sums)
	return out
}

func (u *refusalSums) append(dst []byte) []byte {
	dst = binary.AppendUvarint(binary.AppendVarint(dst, int64(u.appended)), uint64(len(u.sums)))
	for _, key := range u.ordered() {
		sum := u.sums[key]
		dst = binary.AppendVarint(appendText(appendText(dst, key.rule), key.block), int64(key.minute))
		for _, n := range []int64{sum.count, sum.known, int64(sum.source), sum.offset} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		dst = binary.AppendVarint(dst, int64(sum.latest))
	}
	return dst
}

func (u *refusalSums) restore(r *reader) {
	u.appended = traffic.Time(r.varint())
	for n := r.length(8, "sums of refused requests"); n > 0 && r.err == nil; n-- {
		key := refusalKey{string(r.bytes()), string(r.bytes()), traffic.Time(r.varint())}
		u.sums[key] = &refusalSum{
			count: r.count(), known: r.count(), source: int(r.upTo(MaxSources, "source partition")), offset: r.count(),
			latest: traffic.Time(r.varint()),
		}
	}
}
