package access

import (
	"crypto/sha256"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// manner is whose words a text is.
type manner struct {
	people bool // people wrote it; else weir did
	object bool // weir wrote it about sources that it has found: what it names has pseudonyms
	// the actor wrote it: known values are not looked for, since which of his words are some is not his to learn
	own bool
}

// Text is what people wrote, such as a reason, as it is shown: with pseudonyms for the values that the request has met,
// and without what else looks like one.
func (m *Mask) Text(text string) string { return m.read(text, manner{people: true}) }

// TextBy is Text of what somebody wrote: of what the actor himself wrote no word is told to be a value.
func (m *Mask) TextBy(text, author string) string {
	return m.read(text, manner{people: true, own: m.Any() && author != "" && author == m.actor.Name})
}

// Line is what weir wrote, and in which it may repeat what somebody gave: an error, a detail. It has pseudonyms as Text
// has.
func (m *Mask) Line(text string) string { return m.read(text, manner{}) }

// Object is what weir wrote about sources that it has found, such as the object of an entry of the audit trail.
func (m *Mask) Object(text string) string { return m.read(text, manner{object: true}) }

// Detail is Line for the detail of an entry of the audit trail: of its parts one may be the hash of a dossier.
func (m *Mask) Detail(text string) string {
	if !m.Any() {
		return text
	}
	const of, apart = "dossier ", "; "
	parts := strings.Split(undocumented(text), apart)
	for i, part := range parts {
		if hash, ok := strings.CutPrefix(part, of); ok && isHash(hash) {
			parts[i] = of + m.Hash(hash)
			continue
		}
		parts[i] = m.Line(part)
	}
	return strings.Join(parts, apart)
}

// undocumented leaves out the hashes of documents: that of an allow list is one of whom it lets pass.
func undocumented(text string) string {
	const document = "(document "
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, document)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(document + hidden)
		_, after, closed := strings.Cut(rest, ")")
		if !closed {
			return out.String()
		}
		text = ")" + after
	}
}

// isHash reports whether a word is a SHA-256 in hex digits.
func isHash(word string) bool {
	return len(word) == 2*sha256.Size && strings.Trim(word, "0123456789abcdefABCDEF") == ""
}

// kept reports whether a word is one of weir's own, so that it stays although somebody is called so: it is told by its
// place only (user=rule) that it is a name. Numbers are weir's in what weir wrote.
func (w manner) kept(word string) bool {
	return ordinary(word) || weirs(word) || !w.people && strings.Trim(word, "0123456789.") == ""
}

// weirs reports whether a word, in small letters, is one that weir writes itself.
func weirs(word string) bool {
	return slices.Contains(strings.Fields(`a accepted admin again allow allowed analyst and answer answers any apply
		applied applying audit ban block blocked blocking blocks budget by cannot canary changed changes cidr
		configuration console count counted counts declared demote demoted detail detect device devices dead diff
		disable disabled document dossier enable enabled end ended enforce enforced entered entries entry erase
		erased event events evidence expired fall-back field fields force full gap gate gates generation got has
		hash held history hit hits hold holds identity in-force incoming ingest ip is key keyed keys known letter
		letters letting limit limited list lists live local match mode modes never never-block new newest no nobody
		none not nothing off on oidc only out override own owner owners pass passed pending place promote promoted
		promotion reason reasons rebuild record redis refused release released releases removed replay request
		requests reset reset-count resume reveal role rollback route routing rule rules run session sessions set
		set-limit shadow shown sign-in sign-out since source sources stage stages stands stood stream subject text
		that then there this time to token traffic trial unchanged undone unknown until user users value values
		version viewer watch weir when where which window withheld written`), word)
}

// reader masks one text.
type reader struct {
	*Mask
	manner
	text, low string // what is left of it, as it is and in small letters
	out       strings.Builder
}

