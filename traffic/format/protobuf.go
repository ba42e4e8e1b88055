package format

import (
	"encoding/binary"
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir/traffic"
)

// Protobuf is one message Event of event.proto: what the weir format says, for gateways that can write it.
const Protobuf = "weir-protobuf"

// protoField is how event.proto writes a member.
type protoField struct {
	m    member
	wire protowire.Type
}

// protoFields is the message Event by field number. A test holds it to event.proto.
var protoFields = [...]protoField{
	1: {memberVersion, protowire.VarintType}, 2: {memberTime, protowire.Fixed64Type}, 3: {memberIP, protowire.BytesType}, 4: {memberDevice, protowire.BytesType},
	5: {memberUser, protowire.BytesType}, 6: {memberAPIKey, protowire.BytesType}, 7: {memberSession, protowire.BytesType}, 8: {memberMethod, protowire.BytesType},
	9: {memberHost, protowire.BytesType}, 10: {memberPath, protowire.BytesType}, 11: {memberStatus, protowire.VarintType}, 12: {memberID, protowire.BytesType},
	13: {memberUserAgent, protowire.BytesType}, 14: {memberLatency, protowire.VarintType}, 15: {memberBytes, protowire.VarintType},
	16: {memberForwarded, protowire.BytesType}, 17: {memberRoute, protowire.BytesType}, 18: {memberPlan, protowire.BytesType}, 19: {memberAttrs, protowire.BytesType},
	20: {memberHeaders, protowire.BytesType}, 21: {memberGateway, protowire.BytesType}, 22: {memberVerdict, protowire.BytesType}, 24: {memberClaimed, protowire.BytesType},
}

// protobufDecoder reads weir events in Protocol Buffers. It is one pass that copies nothing: strings, attrs and header
// values alias the message. As everywhere in Protocol Buffers the last value of a field wins, except that headers and claimed add
// up and verdicts merge. A known field of another wire type is refused, since to take it for an unknown one would be to lose
// what the gateway meant to say.
type protobufDecoder struct{ max int }

var _ Decoder = (*protobufDecoder)(nil)

