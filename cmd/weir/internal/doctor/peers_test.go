package doctor

import (
	"errors"
	"fmt"
	"strings"
)

// from is n events of a peer, with what a proxy has written into X-Forwarded-For; empty: it has written nothing. Where
// it has a %d, each event's is another.
func from(peer, forwarded string, n int) (events []string) {
	for i := range n {
		text := strings.Replace(event(0, device), `"198.51.100.7"`, `"`+peer+`"`, 1)
		if strings.Contains(forwarded, "%d") {
			text = strings.TrimSuffix(text, "}") + fmt.Sprintf(`,"forwarded_for":%q}`, fmt.Sprintf(forwarded, i%250))
		} else if forwarded != "" {
			text = strings.TrimSuffix(text, "}") + fmt.Sprintf(`,"forwarded_for":%q}`, forwarded)
		}
		events = append(events, text)
	}
	return events
}

// many is n events of as many clients.
func many(n int) (events []string) {
	for i := range n {
		events = append(events, from(fmt.Sprintf("198.51.%d.%d", 100+i/250, 1+i%250), "", 1)...)
	}
	return events
}

// rowsOfPeers are of events whose addresses are not their clients'.
func rowsOfPeers() []row {
	peers := func(name, proxies string, events []string, st Status, text, remedy string, also ...string) row {
		return row{"peers: " + name, func(w *world) {
			trust(w, proxies)
			w.events = events
		}, "client addresses", st, text, remedy, also}
	}
	two := append(append(from("192.0.2.1", "203.0.113.%d", 120), from("192.0.2.2", "203.0.113.%d", 74)...), many(6)...)
	return []row{
		peers("everybody is one of two proxies", "0", two, Warn,
			"97 % of 200 events carry X-Forwarded-For and come from 2 peers (192.0.2.1, 192.0.2.2): the address that is counted is theirs",
			"identity.ip.trusted_proxies: [192.0.2.1, 192.0.2.2], and weir migrate; if they are not"),
		peers("others are trusted", "10.0.0.0/8", two, Warn, "come from 2 peers",
			"trusted_proxies: [192.0.2.1, 192.0.2.2]"),
		peers("they are trusted", "192.0.2.0/24", two, OK, "of 200 events", ""),
		peers("one client behind those that are trusted", "192.0.2.0/24", append(from("192.0.2.1", "203.0.113.9", 100),
			many(5)...), Warn,
			"one address, 203.0.113.9, makes 95 %", "weir history hits --source 203.0.113.9"),
		peers("one is counted", "1", two, OK, "120 of 194 events", "", "trusted proxies", "identity ip"),
		peers("a peer with a port", "0", append(from("[2001:db8::1]:443", "203.0.113.%d", 100), many(5)...), Warn,
			"95 % of 105 events carry X-Forwarded-For and come from 1 peer (2001:db8::1)",
			"trusted_proxies: [2001:db8::1]"),
		peers("so do some", "0", append(from("192.0.2.1", "203.0.113.%d", 38), many(162)...), OK,
			"the most frequent makes 19 %", ""),
		peers("clients who write it themselves", "0", func() (events []string) {
			for i := range 200 {
				events = append(events, from(fmt.Sprintf("198.51.100.%d", i), "127.0.0.1", 1)...)
			}
			return events
		}(), OK, "200 of 200 events; the most frequent makes 0 %", ""),
		peers("a header that is no list of addresses", "0", append(from("192.0.2.1", `"><script>`, 110), many(5)...),
			Warn, "come from 1 peer", ""),
		peers("a fifth of the traffic", "0", append(from("192.0.2.1", "", 40), many(160)...), Warn,
			"one address, 192.0.2.1, makes 20 % of 200 events", "weir history hits --source 192.0.2.1"),
		peers("not quite a fifth", "0", append(from("192.0.2.1", "", 39), many(161)...), OK,
			"the most frequent makes 19 %", ""),
		peers("too few", "0", from("192.0.2.1", "203.0.113.%d", 99), OK, "too few to judge: 99 events with one", ""),
		{"peers: a part was read", func(w *world) { w.unread = errors.New("partition 3 has no leader") }, "events",
			Warn,
			"holds for the 20 events that could be read: partition 3 has no leader", "see the brokers' logs", nil},
	}
}
