package oracle

import "testing"

func TestHandBucket(t *testing.T) {
	a, b := "a", "b"
	type pour struct {
		at, units int64
		value     *string
		over      bool
		free      int64
	}
	for name, c := range map[string]struct {
		bucket HandBucket
		pours  []pour
	}{
		"two a second": {HandBucket{Limit: 2, Burst: 2, Window: 1000}, []pour{
			{0, 1, nil, false, 1}, {0, 1, nil, false, 0}, {0, 1, nil, true, 0}, {499, 1, nil, true, 0}, {500, 1, nil, false, 0},
			{999, 0, nil, false, 0}, {1000, 0, nil, false, 1}, {9999, 0, nil, false, 2},
		}},
		"fractions are kept": {HandBucket{Limit: 3, Burst: 3, Window: 1000}, []pour{
			{0, 3, nil, false, 0}, {333, 1, nil, true, 0}, {334, 1, nil, false, 0}, {666, 1, nil, true, 0}, {667, 1, nil, false, 0},
		}},
		"many at once are over or in": {HandBucket{Limit: 10, Burst: 20, Window: 1000}, []pour{
			{0, 21, nil, true, 20}, {0, 20, nil, false, 0}, {100, 2, nil, true, 1},
		}},
		"no way back": {HandBucket{Limit: 1, Burst: 1, Window: 1000}, []pour{
			{5000, 1, nil, false, 0}, {0, 1, nil, true, 0}, {5999, 1, nil, true, 0}, {6000, 1, nil, false, 0},
		}},
		"values count once": {HandBucket{Limit: 1, Burst: 1, Window: 1000}, []pour{
			{0, 1, &a, false, 0}, {0, 1, &a, false, 0}, {0, 1, &b, true, 0}, {1500, 1, &b, false, 1}, {1500, 1, &a, false, 1},
		}},
		"values of a new bucket are new": {HandBucket{Limit: 1, Burst: 1, Window: 1000}, []pour{
			{0, 1, &a, false, 0}, {1999, 1, &a, false, 1}, {3999, 1, &a, false, 0}, {3999, 1, &b, true, 0},
		}},
		"nothing flows out": {HandBucket{Window: 1000}, []pour{{0, 1, nil, true, 0}, {1 << 40, 1, nil, true, 0}, {1 << 40, 0, nil, false, 0}}},
	} {
		for i, p := range c.pours {
			if over, free := c.bucket.Add(p.at, p.units, p.value); over != p.over || free != p.free {
				t.Errorf("%s, pour %d: got %v with %d free, want %v with %d", name, i, over, free, p.over, p.free)
			}
		}
	}
}
