package blocklist

import "testing"

func TestSeenForgetsTheOldest(t *testing.T) {
	s := newSeen(2)
	for _, id := range []string{"a", "b", "c", "d"} {
		s.add(id)
	}
	if !s.has("a") || !s.has("d") {
		t.Error("forgot within twice its size")
	}
	s.add("e")
	if s.has("a") || !s.has("c") || !s.has("e") {
		t.Error("the older half must go, and only that")
	}
}
