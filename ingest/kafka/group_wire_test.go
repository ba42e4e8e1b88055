package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// conversation is a connection whose other end has one answer.
type conversation struct {
	sent   bytes.Buffer
	answer bytes.Reader
}

func (c *conversation) Write(b []byte) (int, error) { return c.sent.Write(b) }
func (c *conversation) Read(b []byte) (int, error)  { return c.answer.Read(b) }

// exchange has r sent at a version, and answered with response as kmsg, which shares no code with this package, writes it. It returns what
// kmsg has read of the request.
func exchange[R any](t *testing.T, r *groupRequest, version int16, request kmsg.Request, response kmsg.Response, read func(*groupAnswer) (R, error)) (R, error) {
	t.Helper()
	response.SetVersion(version)
	body := response.AppendTo([]byte{0, 0, 0, 0})
	c := &conversation{}
	c.answer.Reset(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	if !r.Required(map[protocol.ApiKey]int16{r.key: version}) {
		t.Fatal("the exchange is left to the library")
	}
	answer, err := r.RawExchange(c)
	if err != nil {
		t.Fatal(err)
	}
	sent := c.sent.Bytes()
	head := 4 + 2 + 2 + 4 + 2 + len(clientID)
	if size := int(binary.BigEndian.Uint32(sent)); size != len(sent)-4 || !bytes.Contains(sent[:head], []byte(clientID)) {
		t.Fatalf("header % x of %d bytes", sent[:head], len(sent))
	}
	if key, v := int16(binary.BigEndian.Uint16(sent[4:])), int16(binary.BigEndian.Uint16(sent[6:])); key != request.Key() || v != version {
		t.Fatalf("request %d of version %d, want %d of version %d", key, v, request.Key(), version)
	}
	request.SetVersion(version)
	if err := request.ReadFrom(sent[head:]); err != nil {
		t.Fatalf("version %d: %v", version, err)
	}
	if again := request.AppendTo(nil); !bytes.Equal(again, sent[head:]) {
		t.Errorf("version %d: sent % x, which is % x", version, sent[head:], again)
	}
	return read(answer.(*groupAnswer))
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// Each request, at each version that weir writes, is what another library reads, and its answer what that one writes.
func TestGroupRequestsAreKafkas(t *testing.T) {
	id := identity{group: "g", member: "m-1", instance: "pod-0"}
	for version := int16(2); version <= joinInstanceVersion; version++ {
		who := id
		if version < joinInstanceVersion {
			who.instance = ""
		}
		request, response := kmsg.NewJoinGroupRequest(), kmsg.NewJoinGroupResponse()
		response.Generation, response.Protocol, response.LeaderID, response.MemberID = 7, kmsg.StringPtr("weir-sticky"), "m-1", "m-1"
		other := kmsg.NewConsumerMemberMetadata()
		other.Version, other.Topics, other.UserData = 1, []string{"a", "b"}, []byte("had")
		member := kmsg.NewJoinGroupResponseMember()
		member.MemberID, member.InstanceID, member.ProtocolMetadata = "m-2", kmsg.StringPtr("pod-1"), other.AppendTo(nil)
		response.Members = []kmsg.JoinGroupResponseMember{member}
		j := joining{identity: who, sessionMS: 10_000, rebalanceMS: 5000, protocols: []groupProtocol{{"weir-sticky", []byte("x")}, {"range", []byte{}}}}
		got, err := exchange(t, j.request(), version, &request, &response, readJoined)
		if err != nil || got.generation != 7 || got.protocol != "weir-sticky" || got.leader != "m-1" || got.memberID != "m-1" || len(got.members) != 1 {
			t.Fatalf("version %d: %+v, %v", version, got, err)
		}
		if m := got.members[0]; m.ID != "m-2" || !slices.Equal(m.Topics, other.Topics) || string(m.UserData) != "had" {
			t.Errorf("version %d: member %+v", version, m)
		}
		if request.Group != "g" || request.MemberID != "m-1" || request.SessionTimeoutMillis != 10_000 || request.RebalanceTimeoutMillis != 5000 ||
			request.ProtocolType != "consumer" || len(request.Protocols) != 2 || request.Protocols[0].Name != "weir-sticky" || string(request.Protocols[0].Metadata) != "x" ||
			version == joinInstanceVersion && text(request.InstanceID) != "pod-0" {
			t.Errorf("version %d: %+v", version, request)
		}
	}
	for version := int16(0); version <= instanceVersion; version++ {
		who := id
		if version < instanceVersion {
			who.instance = ""
		}
		sync, synced := kmsg.NewSyncGroupRequest(), kmsg.NewSyncGroupResponse()
		given := kmsg.NewConsumerMemberAssignment()
		given.Version = 1
		given.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "other", Partitions: []int32{9}}, {Topic: "t", Partitions: []int32{3, 1}}}
		synced.MemberAssignment = given.AppendTo(nil)
		s := syncing{identity: who, generation: 7, assignments: kafka.GroupMemberAssignments{"m-2": {"t": {0, 2}}}}
		partitions, err := exchange(t, s.request(), version, &sync, &synced, func(a *groupAnswer) ([]int, error) { return readSynced(a, "t") })
		if err != nil || !slices.Equal(partitions, []int{3, 1}) {
			t.Errorf("version %d: %v, %v", version, partitions, err)
		}
		var assigned kmsg.ConsumerMemberAssignment
		if len(sync.GroupAssignment) != 1 || sync.GroupAssignment[0].MemberID != "m-2" || assigned.ReadFrom(sync.GroupAssignment[0].MemberAssignment) != nil ||
			len(assigned.Topics) != 1 || assigned.Topics[0].Topic != "t" || !slices.Equal(assigned.Topics[0].Partitions, []int32{0, 2}) || sync.Generation != 7 {
			t.Errorf("version %d: %+v %+v", version, sync, assigned)
		}
		beat, alive := kmsg.NewHeartbeatRequest(), kmsg.NewHeartbeatResponse()
		alive.ThrottleMillis, alive.ErrorCode = 12, 27
		if _, err := exchange(t, who.heartbeat(7), version, &beat, &alive, outcome); !errors.Is(err, kafka.RebalanceInProgress) {
			t.Errorf("version %d: %v, want a rebalance, and not what the broker throttles by", version, err)
		}
		if beat.Group != "g" || beat.MemberID != "m-1" || beat.Generation != 7 || version == instanceVersion && text(beat.InstanceID) != "pod-0" {
			t.Errorf("version %d: %+v", version, beat)
		}
		leave, left := kmsg.NewLeaveGroupRequest(), kmsg.NewLeaveGroupResponse()
		if version == instanceVersion { // there, each member has an answer of its own
			left.Members = []kmsg.LeaveGroupResponseMember{{MemberID: "m-1", ErrorCode: 82}}
		} else {
			left.ErrorCode = 82
		}
		if _, err := exchange(t, who.leaving(), version, &leave, &left, outcome); !errors.Is(err, kafka.FencedInstanceID) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

func outcome(a *groupAnswer) (struct{}, error) { return struct{}{}, readOutcome(a) }

// What a member says of itself is, to the byte, what builds before this one read: kafka-go refuses a byte more.
func TestMetadataIsThatOfBuildsBefore(t *testing.T) {
	for _, userData := range [][]byte{nil, {}, []byte("had")} {
		want := kmsg.NewConsumerMemberMetadata()
		want.Version, want.Topics, want.UserData = 0, []string{"t"}, userData // version 0 has no field beyond
		b := want.AppendTo(nil)
		b[1] = 1
		if got := appendMetadata("t", userData); !bytes.Equal(got, b) {
			t.Errorf("% x, want % x", got, b)
		}
	}
}

// A broker that is too old for an instance id is named, and nothing is sent.
func TestInstanceNeedsABroker(t *testing.T) {
	id := identity{group: "g", instance: "pod-0"}
	for _, r := range []*groupRequest{joining{identity: id}.request(), syncing{identity: id}.request(), id.heartbeat(1), id.leaving()} {
		r.Required(map[protocol.ApiKey]int16{r.key: r.least - 1})
		c := &conversation{}
		if _, err := r.RawExchange(c); !errors.Is(err, kafka.UnsupportedVersion) || !strings.Contains(err.Error(), "weir needs") || c.sent.Len() > 0 {
			t.Errorf("%s: %v after % x", r.key, err, c.sent.Bytes())
		}
	}
}

// Whatever a coordinator answers, it is read or refused.
func FuzzGroupAnswers(f *testing.F) {
	response := kmsg.NewJoinGroupResponse()
	response.SetVersion(joinInstanceVersion)
	response.Protocol = kmsg.StringPtr("range")
	f.Add(response.AppendTo(nil), int16(joinInstanceVersion))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}, int16(3))
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		answer := func(key protocol.ApiKey) *groupAnswer {
			return &groupAnswer{key: key, version: version, answerCursor: answerCursor{rest: bytes.Clone(body)}}
		}
		if j, err := readJoined(answer(protocol.JoinGroup)); err == nil {
			named := len(j.protocol) + len(j.leader) + len(j.memberID)
			for _, m := range j.members {
				named += len(m.ID) + len(m.UserData) + len(strings.Join(m.Topics, ""))
			}
			if named > len(body) {
				t.Errorf("%d bytes became %+v", len(body), j)
			}
		}
		if partitions, err := readSynced(answer(protocol.SyncGroup), "t"); err == nil && 4*len(partitions) > len(body) {
			t.Errorf("%d bytes became %d partitions", len(body), len(partitions))
		}
		_ = readOutcome(answer(protocol.Heartbeat))
		_ = readOutcome(answer(protocol.LeaveGroup))
	})
}
