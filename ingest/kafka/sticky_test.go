package kafka

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"testing"

	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"
)

const stickyTopic = "keyed"

func topicPartitions(topic string, n int) []kafka.Partition {
	var out []kafka.Partition
	for p := range n {
		out = append(out, kafka.Partition{Topic: topic, ID: p})
	}
	return out
}

func claimant(id string, generation int, partitions ...int) kafka.GroupMember {
	c := lastAssignment{generation: int64(generation), partitions: partitions}
	return kafka.GroupMember{ID: id, Topics: []string{stickyTopic}, UserData: c.encode()}
}

func assign(members []kafka.GroupMember, n int) map[string][]int {
	b := &stickyBalancer{topic: stickyTopic}
	out := map[string][]int{}
	for id, topics := range b.AssignGroups(members, topicPartitions(stickyTopic, n)) {
		out[id] = topics[stickyTopic]
	}
	return out
}

func TestStickyAssignments(t *testing.T) {
	for _, tc := range []struct {
		name       string
		partitions int
		members    []kafka.GroupMember
		want       map[string][]int
	}{
		{"a first member", 3, []kafka.GroupMember{claimant("a", 0)}, map[string][]int{"a": {0, 1, 2}}},
		{"the same two again", 5, []kafka.GroupMember{claimant("a", 4, 1, 3), claimant("b", 4, 0, 2, 4)},
			map[string][]int{"a": {1, 3}, "b": {0, 2, 4}}},
		{"a third joins", 6, []kafka.GroupMember{claimant("a", 4, 0, 1, 2), claimant("b", 4, 3, 4, 5), claimant("c", 0)},
			map[string][]int{"a": {0, 1}, "b": {3, 4}, "c": {2, 5}}},
		{"one of three leaves", 6, []kafka.GroupMember{claimant("a", 4, 0, 1), claimant("b", 4, 3, 4)},
			map[string][]int{"a": {0, 1, 2}, "b": {3, 4, 5}}},
		{"more members than partitions", 2, []kafka.GroupMember{claimant("a", 0), claimant("b", 7, 0), claimant("c", 7, 1)},
			map[string][]int{"a": nil, "b": {0}, "c": {1}}},
		{"one comes back from being frozen", 4, []kafka.GroupMember{claimant("a", 3, 0, 1), claimant("b", 5, 0, 1, 2, 3)},
			map[string][]int{"a": {2, 3}, "b": {0, 1}}},
		{"two claims of one generation", 2, []kafka.GroupMember{claimant("b", 1, 0, 1), claimant("a", 1, 0)},
			map[string][]int{"a": {0}, "b": {1}}},
		{"a claim beyond the topic", 2, []kafka.GroupMember{claimant("a", 1, 1, 2, 3), claimant("b", 1)},
			map[string][]int{"a": {1}, "b": {0}}},
		{"claims that cannot be read", 2, []kafka.GroupMember{
			{ID: "a", Topics: []string{stickyTopic}, UserData: []byte{lastAssignmentFormat + 1, 9}},
			{ID: "b", Topics: []string{stickyTopic}}},
			map[string][]int{"a": {0}, "b": {1}}},
		{"a member of another topic", 2, []kafka.GroupMember{claimant("a", 0), {ID: "x", Topics: []string{"other"}}},
			map[string][]int{"a": {0, 1}, "x": nil}},
		{"nobody", 2, nil, map[string][]int{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := assign(tc.members, tc.partitions); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// kept counts partitions that stay where the claim to them is: of the group's last generation, and older.
type kept struct{ fresh, stale int }

func (k *kept) add(fresh bool) {
	if fresh {
		k.fresh++
	} else {
		k.stale++
	}
}

func (k kept) less(o kept) bool { return k.fresh < o.fresh || k.fresh == o.fresh && k.stale < o.stale }

// mostKept is the best there can be, found by trying every way to give out the places for one more.
func mostKept(held []kept, partitions int) kept {
	floor, extra := partitions/len(held), partitions%len(held)
	var most kept
	for chosen := range uint(1) << len(held) {
		if bits.OnesCount(chosen) != extra {
			continue
		}
		var k kept
		for i, h := range held {
			quota := floor + int(chosen>>i&1)
			k.fresh += min(h.fresh, quota)
			k.stale += min(h.stale, quota)
		}
		if most.less(k) {
			most = k
		}
	}
	return most
}

func TestStickyProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(0, 40).Draw(t, "partitions")
		n := rapid.IntRange(1, 7).Draw(t, "members")
		members := make([]kafka.GroupMember, n)
		latest := map[int][2]int{} // partition → generation, member+1
		newest := 0
		for i := range members {
			generation := rapid.IntRange(0, 5).Draw(t, "generation")
			claims := rapid.SliceOfNDistinct(rapid.IntRange(0, 44), 0, 30, rapid.ID).Draw(t, "claims")
			slices.Sort(claims)
			newest = max(newest, generation)
			members[i] = claimant(fmt.Sprint("m", i), generation, claims...)
			for _, p := range claims {
				if old := latest[p]; p < partitions && (old[1] == 0 || generation > old[0]) {
					latest[p] = [2]int{generation, i + 1}
				}
			}
		}
		held := make([]kept, n)
		for _, l := range latest {
			held[l[1]-1].add(l[0] == newest)
		}
		got := assign(members, partitions)
		owners, stayed, least, greatest := map[int]string{}, kept{}, partitions, 0
		for i := range members {
			given := got[members[i].ID]
			least, greatest = min(least, len(given)), max(greatest, len(given))
			for _, p := range given {
				if owners[p] != "" {
					t.Fatalf("partition %d belongs to %s and %s", p, owners[p], members[i].ID)
				}
				owners[p] = members[i].ID
				if latest[p][1] == i+1 {
					stayed.add(latest[p][0] == newest)
				}
			}
		}
		if len(owners) != partitions || greatest-least > 1 {
			t.Fatalf("%d of %d partitions have an owner, members have %d to %d", len(owners), partitions, least, greatest)
		}
		if want := mostKept(held, partitions); stayed != want {
			t.Fatalf("%+v partitions stay, %+v could", stayed, want)
		}
		if again := assign(rapid.Permutation(members).Draw(t, "order"), partitions); !reflect.DeepEqual(again, got) {
			t.Fatalf("in another order of members %v, before %v", again, got)
		}
	})
}

// A group that lives: members join, leave, freeze and come back, some without having heard of a generation. Whoever has a
// partition's latest memory keeps it unless balance asks for it.
func TestStickyOverGenerations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 24).Draw(t, "partitions")
		balancers := map[string]*stickyBalancer{}
		warm := map[int]string{} // partition → who was given it last
		for generation := 1; generation <= 12; generation++ {
			present := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 5, rapid.ID).Draw(t, "present")
			var members []kafka.GroupMember
			held := make([]kept, len(present))
			for i, id := range present {
				if balancers[id] == nil {
					balancers[id] = &stickyBalancer{topic: stickyTopic}
				}
				raw, err := balancers[id].UserData()
				if err != nil {
					t.Fatal(err)
				}
				members = append(members, kafka.GroupMember{ID: id, Topics: []string{stickyTopic}, UserData: raw})
				for _, owner := range warm {
					if owner == id {
						held[i].fresh++
					}
				}
			}
			stayed := 0
			for id, given := range assign(members, partitions) {
				for _, p := range given {
					if warm[p] == id {
						stayed++
					}
					warm[p] = id
				}
				balancers[id].remember(generation, given)
			}
			if want := mostKept(held, partitions).fresh; stayed != want {
				t.Fatalf("generation %d: %d partitions stay, %d could", generation, stayed, want)
			}
		}
	})
}

func FuzzClaim(f *testing.F) {
	f.Add(lastAssignment{}.encode())
	f.Add(lastAssignment{generation: 7, partitions: []int{0, 1, 63}}.encode())
	f.Add([]byte{lastAssignmentFormat, 1, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{lastAssignmentFormat, 1, 2, 1, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := decodeLastAssignment(raw)
		if err != nil {
			return
		}
		if !slices.IsSorted(c.partitions) || len(slices.Compact(slices.Clone(c.partitions))) != len(c.partitions) {
			t.Fatalf("partitions %v", c.partitions)
		}
		again, err := decodeLastAssignment(c.encode())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}
