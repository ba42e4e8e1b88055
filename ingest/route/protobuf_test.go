package route

import (
	"reflect"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

// TestProtobufRoutesAsJSON: the two formats of a weir event lead to the same reading, and so to the same records.
func TestProtobufRoutesAsJSON(t *testing.T) {
	opt := routedOptions(true)
	inJSON, inProtobuf := amountRouting(), amountRouting()
	inProtobuf.Format.Name = traffic.FormatProtobuf
	readers := [2]eventRouter{}
	for i := range readers {
		readers[i] = eventRouter{live: true, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
	}
	versions := [2]*routingVersion{compiled(t, opt, inJSON), compiled(t, opt, inProtobuf)}
	for _, r := range []traffic.Request{
		{HasTime: true, Time: noon, IP: "192.0.2.1", Device: "tv", User: "ann", Path: "/v1/x?y", Attrs: []byte(`{"cost":7,"usage":{"tokens":8}}`)},
		{Path: "/v1/x", Attrs: []byte(`{"cost":-7}`), Headers: []traffic.Header{{Name: "X-Device-Id", Value: "tv\xff"}}},
		{HasTime: true, Time: noon.Add(time.Hour), Device: "tv", Path: "/v1/x"},
		{Device: "tv", Path: "/v1/x", Verdict: traffic.Verdict{Rule: "a-events", Block: "b"}},
		{Device: "tv", Path: "/v2"},
	} {
		values := [2][]byte{traffic.AppendEvent(nil, &r), traffic.AppendProtobuf(nil, &r)}
		var got [2]reading
		for i := range readers {
			got[i] = *readers[i].read(versions[i], &traffic.Message{Appended: noon + 1, Value: values[i]}, noon)
		}
		if !reflect.DeepEqual(got[0], got[1]) || got[0].fate == FateDead {
			t.Errorf("%s\nin JSON     %+v\nin protobuf %+v", values[0], got[0], got[1])
		}
	}
}