func (m *Mask) read(text string, how manner) string {
	if !m.Any() || text == "" {
		return text
	}
	r := &reader{Mask: m, manner: how, text: text, low: strings.ToLower(text)}
	if len(r.low) != len(r.text) { // letters whose small ones are of other lengths: they are found as they are written
		r.low = r.text
	}
	field, apart := "", "" // what the word before names, and what has been between
	for len(r.text) > 0 {
		n := strings.IndexAny(r.text, wordEnds)
		if n == 0 {
			apart += r.text[:1]
			r.keep(1)
			continue
		}
		if n < 0 {
			n = len(r.text)
		}
		if strings.Trim(apart, " \"'`") != "" {
			field = "" // another clause
		}
		word := r.text[:n]
		r.word(word, field, apart)
		field, apart = m.masker.named(m.actor, word), ""
	}
	return r.out.String()
}

// keep takes so many bytes as they are, put writes others in their place.
func (r *reader) keep(n int) { r.put(n, r.text[:n]) }

func (r *reader) put(n int, with string) {
	r.out.WriteString(with)
	r.text, r.low = r.text[n:], r.low[n:]
}

// as is a value of a field as the text may have it.
func (r *reader) as(field, value string) string {
	if value == "" || !r.Masks(field) {
		return value
	}
	if r.object {
		return r.Value(field, value)
	}
	if pseudonym := r.masker.cipher.seal(field, value); !r.own && r.known.met(pseudonym) {
		return pseudonym
	}
	return hidden
}

// word takes the next word, and more where a known value with spaces begins with it. field is what the word before it
// names.
func (r *reader) word(word, field, apart string) {
	switch {
	case strings.HasPrefix(word, pseudonymMark), field == "" && r.known.named(strings.TrimRight(r.low[:len(word)],
		sentenceEnds)):
		r.keep(len(word))
	case isHash(word):
		r.put(len(word), hidden)
	case strings.Contains(word, "="):
		r.pair(word)
	case field != "" && !ordinary(word):
		r.called(word, field, apart)
	case isAddress(word) && r.Masks(traffic.FieldIP.String()):
		r.put(len(word), r.as(traffic.FieldIP.String(), word))
	default:
		r.plain(len(word))
	}
}

// pair takes FIELD=VALUE, with several values between &. A value that is written as it is may have spaces.
func (r *reader) pair(word string) {
	field, _, _ := strings.Cut(word, "=")
	if at := len(field) + 1; !strings.Contains(word, "&") && r.Masks(field) && !r.own {
		if n, pseudonym := r.known.begins(r.low[at:], manner{people: true}); n > len(word)-at {
			r.put(at+n, word[:at]+pseudonym)
			return
		}
	}
	r.put(len(word), r.masker.word(r.actor, word, r.as))
}

// called takes what stands behind the name of a field: `user alice`, `user "alice smith"`.
func (r *reader) called(word, field, apart string) {
	if n, pseudonym := r.known.begins(r.low, manner{people: true}); n >= len(strings.TrimRight(word, sentenceEnds)) &&
		!r.own {
		r.put(n, pseudonym)
		return
	}
	n := len(strings.TrimRight(word, sentenceEnds))
	if quote := strings.TrimLeft(apart, " "); quote != "" {
		if end := strings.Index(r.text, quote[:1]); end > 0 {
			n = end
		}
	}
	r.put(n, r.as(field, r.text[:n]))
}

// plain takes a word that nothing tells of, with the known values that begin in it, and without addresses.
func (r *reader) plain(length int) {
	kept := 0 // bytes that are left as they are, but for addresses
	flush := func() {
		r.put(kept, r.masker.addresses(r.actor, r.text[:kept], r.as))
		length -= kept
		kept = 0
	}
	before := rune(0)
	for kept < length {
		if !inWord(before) && !r.own {
			if n, pseudonym := r.known.begins(r.low[kept:], r.manner); n > 0 {
				flush()
				r.put(n, pseudonym)
				length, before = length-n, 0
				continue
			}
		}
		var size int
		before, size = utf8.DecodeRuneInString(r.text[kept:])
		kept += size
	}
	flush()
}
