package format

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// eventMessage is the message Event as event.proto describes it, for Google's own library: the oracle of these tests.
func eventMessage(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	src, err := os.ReadFile("event.proto")
	if err != nil {
		t.Fatal(err)
	}
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("event.proto"), Syntax: proto.String("proto3"), Package: proto.String("weir.v1")}
	types := map[string]descriptorpb.FieldDescriptorProto_Type{
		"uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32, "uint64": descriptorpb.FieldDescriptorProto_TYPE_UINT64,
		"sfixed64": descriptorpb.FieldDescriptorProto_TYPE_SFIXED64, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	}
	field := regexp.MustCompile(`^(optional |repeated )?(\w+) (\w+) = (\d+);`)
	for line := range strings.Lines(string(src)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "message "); ok {
			file.MessageType = append(file.MessageType, &descriptorpb.DescriptorProto{Name: proto.String(strings.TrimSuffix(name, " {"))})
			continue
		}
		m := field.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		message := file.MessageType[len(file.MessageType)-1]
		number, err := strconv.Atoi(m[4])
		if err != nil {
			t.Fatal(err)
		}
		f := &descriptorpb.FieldDescriptorProto{Name: proto.String(m[3]), Number: proto.Int32(int32(number)), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if kind, ok := types[m[2]]; ok {
			f.Type = kind.Enum()
		} else {
			f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".weir.v1."+m[2])
		}
		switch m[1] {
		case "repeated ":
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		case "optional ":
			f.Proto3Optional, f.OneofIndex = proto.Bool(true), proto.Int32(int32(len(message.OneofDecl)))
			message.OneofDecl = append(message.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("_" + m[3])})
		}
		message.Field = append(message.Field, f)
	}
	built, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return built.Messages().ByName("Event")
}

// protoName is what event.proto calls a member.
func protoName(m member) string {
	switch m {
	case memberTime:
		return "time_us"
	case memberLatency:
		return "latency_us"
	}
	return memberNames[m]
}

// requestOf is the request that the oracle has read.
func requestOf(m protoreflect.Message) traffic.Request {
	fields := m.Descriptor().Fields()
	value := func(name string) protoreflect.Value { return m.Get(fields.ByName(protoreflect.Name(name))) }
	r := traffic.Request{
		Status: int(value("status").Uint()), LatencyUS: int64(value("latency_us").Uint()), Bytes: int64(value("bytes").Uint()),
		HasTime: m.Has(fields.ByName("time_us")), Time: traffic.Time(value("time_us").Int()),
	}
	for _, f := range protoFields {
		if to := textMember(f.m, &r); to != nil {
			*to = string(value(protoName(f.m)).Bytes())
		}
	}
	r.Path = cutQuery(string(value("path").Bytes()))
	if attrs := strings.Trim(string(value("attrs").Bytes()), " \t\r\n"); attrs != "" {
		r.Attrs = []byte(attrs)
	}
	pair := func(m protoreflect.Message) (string, string) {
		f := m.Descriptor().Fields()
		return string(m.Get(f.ByNumber(1)).Bytes()), string(m.Get(f.ByNumber(2)).Bytes())
	}
	r.Verdict.Rule, r.Verdict.Block = pair(value("verdict").Message())
	for i := range value("claimed").List().Len() {
		if f, ok := traffic.ParseField(string(value("claimed").List().Get(i).Bytes())); ok && f != traffic.FieldIP {
			r.Claimed = r.Claimed.With(f)
		}
	}
	for i := range value("headers").List().Len() {
		name, text := pair(value("headers").List().Get(i).Message())
		r.Headers = append(r.Headers, traffic.Header{Name: name, Value: text})
	}
	return r
}

// TestEventProto holds the decoder's table to event.proto, and event.proto to the event's members.
func TestEventProto(t *testing.T) {
	fields := eventMessage(t).Fields()
	wires := map[protoreflect.Kind]protowire.Type{
		protoreflect.Uint32Kind: protowire.VarintType, protoreflect.Uint64Kind: protowire.VarintType, protoreflect.Sfixed64Kind: protowire.Fixed64Type,
		protoreflect.BytesKind: protowire.BytesType, protoreflect.MessageKind: protowire.BytesType,
	}
	seen := map[member]bool{}
	reserved := 0
	for number, f := range protoFields[1:] {
		if f.m == memberUnknown {
			reserved++
			continue
		}
		d := fields.ByNumber(protoreflect.FieldNumber(number + 1))
		if d == nil || string(d.Name()) != protoName(f.m) || wires[d.Kind()] != f.wire {
			t.Errorf("field %d: the decoder has %s of wire type %d, event.proto %v", number+1, protoName(f.m), f.wire, d)
		}
		seen[f.m] = true
	}
	if fields.Len() != len(protoFields)-1-reserved || reserved != 1 {
		t.Errorf("event.proto has %d fields, the decoder %d, and %d are reserved", fields.Len(), len(protoFields)-1-reserved, reserved)
	}
	for m := memberVersion; m < memberVerdictRule; m++ {
		if !seen[m] && m != memberControl {
			t.Errorf("event.proto has no %s", memberNames[m])
		}
	}
}

