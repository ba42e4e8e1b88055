package recent

import "testing"

func TestSeenForgetsTheOldest(t *testing.T) {
	s := NewSet(2)
	for _, id := range []string{"a", "b", "c", "d"} {
		s.Add(id)
	}
	if !s.Has("a") || !s.Has("d") {
		t.Error("forgot within twice its size")
	}
	s.Add("e")
	if s.Has("a") || !s.Has("c") || !s.Has("e") {
		t.Error("the older half must go, and only that")
	}
}
