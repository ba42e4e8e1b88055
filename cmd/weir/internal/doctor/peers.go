package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
)

// Whom a sample must show, to be told of.
const (
	peersLeast   = 100 // events, or shares mean little
	chainedWarns = 50  // percent of the events whose chain of proxies is not read
	proxiesMost  = 8   // peers that may be proxies; clients are more
	proxiesShare = 90  // percent of these events that come from so few
	addressWarns = 20  // percent of the events that one address makes
	shownPeers   = 3
)

// peers is from where the requests of a sample came.
type peers struct {
	known   int                // events with a client's address
	clients map[netip.Addr]int // by the address that is counted
	chained map[netip.Addr]int // of events with X-Forwarded-For: by the peer, where that is what is counted
}

// note adds an event, as routers read it.
func (p *peers) note(got *route.Explanation) {
	if got.Missing == nil || got.Missing[traffic.FieldIP] != traffic.Present {
		return
	}
	if p.clients == nil {
		p.clients, p.chained = map[netip.Addr]int{}, map[netip.Addr]int{}
	}
	client := got.Identity.IP
	p.known++
	p.clients[client]++
	if peer, ok := peerOf(got.Request.IP); ok && peer == client && got.Request.Forwarded != "" {
		p.chained[client]++
	}
}

// peerOf reads an event's peer, with or without a port.
func peerOf(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		both, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		a = both.Addr()
	}
	return a.Unmap().WithZone(""), true
}

// most lists the addresses of a count, the most frequent first.
func most(count map[netip.Addr]int) []netip.Addr {
	return slices.SortedFunc(maps.Keys(count), func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), a.Compare(b))
	})
}

func sum(count map[netip.Addr]int) (n int) {
	for _, one := range count {
		n += one
	}
	return n
}

// judgePeers says whether the addresses that are counted may be those of proxies, by what the events have and not by
// what is configured.
func (s *sampled) judgePeers() Finding {
	const name = "client addresses"
	p := &s.peers
	if p.known < peersLeast {
		return fine(name, "too few to judge: %s with one", plural.Of(p.known, "event"))
	}
	chained, by := sum(p.chained), most(p.chained)
	few := by[:min(len(by), proxiesMost)]
	from := 0
	for _, peer := range few {
		from += p.chained[peer]
	}
	if 100*chained >= chainedWarns*p.known && 100*from >= proxiesShare*chained {
		return warning(name, fmt.Sprintf("if these are proxies of yours, trust them with identity.ip.trusted_proxies: [%s], "+
			"and weir migrate; if they are not, they are clients, and never to be trusted", addressList(few, len(few))),
			"%d %% of %s carry X-Forwarded-For and come from %s (%s): the address that is counted is theirs, "+
				"so a block would hold all behind them",
			100*chained/p.known, plural.Of(p.known, "event"), plural.Of(len(by), "peer"), addressList(by, shownPeers))
	}
	first := most(p.clients)[0]
	if share := 100 * p.clients[first] / p.known; share >= addressWarns {
		return warning(name, "see whether it is a proxy, which must pass the client's address on and be trusted (identity.ip), "+
			"an office, or an abuser: weir history hits --source "+first.String(),
			"one address, %s, makes %d %% of %s", first, share, plural.Of(p.known, "event"))
	}
	return fine(name, "%d of %s; the most frequent makes %d %%",
		len(p.clients), plural.Of(p.known, "event"), 100*p.clients[first]/p.known)
}

// addressList names the first addresses of a list.
func addressList(all []netip.Addr, shown int) string {
	var parts []string
	for _, a := range all[:min(len(all), shown)] {
		parts = append(parts, a.String())
	}
	if len(all) > shown {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}