// Decode reads one event.
func (d *protobufDecoder) Decode(b []byte, r *traffic.Request) error {
	*r = traffic.Request{Headers: r.Headers[:0]}
	switch {
	case len(b) > d.max:
		return checkSize(b, d.max)
	case len(b) == 0:
		return failure(ReasonEmpty, -1, "got no bytes, allowed: one event")
	}
	p := protoReader{b: b}
	for p.i < len(p.b) {
		at := p.i
		number, wire, err := p.tag()
		if err != nil {
			return err
		}
		if int(number) >= len(protoFields) || protoFields[number].m == memberUnknown {
			r.UnknownFields++
			if err := p.skip(number, wire, at); err != nil {
				return err
			}
			continue
		}
		f := protoFields[number]
		if f.wire != wire {
			return p.wrongWire(f, wire, at)
		}
		if wire == protowire.BytesType {
			err = p.readBytes(f.m, r)
		} else {
			err = p.readNumber(f.m, wire, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readBytes reads a field of text, JSON or a message. It is textMember written out where the time is spent.
func (p *protoReader) readBytes(m member, r *traffic.Request) error {
	start, err := p.length()
	if err != nil {
		return err
	}
	text := alias(p.b[start:p.i])
	switch m {
	case memberIP:
		r.IP = text
	case memberDevice:
		r.Device = text
	case memberUser:
		r.User = text
	case memberAPIKey:
		r.APIKey = text
	case memberSession:
		r.Session = text
	case memberMethod:
		r.Method = text
	case memberHost:
		r.Host = text
	case memberPath:
		r.Path = cutQuery(text)
	case memberID:
		r.ID = text
	case memberUserAgent:
		r.UserAgent = text
	case memberForwarded:
		r.Forwarded = text
	case memberRoute:
		r.Route = text
	case memberPlan:
		r.Plan = text
	case memberGateway:
		r.Gateway = text
	case memberAttrs:
		return p.readAttrs(start, r)
	case memberHeaders:
		h := traffic.Header{}
		err := p.readPair(start, &h.Name, &h.Value)
		r.Headers = append(r.Headers, h)
		return err
	case memberVerdict:
		return p.readPair(start, &r.Verdict.Rule, &r.Verdict.Block)
	case memberClaimed:
		claim(r, text)
	}
	return nil
}

// readAttrs takes the bytes since start for attrs, once they have shown to be one JSON value.
func (p *protoReader) readAttrs(start int, r *traffic.Request) error {
	s := scanner{b: p.b[:p.i], i: start}
	s.space()
	if r.Attrs = nil; s.i == p.i {
		return nil
	}
	from := s.i
	err := s.skip()
	if err == nil {
		r.Attrs = p.b[from:s.i:s.i]
		err = s.end()
	}
	if err != nil {
		return inAttrs(err)
	}
	return nil
}

// inAttrs adds to an error of the JSON scanner that its column is one of attrs.
func inAttrs(err error) error {
	if e := (*DecodeError)(nil); errors.As(err, &e) {
		e.Detail += " (in attrs)"
	}
	return err
}

// readPair reads the message since start, which has two fields of text.
func (p *protoReader) readPair(start int, first, second *string) error {
	inner := protoReader{b: p.b[:p.i], i: start}
	for inner.i < len(inner.b) {
		at := inner.i
		number, wire, err := inner.tag()
		if err != nil {
			return err
		}
		if number > 2 {
			if err := inner.skip(number, wire, at); err != nil {
				return err
			}
			continue
		}
		if wire != protowire.BytesType {
			return failure(ReasonWrongType, at, "field %d of a header or verdict: got wire type %d, allowed: %d", number, wire, protowire.BytesType)
		}
		from, err := inner.length()
		if err != nil {
			return err
		}
		to := first
		if number == 2 {
			to = second
		}
		*to = alias(inner.b[from:inner.i])
	}
	return nil
}

// readNumber reads a field that is a number, of either of the wire types that numbers have.
func (p *protoReader) readNumber(m member, wire protowire.Type, r *traffic.Request) error {
	at := p.i
	var v uint64
	var err error
	if wire == protowire.Fixed64Type {
		v, err = p.fixed64()
	} else {
		v, err = p.varint()
	}
	if err != nil {
		return err
	}
	limit := uint64(math.MaxInt64)
	switch m {
	case memberVersion:
		if v > EventVersion { // 0 is how Protocol Buffers write what is absent
			return failure(ReasonVersion, at, "v: got %d, allowed: %d", v, EventVersion)
		}
	case memberTime:
		r.Time, r.HasTime = traffic.Time(v), true
		if r.Time < minEventTime || r.Time > maxEventTime {
			return failure(ReasonBadValue, at, "time_us: got %d, allowed: microseconds since 1970 of the years 0000 to 9999", int64(v))
		}
		return nil
	case memberStatus:
		limit, r.Status = maxStatus, int(v)
	case memberLatency:
		r.LatencyUS = int64(v)
	case memberBytes:
		r.Bytes = int64(v)
	}
	if v > limit {
		return failure(ReasonBadValue, at, "%s: got %d, allowed: a whole number from 0 to %d", memberNames[m], v, limit)
	}
	return nil
}

// AppendProtobuf appends r to dst as the message Event of event.proto, from which the weir-protobuf decoder reads the same
// request again. It is for gateways in Go: it needs no generated code, and no memory but dst. It writes varints with
// encoding/binary, since protowire's appending functions take twice as long for an event. Members that r does not have
// are left out; r.Attrs must be JSON. What AppendEvent does not write, this does not write either, and no end mark.
func AppendProtobuf(dst []byte, r *traffic.Request) []byte {
	dst = append(dst, 1<<3|byte(protowire.VarintType), EventVersion)
	if r.HasTime && r.Time >= minEventTime && r.Time <= maxEventTime {
		dst = append(dst, 2<<3|byte(protowire.Fixed64Type))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Time))
	}
	dst = appendProtoText(dst, 3, r.IP)
	dst = appendProtoText(dst, 4, r.Device)
	dst = appendProtoText(dst, 5, r.User)
	dst = appendProtoText(dst, 6, r.APIKey)
	dst = appendProtoText(dst, 7, r.Session)
	dst = appendProtoText(dst, 8, r.Method)
	dst = appendProtoText(dst, 9, r.Host)
	dst = appendProtoText(dst, 10, cutQuery(r.Path))
	if r.Status <= maxStatus {
		dst = appendProtoNumber(dst, 11, int64(r.Status))
	}
	dst = appendProtoText(dst, 12, r.ID)
	dst = appendProtoText(dst, 13, r.UserAgent)
	dst = appendProtoNumber(dst, 14, r.LatencyUS)
	dst = appendProtoNumber(dst, 15, r.Bytes)
	dst = appendProtoText(dst, 16, r.Forwarded)
	dst = appendProtoText(dst, 17, r.Route)
	dst = appendProtoText(dst, 18, r.Plan)
	dst = appendProtoText(dst, 19, alias(r.Attrs))
	for i := range r.Headers {
		dst = appendProtoPair(dst, 20, r.Headers[i].Name, r.Headers[i].Value)
	}
	dst = appendProtoText(dst, 21, r.Gateway)
	if r.Verdict.Refused() {
		dst = appendProtoPair(dst, 22, r.Verdict.Rule, r.Verdict.Block)
	}
	for f := traffic.FieldDevice; f < traffic.NumFields; f++ {
		if r.Claimed.Has(f) {
			dst = appendProtoText(dst, 24, f.String())
		}
	}
	return dst
}

func appendProtoTag(dst []byte, field uint64, wire protowire.Type) []byte {
	return binary.AppendUvarint(dst, field<<3|uint64(wire))
}

func appendProtoText(dst []byte, field uint64, v string) []byte {
	if v == "" {
		return dst
	}
	dst = appendProtoTag(dst, field, protowire.BytesType)
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	return append(dst, v...)
}

// appendProtoNumber leaves out what the format cannot say: numbers below 0, which it would write as others.
func appendProtoNumber(dst []byte, field uint64, v int64) []byte {
	if v <= 0 {
		return dst
	}
	return binary.AppendUvarint(appendProtoTag(dst, field, protowire.VarintType), uint64(v))
}

// appendProtoPair appends a message of two texts.
func appendProtoPair(dst []byte, field uint64, first, second string) []byte {
	dst = appendProtoTag(dst, field, protowire.BytesType)
	dst = binary.AppendUvarint(dst, uint64(protoTextSize(first)+protoTextSize(second)))
	dst = appendProtoText(dst, 1, first)
	return appendProtoText(dst, 2, second)
}

// protoTextSize is what appendProtoText appends for a field number below 16.
func protoTextSize(v string) int {
	if v == "" {
		return 0
	}
	size := 2 + len(v)
	for n := len(v); n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
