package traffic

import "encoding/binary"

// AppendProtobuf appends r to dst as the message Event of event.proto, from which the weir-protobuf decoder reads the same
// request again. It is for gateways in Go: it needs no generated code, and no memory but dst. Members that r does not have
// are left out; r.Attrs must be JSON. What AppendEvent does not write, this does not write either, and no end mark.
func AppendProtobuf(dst []byte, r *Request) []byte {
	dst = append(dst, 1<<3|wireVarint, EventVersion)
	if r.HasTime && r.Time >= minEventTime && r.Time <= maxEventTime {
		dst = append(dst, 2<<3|wireFixed64)
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
	for f := FieldDevice; f < NumFields; f++ {
		if r.Claimed.Has(f) {
			dst = appendProtoText(dst, 24, fieldNames[f])
		}
	}
	return dst
}

func appendProtoTag(dst []byte, field, wire uint64) []byte {
	return binary.AppendUvarint(dst, field<<3|wire)
}

func appendProtoText(dst []byte, field uint64, v string) []byte {
	if v == "" {
		return dst
	}
	dst = appendProtoTag(dst, field, wireBytes)
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	return append(dst, v...)
}

// appendProtoNumber leaves out what the format cannot say: numbers below 0, which it would write as others.
func appendProtoNumber(dst []byte, field uint64, v int64) []byte {
	if v <= 0 {
		return dst
	}
	return binary.AppendUvarint(appendProtoTag(dst, field, wireVarint), uint64(v))
}

// appendProtoPair appends a message of two texts.
func appendProtoPair(dst []byte, field uint64, first, second string) []byte {
	dst = appendProtoTag(dst, field, wireBytes)
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
