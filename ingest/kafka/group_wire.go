package kafka

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// groupRequest is a request to the coordinator of a group, written and read by weir itself over a connection of kafka-go's
// Transport, which also finds the coordinator. kafka-go's own types cannot be used: its heartbeat is sent to any broker and its answer
// is read in the wrong order (PR #1371), its SyncGroup is not what brokers read from version 5 on, and what its Client writes
// about a member has a field more than builds of weir before this one accept from a member beside them.
//
// The versions are the last ones before Kafka's compact encoding, https://kafka.apache.org/protocol#The_Messages_JoinGroup; from the
// last of each on (Kafka 2.3) a member may have an instance id (KIP-345).
type groupRequest struct {
	key         protocol.ApiKey
	group       string
	least, most int16 // versions that body can write
	body        func(b []byte, version int16) []byte
	version     int16 // what the connection negotiated
}

// groupAnswer is what the coordinator has answered, after the header.
type groupAnswer struct {
	key     protocol.ApiKey
	version int16
	answerCursor
}

var (
	_ protocol.Message      = (*groupRequest)(nil)
	_ protocol.GroupMessage = (*groupRequest)(nil)
	_ protocol.RawExchanger = (*groupRequest)(nil)
	_ protocol.Message      = (*groupAnswer)(nil)
)

const (
	// instanceVersion is the first version of Heartbeat, SyncGroup and LeaveGroup that has an instance id; joinInstanceVersion that
	// of JoinGroup.
	instanceVersion     = 3
	joinInstanceVersion = 5
	// maxGroupAnswer bounds what a coordinator may answer: a leader is told of every member, with what each had last.
	maxGroupAnswer = 64 << 20
)

// ApiKey is the request's.
//
//nolint:staticcheck // kafka-go's interface spells it so
func (r *groupRequest) ApiKey() protocol.ApiKey { return r.key }

// Group is whose coordinator is asked.
func (r *groupRequest) Group() string { return r.group }

// Required takes over the exchange; the negotiated versions are told here only.
func (r *groupRequest) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = min(versions[r.key], r.most)
	return true
}

// RawExchange writes the request and reads its answer.
func (r *groupRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if r.version < r.least {
		return nil, fmt.Errorf("%s: the broker speaks version %d, weir needs %d: %w", r.key, r.version, r.least, kafka.UnsupportedVersion)
	}
	b := make([]byte, 4, 256) // the size comes with converse
	b = binary.BigEndian.AppendUint16(b, uint16(r.key))
	b = binary.BigEndian.AppendUint16(b, uint16(r.version))
	b = binary.BigEndian.AppendUint32(b, 0) // the only request under way on this connection
	b = appendKafkaString(b, clientID)
	b = r.body(b, r.version)
	answer, err := converse(rw, r.key.String(), b, 0, maxGroupAnswer)
	if err != nil {
		return nil, err
	}
	return &groupAnswer{key: r.key, version: r.version, answerCursor: answerCursor{rest: answer}}, nil
}

// ApiKey is the request's.
//
//nolint:staticcheck // kafka-go's interface spells it so
func (a *groupAnswer) ApiKey() protocol.ApiKey { return a.key }

// cut says that an answer ends within a field.
func (a *groupAnswer) cut() error {
	if a.bad {
		return fmt.Errorf("%s: the answer ends within a field", a.key)
	}
	return nil
}

// failure reads the error code, and is nil where there is none.
func (a *groupAnswer) failure() error {
	if code := kafka.Error(a.int16()); code != 0 && !a.bad {
		return code
	}
	return a.cut()
}

// text reads a string; null is empty.
func (c *answerCursor) text() string {
	n := c.int16()
	if n < 0 {
		return ""
	}
	return string(c.take(int(n)))
}

// blob reads bytes; null is nil.
func (c *answerCursor) blob() []byte {
	n := c.int32()
	if n < 0 {
		return nil
	}
	return c.take(int(n))
}

func appendKafkaBytes(b, of []byte) []byte {
	if of == nil {
		return binary.BigEndian.AppendUint32(b, ^uint32(0))
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(of))), of...)
}

// appendInstance writes a nullable string: a member without an instance id is a dynamic one.
func appendInstance(b []byte, instance string) []byte {
	if instance == "" {
		return binary.BigEndian.AppendUint16(b, ^uint16(0))
	}
	return appendKafkaString(b, instance)
}

// identity is who a member is to its coordinator.
type identity struct {
	group    string
	member   string // given by the coordinator; empty before the first join
	instance string // the process's own name, which outlives it; empty: none
}

// joining is a JoinGroup.
type joining struct {
	identity
	sessionMS, rebalanceMS int32
	protocols              []groupProtocol
}

// groupProtocol is a way of sharing partitions, with what the member has to say for it.
type groupProtocol struct {
	name     string
	metadata []byte
}

// joined is JoinGroup's answer. Members are told to the leader only.
type joined struct {
	generation       int32
	protocol         string
	leader, memberID string
	members          []kafka.GroupMember
}

func (j joining) request() *groupRequest {
	least := int16(2) // the first with rebalance_timeout that all brokers of today know
	if j.instance != "" {
		least = joinInstanceVersion
	}
	return &groupRequest{key: protocol.JoinGroup, group: j.group, least: least, most: joinInstanceVersion, body: func(b []byte, version int16) []byte {
		b = appendKafkaString(b, j.group)
		b = binary.BigEndian.AppendUint32(b, uint32(j.sessionMS))
		b = binary.BigEndian.AppendUint32(b, uint32(j.rebalanceMS))
		b = appendKafkaString(b, j.member)
		if version >= joinInstanceVersion {
			b = appendInstance(b, j.instance)
		}
		b = appendKafkaString(b, "consumer")
		b = binary.BigEndian.AppendUint32(b, uint32(len(j.protocols)))
		for _, p := range j.protocols {
			b = appendKafkaBytes(appendKafkaString(b, p.name), p.metadata)
		}
		return b
	}}
}

