package plural

import "testing"

func TestOf(t *testing.T) {
	for n, want := range map[int]string{0: "0 rules", 1: "1 rule", 2: "2 rules"} {
		if got := Of(n, "rule"); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
		if got := Of(int64(n), "rule"); got != want {
			t.Errorf("%d as int64: %s, want %s", n, got, want)
		}
	}
}
