package oracle

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Keyed is a record of the keyed log, read from the documented layout of formats 1 to 8.
type Keyed struct {
	Kind          byte // 1 event, 2 tick, 3 loss
	Generation    uint64
	Source        int
	Offset, Prev  int64 // Prev -1: none
	Time          int64
	Progress      int64
	Version       int64
	Rules         []int
	Units         []int64        // what the event adds under each of Rules; none: one
	Tiers         []int          // by which limit it is judged under each of Rules; none: the rule's own
	Extra         map[int]string // values beside the identity, by the routing version's extra fields
	Reached       []int          // rules whose block would refuse the request, and which do not count it
	Beyond        []int          // those of Rules whose block would not refuse it
	Good          int            // 0 not judged, 1 not known to be good, 2 known to be good
	Verdict       [2]string      // rule and block with which a gate refused the request; none: it did not
	IP            netip.Addr
	Device, User  string
	APIKey, Other string
	Idle          bool  // of a tick
	Clock         int64 // of a tick
}

var errShort = errors.New("keyed record ends early")

// ReadKeyed takes a record apart.
func ReadKeyed(b []byte) (Keyed, error) {
	if len(b) < 2 || b[0] < 1 || b[0] > 8 {
		return Keyed{}, errors.New("not a keyed record of formats 1 to 8")
	}
	k := Keyed{Kind: b[1]}
	format := b[0]
	b = b[2:]
	bad := false
	u := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			bad = true
			return 0
		}
		b = b[n:]
		return v
	}
	s := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			bad = true
			return 0
		}
		b = b[n:]
		return v
	}
	text := func() []byte {
		n := u()
		if n > uint64(len(b)) {
			bad = true
			return nil
		}
		t := b[:n]
		b = b[n:]
		return t
	}
	k.Generation, k.Source, k.Offset = u(), int(u()), int64(u())
	if back := u(); back == 0 {
		k.Prev = -1
	} else {
		k.Prev = k.Offset - int64(back)
	}
	k.Time = s()
	if k.Kind == 1 {
		k.readEvent(format, &bad, u, s, text)
	}
	if k.Kind == 2 {
		k.Idle, k.Clock = u() == 1, s()
	}
	if bad {
		return Keyed{}, errShort
	}
	return k, nil
}

// readEvent reads what only events have.
func (k *Keyed) readEvent(format byte, bad *bool, u func() uint64, s func() int64, text func() []byte) {
	k.Progress, k.Version = s(), int64(u())
	at := 0
	for n := u(); n > 0 && !*bad; n-- {
		at += int(u())
		k.Rules = append(k.Rules, at)
	}
	if format >= 2 && u() == 1 {
		for range k.Rules {
			k.Units = append(k.Units, int64(u()))
		}
	}
	if format >= 5 {
		if u() == 1 {
			for range k.Rules {
				k.Tiers = append(k.Tiers, int(u()))
			}
		}
		index := 0
		for n := u(); n > 0 && !*bad; n-- {
			index += int(u())
			if k.Extra == nil {
				k.Extra = map[int]string{}
			}
			k.Extra[index] = string(text())
		}
	}
	if format >= 6 {
		said := int(u())
		k.Good = said % 4
		list := func() (out []int) {
			at := 0
			for n := u(); n > 0 && !*bad; n-- {
				at += int(u())
				out = append(out, at)
			}
			return out
		}
		if said&16 != 0 {
			k.Verdict = [2]string{string(text()), string(text())}
		}
		if said&4 != 0 {
			k.Reached = list()
		}
		if said&8 != 0 {
			k.Beyond = list()
		}
	}
	mask := u()
	if mask&1 != 0 {
		k.IP, _ = netip.AddrFromSlice(text())
	}
	for i, to := range []*string{&k.Device, &k.User, &k.APIKey, &k.Other} {
		if mask&(2<<i) != 0 {
			*to = string(text())
		}
	}
}

// Fence keeps, of one keyed partition's event records in log order, those that count: per source partition only a
// greater offset than any before. hole is called for a record that names a predecessor which never came.
func Fence(records []Keyed, hole func(Keyed)) []Keyed {
	seen := map[int]int64{}
	var out []Keyed
	for _, k := range records {
		if k.Kind != 1 {
			continue
		}
		last, any := seen[k.Source]
		if any && k.Offset <= last {
			continue
		}
		if k.Prev >= 0 && (!any || k.Prev > last) || k.Prev < 0 && any {
			hole(k)
		}
		seen[k.Source] = k.Offset
		out = append(out, k)
	}
	return out
}