// readJoined returns the answer also beside an error: MemberIDRequired brings the id.
func readJoined(a *groupAnswer) (joined, error) {
	a.int32() // throttled for so long already
	failed := a.failure()
	out := joined{generation: a.int32(), protocol: a.text(), leader: a.text(), memberID: a.text()}
	for range a.count(6) {
		id := a.text()
		if a.version >= joinInstanceVersion {
			a.text()
		}
		m, err := readMetadata(a.blob())
		if err != nil {
			return joined{}, fmt.Errorf("member %s: %w", id, err)
		}
		m.ID = id
		out.members = append(out.members, m)
	}
	if failed == nil {
		failed = a.cut()
	}
	return out, failed
}

// metadataVersion is that of a member's metadata and assignment; what later ones add comes after, and is for protocols that weir
// does not speak.
const metadataVersion = 1

// appendMetadata writes what a member subscribes to: https://kafka.apache.org/protocol#The_Messages_ConsumerProtocolSubscription, to
// the byte as kafka-go's ConsumerGroup does, which takes no byte more from the members beside it.
func appendMetadata(topic string, userData []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, metadataVersion)
	b = binary.BigEndian.AppendUint32(b, 1)
	return appendKafkaBytes(appendKafkaString(b, topic), userData)
}

func readMetadata(b []byte) (kafka.GroupMember, error) {
	c := answerCursor{rest: b}
	c.int16()
	var m kafka.GroupMember
	for range c.count(2) {
		m.Topics = append(m.Topics, c.text())
	}
	m.UserData = c.blob()
	if c.bad {
		return kafka.GroupMember{}, fmt.Errorf("its metadata of %d bytes ends within a field", len(b))
	}
	return m, nil
}

// syncing is a SyncGroup; only the leader's has assignments.
type syncing struct {
	identity
	generation  int32
	assignments kafka.GroupMemberAssignments
}

func (s syncing) request() *groupRequest {
	return &groupRequest{key: protocol.SyncGroup, group: s.group, least: leastVersion(s.instance), most: instanceVersion, body: func(b []byte, version int16) []byte {
		b = appendMember(b, s.identity, s.generation, version)
		b = binary.BigEndian.AppendUint32(b, uint32(len(s.assignments)))
		for member, topics := range s.assignments {
			b = appendKafkaBytes(appendKafkaString(b, member), appendAssignment(topics))
		}
		return b
	}}
}

// appendAssignment writes https://kafka.apache.org/protocol#The_Messages_ConsumerProtocolAssignment.
func appendAssignment(topics map[string][]int) []byte {
	b := binary.BigEndian.AppendUint16(nil, metadataVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(topics)))
	for topic, partitions := range topics {
		b = appendKafkaString(b, topic)
		b = binary.BigEndian.AppendUint32(b, uint32(len(partitions)))
		for _, p := range partitions {
			b = binary.BigEndian.AppendUint32(b, uint32(p))
		}
	}
	return appendKafkaBytes(b, nil)
}

// readSynced returns the partitions of topic that are this member's, in the leader's order.
func readSynced(a *groupAnswer, topic string) ([]int, error) {
	if a.version >= 1 {
		a.int32() // throttled
	}
	if err := a.failure(); err != nil {
		return nil, err
	}
	assignment := a.blob()
	if err := a.cut(); err != nil || len(assignment) == 0 { // nothing is assigned
		return nil, err
	}
	c := answerCursor{rest: assignment}
	c.int16()
	var partitions []int
	for range c.count(6) {
		of := c.text()
		for range c.count(4) {
			if p := c.int32(); of == topic {
				partitions = append(partitions, int(p))
			}
		}
	}
	if c.bad {
		return nil, fmt.Errorf("%s: the assignment of %d bytes ends within a field", a.key, len(assignment))
	}
	return partitions, nil
}

func leastVersion(instance string) int16 {
	if instance != "" {
		return instanceVersion
	}
	return 0
}

// appendMember writes group, generation and member: as SyncGroup and Heartbeat begin.
func appendMember(b []byte, id identity, generation int32, version int16) []byte {
	b = appendKafkaString(b, id.group)
	b = binary.BigEndian.AppendUint32(b, uint32(generation))
	b = appendKafkaString(b, id.member)
	if version >= instanceVersion {
		b = appendInstance(b, id.instance)
	}
	return b
}

func (id identity) heartbeat(generation int32) *groupRequest {
	return &groupRequest{key: protocol.Heartbeat, group: id.group, least: leastVersion(id.instance), most: instanceVersion, body: func(b []byte, version int16) []byte {
		return appendMember(b, id, generation, version)
	}}
}

func (id identity) leaving() *groupRequest {
	return &groupRequest{key: protocol.LeaveGroup, group: id.group, least: leastVersion(id.instance), most: instanceVersion, body: func(b []byte, version int16) []byte {
		b = appendKafkaString(b, id.group)
		if version < instanceVersion {
			return appendKafkaString(b, id.member)
		}
		b = binary.BigEndian.AppendUint32(b, 1)
		return appendInstance(appendKafkaString(b, id.member), id.instance)
	}}
}

// readOutcome reads the answer to a heartbeat or a leave.
func readOutcome(a *groupAnswer) error {
	if a.version >= 1 {
		a.int32() // throttled
	}
	if err := a.failure(); err != nil {
		return err
	}
	if a.key == protocol.LeaveGroup && a.version >= instanceVersion {
		for range a.count(6) {
			a.text()
			a.text()
			if err := a.failure(); err != nil {
				return err
			}
		}
	}
	return a.cut()
}
