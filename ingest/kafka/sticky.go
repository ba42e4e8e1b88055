package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go"
)

// stickyProtocol names weir's way of sharing partitions in the group protocol. A group takes a way that all its members
// know: beside members that only know range, range it is.
const stickyProtocol = "weir-sticky"

// lastAssignmentFormat is the format of a last assignment that this build writes, its first byte. Another format counts as none:
// its member is given its share like a new one.
const lastAssignmentFormat = 1

// maxAssignedPartitions bounds what a last assignment may name; far above any topic of weir.
const maxAssignedPartitions = 1 << 20

// lastAssignment is what a member says it had last, and under which generation of the group it was given it. It travels as the
// member's user data when it joins.
//
// The generation only decides between members that both had a partition: the later one is whose memory is warm. It is no
// fence, because generations count anew when a group was forgotten by its brokers; the worst that a wrong one does is
// a partition that comes to an owner with cold memory.
type lastAssignment struct {
	generation int64
	partitions []int // ascending
}

// encode writes the layout: byte format, uvarint generation, uvarint count, partitions (first, then differences).
func (c lastAssignment) encode() []byte {
	dst := []byte{lastAssignmentFormat}
	dst = binary.AppendUvarint(dst, uint64(c.generation))
	dst = binary.AppendUvarint(dst, uint64(len(c.partitions)))
	last := 0
	for _, p := range c.partitions {
		dst = binary.AppendUvarint(dst, uint64(p-last))
		last = p
	}
	return dst
}

// decodeLastAssignment reads what encode wrote. What is damaged, or of another format, is an error.
func decodeLastAssignment(b []byte) (lastAssignment, error) {
	if len(b) == 0 || b[0] != lastAssignmentFormat {
		return lastAssignment{}, fmt.Errorf("last assignment of %d bytes: its format is not %d", len(b), lastAssignmentFormat)
	}
	b = b[1:]
	bad := false
	number := func(most uint64) int64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > most {
			bad = true
			return 0
		}
		b = b[n:]
		return int64(v)
	}
	c := lastAssignment{generation: number(1<<62 - 1)}
	count, last := number(min(maxAssignedPartitions, uint64(len(b)))), int64(0)
	for i := range count {
		step := number(maxAssignedPartitions)
		last += step
		if bad || i > 0 && step == 0 || last > maxAssignedPartitions {
			return lastAssignment{}, fmt.Errorf("last assignment: partition %d of %d is cut, out of order or above %d", i, count, maxAssignedPartitions)
		}
		c.partitions = append(c.partitions, int(last))
	}
	if bad || len(b) != 0 {
		return lastAssignment{}, fmt.Errorf("last assignment: %d bytes too many or a number that is cut", len(b))
	}
	return c, nil
}

// stickyBalancer shares a topic's partitions so that as few as possible change their owner: memory that belongs to a
// partition stays warm. The idea is that of Kafka's StickyAssignor (KIP-54) for one topic, where balance and the least
// number of moves do not contradict each other.
//
// It is a function of the members' last assignments and the partitions alone:
//
//	every partition is given to exactly one member
//	no member has two more than another
//	among all such ways, one with the most partitions that stay with the member who had them in the group's last
//	generation, and then with the one who had them latest in older ones, whose memory may be warm yet
type stickyBalancer struct {
	topic string

	mu  sync.Mutex
	own lastAssignment // what this process had last, under any membership: memory outlives those
}

var _ kafka.GroupBalancer = (*stickyBalancer)(nil)

// remember notes what a generation gave to this member.
func (b *stickyBalancer) remember(generation int, partitions []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own = lastAssignment{generation: int64(generation), partitions: slices.Clone(partitions)}
}

// ProtocolName implements kafka.GroupBalancer.
func (*stickyBalancer) ProtocolName() string { return stickyProtocol }

// UserData implements kafka.GroupBalancer. It is asked for at every join.
func (b *stickyBalancer) UserData() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.own.encode(), nil
}

// AssignGroups implements kafka.GroupBalancer: it is called at the member that the coordinator has made the leader.
func (b *stickyBalancer) AssignGroups(members []kafka.GroupMember, all []kafka.Partition) kafka.GroupMemberAssignments {
	out := kafka.GroupMemberAssignments{}
	var sharing []shareholder
	for _, m := range members {
		out[m.ID] = map[string][]int{}
		if !slices.Contains(m.Topics, b.topic) {
			continue
		}
		c, err := decodeLastAssignment(m.UserData)
		if err != nil {
			c = lastAssignment{} // of a build that says it otherwise: as if it were new
		}
		sharing = append(sharing, shareholder{id: m.ID, last: c})
	}
	var partitions []int
	for _, p := range all {
		if p.Topic == b.topic {
			partitions = append(partitions, p.ID)
		}
	}
	slices.Sort(partitions)
	for _, s := range share(sharing, slices.Compact(partitions)) {
		if len(s.given) > 0 {
			out[s.id][b.topic] = s.given
		}
	}
	return out
}

// shareholder is a member while partitions are shared out.
type shareholder struct {
	id    string
	last  lastAssignment
	given []int // ascending in the end
	quota int
}

// share gives each of partitions, ascending, to one member.
func share(members []shareholder, partitions []int) []shareholder {
	if len(members) == 0 {
		return nil
	}
	slices.SortFunc(members, func(a, b shareholder) int { return strings.Compare(a.id, b.id) })
	settle(members, partitions)
	floor, extra, newest := len(partitions)/len(members), len(partitions)%len(members), int64(0)
	for i := range members {
		newest = max(newest, members[i].last.generation)
	}
	// Where the partitions do not divide evenly some members have one more: first those that thereby keep a partition that
	// would have to move otherwise.
	byGain := make([]*shareholder, len(members))
	for i := range members {
		byGain[i] = &members[i]
	}
	slices.SortStableFunc(byGain, func(a, b *shareholder) int { return b.gain(floor, newest) - a.gain(floor, newest) })
	held := make(map[int]bool, len(partitions))
	for i, m := range byGain {
		m.quota = floor
		if i < extra {
			m.quota++
		}
		m.given = m.given[:min(len(m.given), m.quota)]
		for _, p := range m.given {
			held[p] = true
		}
	}
	at := 0
	for _, p := range partitions {
		if held[p] {
			continue
		}
		for len(members[at].given) >= members[at].quota {
			at++ // quotas add up to the number of partitions, so there is one with room
		}
		members[at].given = append(members[at].given, p)
	}
	for i := range members {
		slices.Sort(members[i].given)
	}
	return members
}

// gain is what one place above floor is worth to a member.
func (s *shareholder) gain(floor int, newest int64) int {
	switch {
	case len(s.given) <= floor:
		return 0
	case s.last.generation < newest:
		return 1
	}
	return 2
}

// settle gives each partition to the member who had it in the latest generation. Two members name the same generation only
// when generations have begun anew; then the first by id gets it.
func settle(members []shareholder, partitions []int) {
	owner := make(map[int]int, len(partitions))
	for i := range members {
		for _, p := range members[i].last.partitions {
			if before, taken := owner[p]; !taken || members[before].last.generation < members[i].last.generation {
				owner[p] = i
			}
		}
	}
	for _, p := range partitions {
		if i, ok := owner[p]; ok {
			members[i].given = append(members[i].given, p)
		}
	}
}