func TestAppendProtobufRoundTrip(t *testing.T) {
	d, event := mustDecoder(t, Protobuf, nil), eventMessage(t)
	rapid.Check(t, func(t *rapid.T) {
		want := anyRequest(t)
		message := AppendProtobuf([]byte("before"), &want)[len("before"):]
		var got traffic.Request
		if err := d.Decode(message, &got); err != nil {
			t.Fatalf("%x: %v", message, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%x\ngot  %+v\nwant %+v", message, got, want)
		}
		oracle := dynamicpb.NewMessage(event)
		if err := proto.Unmarshal(message, oracle); err != nil {
			t.Fatalf("%x: %v", message, err)
		}
		if len(oracle.GetUnknown()) > 0 || !reflect.DeepEqual(requestOf(oracle), want) {
			t.Fatalf("%x\nthe oracle reads %+v\nwant %+v", message, requestOf(oracle), want)
		}
		// And the other way: what Google's library writes is read as the same request.
		again, err := proto.Marshal(oracle)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(again, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%x\ngot  %+v, %v\nwant %+v", again, got, err, want)
		}
	})
}

func TestAppendProtobufLeavesOutWhatTheFormatCannotSay(t *testing.T) {
	r := traffic.Request{HasTime: true, Time: traffic.EndOfTime, Status: 1000, Bytes: -1, LatencyUS: -1, Path: "/a?b", UnknownFields: 3, Control: ControlEnd}
	if got, want := fmt.Sprintf("%x", AppendProtobuf(nil, &r)), "0801"+"52022f61"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestProtobufRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", "empty event: got no bytes"},
		{"field 0", "\x00\x01", "malformed event: column 1: field number 0"},
		{"field number of 30 bits", "\x80\x80\x80\x80\x10\x00", "malformed event: column 1: field number 536870912"},
		{"half a tag", "\x80", "malformed event: column 1: a varint that does not end"},
		{"a number above 64 bits", "\x58\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "malformed event: column 2: a varint"},
		{"half a time", "\x11\x00\x00\x00", "malformed event: column 2: a value of 8 bytes, 3 are left"},
		{"half a text", "\x08\x01\x1a\x051.2", "malformed event: column 5: a value of 5 bytes, 3 are left"},
		{"a length above 63 bits", "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "malformed event: column 12: a value of 18446744073709551615 bytes, 0 are left"},
		{"half a fixed32", "\xc5\x02\x00", "malformed event: column 3: a value of 4 bytes, 1 are left"},
		{"wire type 6", "\x0e", "malformed event: column 1: wire type 6"},
		{"wire type 7 of an unknown field", "\xc7\x02", "malformed event: column 1: wire type 7"},
		{"the end of no group", "\xc4\x02", "malformed event: column 1: wire type 4"},
		{"a group without its end", "\xc3\x02\xc8\x02\x01", "malformed event: column 6: got the end of the message inside a group"},
		{"a group with another's end", "\xc3\x02\xcc\x02", "malformed event: column 3: the end of group 41, allowed: that of group 40"},
		{"groups too deep", strings.Repeat("\xc3\x02", 65), "malformed event: column 129: groups nested too deep"},
		{"a number for a text", "\x18\x01", "wrong_type event: column 1: ip: got wire type 0, allowed: 2"},
		{"a text for a number", "\x5a\x01x", "wrong_type event: column 1: status: got wire type 2, allowed: 0"},
		{"a number in a header", "\xa2\x01\x02\x08\x01", "wrong_type event: column 4: field 1 of a header or verdict: got wire type 0"},
		{"half a header", "\xa2\x01\x02\x0a\x05", "malformed event: column 6: a value of 5 bytes, 0 are left"},
		{"version 2", "\x08\x02", "bad_version event: column 2: v: got 2, allowed: 1"},
		{"status 1000", "\x58\xe8\x07", "bad_value event: column 2: status: got 1000, allowed: a whole number from 0 to 999"},
		{"bytes above 63 bits", "\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "bad_value event: column 2: bytes: got 18446744073709551615"},
		{"the year 294247", "\x11\xff\xff\xff\xff\xff\xff\xff\x7f", "bad_value event: column 2: time_us: got 9223372036854775807"},
		{"attrs that are no JSON", "\x9a\x01\x03{a}", "malformed event: column 5: got \"a}\", allowed: a member name in double quotes (in attrs)"},
		{"attrs and more", "\x9a\x01\x031 2", "malformed event: column 6: got \"2\", allowed: nothing after the event (in attrs)"},
	} {
		var r traffic.Request
		err := mustDecoder(t, Protobuf, nil).Decode([]byte(c.in), &r)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	d, err := NewDecoder(Protobuf, nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(make([]byte, 11), new(traffic.Request)); reasonOf(err) != ReasonOversized {
		t.Errorf("11 bytes: got %v", err)
	}
}

func TestProtobufUnknownFields(t *testing.T) {
	const in = "\x08\x01" + "\xb8\x01\x01" + "\xc1\x02\x01\x02\x03\x04\x05\x06\x07\x08" + "\xc2\x02\x02ab" + "\xc5\x02\x01\x02\x03\x04" +
		"\xc3\x02\x08\x01\x13\x14\xc4\x02" + "\x1a\x01i" + "\xb2\x01\x07\x18\x01\x0a\x01r\x1a\x00" + "\x1a\x01j" + "\xb2\x01\x03\x12\x01b"
	var r traffic.Request
	if err := mustDecoder(t, Protobuf, nil).Decode([]byte(in), &r); err != nil {
		t.Fatal(err)
	}
	if want := (traffic.Request{IP: "j", Verdict: traffic.Verdict{Rule: "r", Block: "b"}, UnknownFields: 5}); !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

// unknownClaims is how many names in the field claimed are no field's.
func unknownClaims(m protoreflect.Message) (n int) {
	names := m.Get(m.Descriptor().Fields().ByName("claimed")).List()
	for i := range names.Len() {
		if f, ok := traffic.ParseField(string(names.Get(i).Bytes())); !ok || f == traffic.FieldIP {
			n++
		}
	}
	return n
}

// FuzzProtobuf reads anything and asks Google's library: it takes what the decoder takes, as the same request, and the
// decoder refuses as malformed only what it refuses, or what is documented.
func FuzzProtobuf(f *testing.F) {
	d, event := mustDecoder(f, Protobuf, nil), eventMessage(f)
	events, _, _ := benchEvents(2)
	weir := mustDecoder(f, Weir, nil)
	for _, e := range append(events, []byte(fullEvent)) {
		var r traffic.Request
		if err := weir.Decode(e, &r); err != nil {
			f.Fatal(err)
		}
		f.Add(AppendProtobuf(nil, &r))
	}
	f.Add([]byte("\xc3\x02\x08\x01\x13\x14\xc4\x02\xa2\x01\x04\x0a\x00\x1a\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var r traffic.Request
		err := d.Decode(in, &r)
		oracle := dynamicpb.NewMessage(event)
		theirs := proto.Unmarshal(in, oracle)
		switch {
		case err != nil:
			e := decodeError(err)
			if len(e.Detail) > 450 || e.Column > len(in)+1 {
				t.Fatalf("column %d of %d: %s", e.Column, len(in), e.Detail)
			}
			if e.Reason == ReasonMalformed && theirs == nil && !strings.Contains(e.Detail, "nested too deep") && !strings.HasSuffix(e.Detail, " (in attrs)") {
				t.Fatalf("refused what is a message: %v", err)
			}
		case theirs != nil:
			t.Fatalf("read as %+v, and the oracle says %v", r, theirs)
		default:
			want := requestOf(oracle)
			if want.UnknownFields = r.UnknownFields; (r.UnknownFields > 0) != (len(oracle.GetUnknown()) > 0 || unknownClaims(oracle) > 0) {
				t.Fatalf("%d unknown fields, the oracle has %x", r.UnknownFields, oracle.GetUnknown())
			}
			if len(r.Headers) == 0 {
				r.Headers = nil
			}
			if !reflect.DeepEqual(r, want) {
				t.Fatalf("got  %+v\nwant %+v", r, want)
			}
		}
	})
}
