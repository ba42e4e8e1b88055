package loadgen

import (
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// GeneratorVersion changes when the same settings make other events.
const GeneratorVersion = 1

// Event is one request of a load. Sent and Time are since the start of the load, in whole microseconds.
type Event struct {
	Number  int64         // from 0, in the order of sending
	Sent    time.Duration // when it is due to be sent
	Time    time.Duration // its own time: Sent, or up to Settings.Disorder before; may be negative
	ID      string
	IP      netip.Addr
	Device  string
	User    string // empty: signed out
	Session string
	Call
}

// Stream makes the events of a load, one by one in the order of sending. It is not safe for concurrent use.
type Stream struct {
	s       Settings
	people  people
	viewers chooser
	calls   chooser

	ordinary *rand.Rand
	delays   *rand.Rand
	slot     int64 // ordinary requests so far
	next     time.Duration
	abusers  abuserHeap
	made     int64
}

// The random streams of one seed. Each abuser has one of its own, so that more of them leave all others as they are.
const (
	drawViewers = iota
	drawDelays
	drawAbusers
)

// NewStream begins a load. The settings must be valid.
func NewStream(s Settings) *Stream {
	st := &Stream{s: s}
	st.people = newPeople(&st.s)
	st.viewers = newZipf(s.Viewers, s.Zipf)
	st.calls = newChooser(len(s.Mix), func(k int) uint64 { return uint64(s.Mix[k].Weight) })
	st.ordinary = rand.New(rand.NewPCG(s.Seed, drawViewers))
	st.delays = rand.New(rand.NewPCG(s.Seed, drawDelays))
	st.next = st.arrival()
	for n := range s.Abusers {
		st.abusers = append(st.abusers, newAbuser(&st.s, n))
	}
	heap.Init(&st.abusers)
	return st
}

// arrival draws when the next ordinary request comes: somewhere in its own slot of 1/rate.
func (st *Stream) arrival() time.Duration {
	step := 1e6 / st.s.Rate
	// The conversions keep a compiler from fusing the operations, which would round differently on some machines.
	at := float64(float64(st.slot)*step) + float64(st.ordinary.Float64()*step)
	st.slot++
	return time.Duration(at) * time.Microsecond
}

// Next makes the next event in e; false when the load is over.
func (st *Stream) Next(e *Event) bool {
	if st.s.Events > 0 && st.made >= st.s.Events {
		return false
	}
	var who person
	if len(st.abusers) > 0 && st.abusers[0].next < st.next {
		a := st.abusers[0]
		e.Sent, e.Call = a.next, st.s.Abuse
		who = st.people.person(st.s.Viewers + a.number)
		if a.pattern == Rotate {
			who.ip = st.people.ipv6(st.s.Viewers+a.number, a.draw.Uint64()|1)
		}
		a.advance()
		heap.Fix(&st.abusers, 0)
	} else {
		e.Sent = st.next
		who = st.people.person(st.viewers.at(st.ordinary.Uint64N(st.viewers.total())))
		e.Call = st.s.Mix[st.calls.at(st.ordinary.Uint64N(st.calls.total()))]
		st.next = st.arrival()
	}
	if e.Sent >= st.s.Duration {
		return false
	}
	e.Time = e.Sent
	if st.s.Disorder > 0 {
		e.Time -= time.Duration(st.delays.Int64N(st.s.Disorder.Microseconds()+1)) * time.Microsecond
	}
	e.Number, e.ID = st.made, st.people.prefix+strconv.FormatInt(st.made, 10)
	e.IP, e.Device, e.User, e.Session = who.ip, who.device, who.user, who.session
	st.made++
	return true
}

// Append appends e, of a load that began at start, as Settings.Format says.
func (st *Stream) Append(dst []byte, e *Event, start traffic.Time) []byte {
	r := traffic.Request{
		Time: start.Add(e.Time), HasTime: true, ID: e.ID, IP: e.IP.String(), Device: e.Device, User: e.User, Session: e.Session,
		Method: e.Method, Path: e.Path, Status: 200, Gateway: "weir-loadgen",
	}
	if n := st.s.Proxies; n > 0 {
		// Each proxy in front of the gateway appends who it heard from: the first the client, the next the first proxy.
		r.Forwarded = r.IP
		for k := 1; k < n; k++ {
			r.Forwarded += ", 192.0.2." + strconv.Itoa(k)
		}
		r.IP = "192.0.2." + strconv.Itoa(n)
	}
	if st.s.Format == format.Protobuf {
		return format.AppendProtobuf(dst, &r)
	}
	return format.AppendEvent(dst, &r)
}
