package access

import (
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/weirhq/weir/traffic"
)

// Text is a line of words as actor is shown it: subjects, addresses, and the word behind the name of a field (user alice) have pseudonyms in
// them. It is for what weir itself writes, such as the objects of the audit trail (`block RULE SUBJECT`) and commands. Of what people write,
// reasons, it can only go by the words: TextAbout knows more of those.
func (m *Masker) Text(actor Actor, text string) string {
	if !m.MasksAny(actor) {
		return text
	}
	as := func(field, value string) string { return m.Value(actor, field, value) }
	var out strings.Builder
	field, apart := "", "" // what the word before names, and what has been between
	for len(text) > 0 {
		n := strings.IndexAny(text, wordEnds)
		switch n {
		case -1:
			n = len(text)
		case 0:
			out.WriteByte(text[0])
			apart += text[:1]
			text = text[1:]
			continue
		}
		word := text[:n]
		text = text[n:]
		if strings.Trim(apart, " \"'`") != "" {
			field = "" // another clause
		}
		masked := m.word(actor, word, as)
		if masked == word && field != "" && !ordinary(word) && !strings.Contains(word, "=") && !strings.HasPrefix(word, pseudonymMark) {
			bare := strings.TrimRight(word, sentenceEnds)
			masked = m.Value(actor, field, bare) + word[len(bare):]
		}
		out.WriteString(masked)
		field, apart = m.named(actor, word), ""
	}
	return out.String()
}

// wordEnds separate the words of a line; none of them is in a subject. sentenceEnds may end a word and are none of its own.
const (
	wordEnds     = " \t\r\n'\"`,;()<>[]{}|"
	sentenceEnds = ".:!?"
)

// named is the masked field that a word names, so that the next one is a value of it; empty: none.
func (m *Masker) named(actor Actor, word string) string {
	name := strings.ToLower(strings.TrimRight(word, ":"))
	if name == "ip" || !slices.Contains(DefaultMaskedFields(), name) || !m.Masks(actor, name) { // addresses are known by their look
		return ""
	}
	return name
}

// ordinary reports whether a word behind the name of a field is one of the language, as in "the user agent", "a device is".
func ordinary(word string) bool {
	return slices.Contains(strings.Fields(`a agent agents allowed an and api_key are as asked at be behind but by called can count counts device devices field for from
		got had has have in ip is it its key keys may named names needs no not of on or rotates seen sees session sessions that the they to user users value values was were
		which who whom whose will with`), strings.ToLower(strings.TrimRight(word, sentenceEnds)))
}

// writing says how a value of a field is written.
type writing func(field, value string) string

// word masks the values of subjects and the addresses of one word.
func (m *Masker) word(actor Actor, word string, as writing) string {
	if isAddress(word) {
		return as("ip", word)
	}
	if !strings.Contains(word, "=") {
		return m.addresses(actor, word, as)
	}
	parts := strings.Split(word, "&")
	for i, part := range parts {
		field, value, has := strings.Cut(part, "=")
		if !has || value == "" || !m.Masks(actor, field) {
			parts[i] = m.addresses(actor, part, as)
			continue
		}
		if _, shown := m.cipher.open(field, value); shown { // words that were masked before
			continue
		}
		if decoded, err := traffic.Subject(part).Values(); err == nil && len(decoded) == 1 {
			value = decoded[0].Value
		}
		parts[i] = field + "=" + as(field, value)
	}
	return strings.Join(parts, "&")
}

// addresses masks the addresses within a word: at the end of a sentence, in a URL, with a port.
func (m *Masker) addresses(actor Actor, word string, as writing) string {
	if !m.Masks(actor, "ip") || strings.HasPrefix(word, pseudonymMark) {
		return word
	}
	var out strings.Builder
	for len(word) > 0 {
		n := 0
		for n < len(word) && strings.IndexByte("0123456789abcdefABCDEF:.", word[n]) >= 0 {
			n++
		}
		if n == 0 {
			out.WriteByte(word[0])
			word = word[1:]
			continue
		}
		run := word[:n]
		word = word[n:]
		bare := strings.TrimRight(run, ".")
		if host, _, ported := strings.Cut(bare, ":"); ported && strings.Count(bare, ":") == 1 {
			bare = host
		} else if _, err := netip.ParseAddr(bare); err != nil {
			bare = strings.TrimSuffix(bare, ":")
		}
		if _, err := netip.ParseAddr(bare); err == nil {
			out.WriteString(as("ip", bare))
			out.WriteString(run[len(bare):])
			continue
		}
		out.WriteString(run)
	}
	return out.String()
}

// inWord reports whether a character beside a value makes it a part of a longer word.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '~'
}
