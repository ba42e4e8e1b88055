package deploy

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// dockerNames is where Docker's name server listens within a container.
const dockerNames = "127.0.0.11"

// nameServer stands for Docker's: it knows the services that run, and their addresses for ten minutes.
type nameServer struct {
	address string
	mu      sync.Mutex
	known   map[string]netip.Addr
}

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	n := &nameServer{address: socket.LocalAddr().String(), known: map[string]netip.Addr{}}
	ended := make(chan error, 1)
	go func() { ended <- n.serve(socket) }()
	t.Cleanup(func() {
		_ = socket.Close() // which ends serve
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the name server ended: %v", err)
		}
	})
	return n
}

// set lets a name have an IPv4 address.
func (n *nameServer) set(name, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = netip.MustParseAddr(address)
}

func (n *nameServer) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, name)
}

func (n *nameServer) serve(socket net.PacketConn) error {
	question := make([]byte, 512)
	for {
		size, from, err := socket.ReadFrom(question)
		if err != nil {
			return err
		}
		if answer := n.answer(question[:size]); answer != nil {
			if _, err := socket.WriteTo(answer, from); err != nil {
				return err
			}
		}
	}
}

// answer answers a question for one address, RFC 1035 section 4.1. What is no question gets no answer.
func (n *nameServer) answer(question []byte) []byte {
	const header, pointerToName, typeA, classInternet, ttl = 12, 0xc00c, 1, 1, 600
	if len(question) < header {
		return nil
	}
	name, end := "", header
	for end < len(question) && question[end] != 0 {
		label := end + 1 + int(question[end])
		if label >= len(question) {
			return nil
		}
		if name != "" {
			name += "."
		}
		name, end = name+string(question[end+1:label]), label
	}
	end += 5 // the empty label, type and class
	if end > len(question) || binary.BigEndian.Uint16(question[4:]) != 1 {
		return nil
	}
	n.mu.Lock()
	address, known := n.known[name]
	n.mu.Unlock()
	answer := append([]byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question[header:end]...)
	switch {
	case !known:
		answer[3] |= 3 // no such name
	case binary.BigEndian.Uint16(question[end-4:]) == typeA:
		answer[7] = 1
		for _, field := range []uint16{pointerToName, typeA, classInternet, 0, ttl, 4} {
			answer = binary.BigEndian.AppendUint16(answer, field)
		}
		answer = append(answer, address.AsSlice()...)
	}
	return answer
}

// The stand-in answers as a name server does: Go's own resolver is the judge.
func TestNameServer(t *testing.T) {
	n := startNameServer(t)
	n.set("gate", "127.0.0.1")
	asking := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", n.address)
	}}
	found, err := asking.LookupNetIP(t.Context(), "ip4", "gate.")
	if err != nil || len(found) != 1 || found[0].Unmap() != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("got %v, %v", found, err)
	}
	n.forget("gate")
	var no *net.DNSError
	if found, err := asking.LookupNetIP(t.Context(), "ip4", "gate."); !errors.As(err, &no) || !no.IsNotFound {
		t.Errorf("got %v, %v, want no such name", found, err)
	}
	for _, broken := range []string{"", "\x00\x01", "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x3fgate"} {
		if answer := n.answer([]byte(broken)); answer != nil {
			t.Errorf("%q is answered with %q", broken, answer)
		}
	}
}
