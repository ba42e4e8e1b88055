package access

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// known is what a request has met: values with their pseudonyms, and names of what is configured.
type known struct {
	mu      sync.Mutex
	shown   map[string]bool   // pseudonyms
	words   map[string]string // pseudonyms, by the values in small letters, as texts may have them
	lengths []int             // of the words, descending
	names   map[string]bool   // of rules, lists, owners, people: never replaced in a text
}

// meet remembers a value that weir has found, or that the actor has named by its pseudonym.
func (m *Mask) meet(field, value string) {
	if value == "" || !m.Masks(field) {
		return
	}
	pseudonym := m.masker.cipher.seal(field, value)
	word := field != traffic.FieldIP.String() || !isAddress(value) // addresses are known in texts by their look
	m.known.add(value, pseudonym, word)
}

func (k *known) add(value, pseudonym string, word bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shown == nil {
		k.shown, k.words = map[string]bool{}, map[string]string{}
	}
	k.shown[pseudonym] = true
	if !word {
		return
	}
	low := strings.ToLower(value)
	if _, there := k.words[low]; there {
		return
	}
	k.words[low] = pseudonym
	if i, there := slices.BinarySearchFunc(k.lengths, len(low), func(a, b int) int { return b - a }); !there {
		k.lengths = slices.Insert(k.lengths, i, len(low))
	}
}

func (m *Mask) meetSubject(s traffic.Subject) {
	if !m.Any() {
		return
	}
	values, err := s.Values()
	if err != nil {
		return
	}
	for _, v := range values {
		if !v.Missing {
			m.meet(v.Field, v.Value)
		}
	}
}

func (m *Mask) meetSample(sample string) {
	var s traffic.Sample
	if json.Unmarshal([]byte(sample), &s) != nil {
		return
	}
	for _, v := range []struct{ field, value string }{
		{"ip", s.IP}, {"device", s.Device}, {"user", s.User}, {"session", s.Session},
	} {
		m.meet(v.field, v.value)
	}
}

// name remembers the name of something that is configured.
func (k *known) name(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names == nil {
		k.names = map[string]bool{}
	}
	k.names[strings.ToLower(text)] = true
}

// named reports whether a word, in small letters, is such a name.
func (k *known) named(low string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.names[low]
}

// met reports whether the request has met what a pseudonym stands for.
func (k *known) met(pseudonym string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shown[pseudonym]
}

// begins finds the longest known value that low, a text in small letters, begins with, and that ends there as a word.
func (k *known) begins(low string, manner manner) (length int, pseudonym string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.lengths {
		if n > len(low) {
			continue
		}
		found, there := k.words[low[:n]]
		if !there {
			continue
		}
		if next, _ := utf8.DecodeRuneInString(low[n:]); n < len(low) && inWord(next) {
			continue
		}
		if manner.kept(low[:n]) || k.names[low[:n]] {
			return 0, ""
		}
		return n, found
	}
	return 0, ""
}
