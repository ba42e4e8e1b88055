package traffic

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestDeadLetterKeepsTheBeginning(t *testing.T) {
	m := Message{Partition: 3, Offset: 7, Value: bytes.Repeat([]byte{0, 0xff}, DeadLetterBytes)}
	text, err := json.Marshal(NewDeadLetter("route", "oversized", "detail", "weir.requests", m))
	if err != nil {
		t.Fatal(err)
	}
	var got DeadLetter
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != DeadLetterVersion || got.Size != 2*DeadLetterBytes || !bytes.Equal(got.Value, m.Value[:DeadLetterBytes]) ||
		got.Partition != 3 || got.Offset != 7 || got.Reason != "oversized" || got.Topic != "weir.requests" {
		t.Fatalf("got %+v", got)
	}
}
