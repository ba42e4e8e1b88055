package traffic

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// SampleBytes bounds the JSON text of one Sample. Long members are cut, attrs that do not fit are left out and named
// in Cut.
const SampleBytes = 4 << 10

// Sample is the evidence that a keyed record carries of its event, small enough to be kept with a hit. Its JSON text is
// valid UTF-8 without raw NUL: bytes that are not text are written as \xNN (see Printable).
type Sample struct {
	Time      Time     `json:"time"`
	Before    bool     `json:"before,omitempty"`  // the event came before its source was over the limit
	Earlier   string   `json:"earlier,omitempty"` // of an episode's first event over the limit: see EarlierNone
	ID        string   `json:"id,omitempty"`
	IP        string   `json:"ip,omitempty"`
	Device    string   `json:"device,omitempty"`
	User      string   `json:"user,omitempty"`
	APIKey    string   `json:"api_key,omitempty"` // only its last four characters: a sample is no place for a secret
	Session   string   `json:"session,omitempty"`
	Method    string   `json:"method,omitempty"`
	Host      string   `json:"host,omitempty"`
	Path      string   `json:"path,omitempty"`
	Route     string   `json:"route,omitempty"`
	Status    int      `json:"status,omitempty"`
	UserAgent string   `json:"user_agent,omitempty"`
	Plan      string   `json:"plan,omitempty"`
	Gateway   string   `json:"gateway,omitempty"`
	Attrs     string   `json:"attrs,omitempty"` // the raw JSON text, Printable
	Cut       []string `json:"cut,omitempty"`   // members that were shortened or left out
}

// How many bytes of JSON text the members of a sample may take. An identity's value, at most 272 bytes, fits whole
// unless it is full of escapes. All together leave room for 1.5 KiB of attrs, and for more where members are short.
const (
	sampleShort    = 32  // method, plan
	sampleName     = 64  // ip, gateway
	sampleID       = 128 // id, host, route
	sampleIdentity = 280
	sampleAgent    = 256
	samplePath     = 384
	sampleCutSpace = 160 // the member cut with every name in it, and the closing brace
)

// AppendSample appends the JSON text of r's Sample to dst: at most SampleBytes, whatever r holds, and the same bytes
// for the same input. The time is r.Time, so the caller sets it to the event's final time first; the ip is id's, or the
// event's own text if that was no address.
//
// Members are cut at the end of a character; attrs are kept whole or not at all.
func AppendSample(dst []byte, r *Request, id *Identity) []byte {
	w := sampleWriter{dst: dst, start: len(dst)}
	w.dst = append(w.dst, `{"time":"`...)
	w.dst = r.Time.AppendTo(w.dst)
	w.dst = append(w.dst, '"')
	w.text("id", r.ID, sampleID)
	w.address(r, id)
	w.text("device", id.Device, sampleIdentity)
	w.text("user", id.User, sampleIdentity)
	w.text("api_key", keyEnding(id.APIKey), sampleShort)
	w.text("session", id.Session, sampleIdentity)
	w.text("method", r.Method, sampleShort)
	w.text("host", r.Host, sampleID)
	w.text("path", r.Path, samplePath)
	w.text("route", r.Route, sampleID)
	if r.Status != 0 {
		w.dst = append(w.dst, `,"status":`...)
		w.dst = strconv.AppendInt(w.dst, int64(r.Status), 10)
	}
	w.text("user_agent", r.UserAgent, sampleAgent)
	w.text("plan", r.Plan, sampleShort)
	w.text("gateway", r.Gateway, sampleName)
	w.attrs(r.Attrs)
	w.cutNames()
	return append(w.dst, '}')
}

// sampleWriter writes one sample behind dst[:start].
type sampleWriter struct {
	dst   []byte
	start int
	cut   [16]string // members that were shortened or left out
	cuts  int
}

func (w *sampleWriter) text(name, value string, limit int) {
	if value == "" {
		return
	}
	w.open(name)
	dst, whole := appendPrintable(w.dst, value, limit)
	w.dst = append(dst, '"')
	if !whole {
		w.cut[w.cuts] = name
		w.cuts++
	}
}

func (w *sampleWriter) open(name string) {
	w.dst = append(w.dst, ',', '"')
	w.dst = append(w.dst, name...)
	w.dst = append(w.dst, '"', ':', '"')
}

func (w *sampleWriter) address(r *Request, id *Identity) {
	if !id.IP.IsValid() {
		w.text("ip", r.IP, sampleName)
		return
	}
	w.open("ip")
	w.dst = id.IP.WithZone("").AppendTo(w.dst) // a zone may be any text
	w.dst = append(w.dst, '"')
}

// attrs writes the raw JSON as a string, if all of it fits into what is left of the sample.
func (w *sampleWriter) attrs(raw []byte) {
	if len(raw) == 0 {
		return
	}
	before := len(w.dst)
	w.open("attrs")
	room := SampleBytes - sampleCutSpace - (len(w.dst) - w.start) - 1
	whole := len(raw) <= room
	if whole {
		w.dst, whole = appendPrintable(w.dst, alias(raw), room)
	}
	if whole {
		w.dst = append(w.dst, '"')
		return
	}
	w.dst = w.dst[:before]
	w.cut[w.cuts] = "attrs"
	w.cuts++
}

func (w *sampleWriter) cutNames() {
	if w.cuts == 0 {
		return
	}
	w.dst = append(w.dst, `,"cut":[`...)
	for i, name := range w.cut[:w.cuts] {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		w.dst = append(w.dst, '"')
		w.dst = append(w.dst, name...)
		w.dst = append(w.dst, '"')
	}
	w.dst = append(w.dst, ']')
}

// keyEnding is the last four characters of an API key, and never more than half of it.
func keyEnding(key string) string {
	start := len(key)
	for range 4 {
		_, n := utf8.DecodeLastRuneInString(key[:start])
		if start-n < (len(key)+1)/2 {
			break
		}
		start -= n
	}
	return key[start:]
}

// appendPrintable appends the inside of the JSON string of Printable(s), at most limit bytes of it; whole is false if
// the limit has cut something off.
func appendPrintable(dst []byte, s string, limit int) (out []byte, whole bool) {
	end := len(dst) + limit
	for i := 0; i < len(s); {
		if run := plainRun(s[i:min(len(s), i+end-len(dst))]); run > 0 {
			dst = append(dst, s[i:i+run]...)
			i += run
			continue
		}
		mark := len(dst)
		n := 1
		switch c := s[i]; {
		case c == 0:
			dst = append(dst, `\\x00`...)
		case c < utf8.RuneSelf:
			if c < ' ' || c == '"' || c == '\\' {
				dst = AppendEscape(dst, c)
			} else {
				dst = append(dst, c)
			}
		default:
			var r rune
			if r, n = utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && n == 1 {
				dst = append(dst, '\\', '\\', 'x', lowerHex[c>>4], lowerHex[c&15])
			} else {
				dst = append(dst, s[i:i+n]...)
			}
		}
		if len(dst) > end {
			return dst[:mark], false
		}
		i += n
	}
	return dst, true
}

// plainRun counts the bytes at the start of s that are ASCII and stand for themselves in a JSON string. See plainEnd.
func plainRun(s string) int {
	i := 0
	b := []byte(s) // does not escape and is not written: no copy is made
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quotes := w ^ '"'*lowBits
		slashes := w ^ '\\'*lowBits
		marks := (quotes-lowBits)&^quotes | (slashes-lowBits)&^slashes | (w-' '*lowBits)&^w | w
		if marks &= highBits; marks != 0 {
			return i + bits.TrailingZeros64(marks)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			return i
		}
	}
	return i
}

// alias is b as a string that shares its memory.
func alias(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// samplePacked is the first byte of a packed sample; the JSON text of a sample begins with a brace instead.
const samplePacked = 1

// packedMembers is how many texts a packed sample may hold; its status and attrs come after them.
const packedMembers = 9

// The bits of a packed sample's mask beyond its texts.
const (
	packedStatus = 1 << (packedMembers + iota)
	packedAttrs
	packedNoAttrs // there were more attrs than any sample takes
	packedBits
)

// AppendPackedSample appends what a Sample takes of r beside its time and identities, which a keyed record has anyway, in
// a form that costs a fifth of the JSON text's time and half of its bytes: nearly all of them are thrown away unread. At
// most 6 KiB, whatever r holds. AppendSampleText makes the text.
//
// Layout: byte 1, uvarint mask, then for each bit of it, ascending: id, ip (as text; only if id has no address), method,
// host, path, route, user agent, plan, gateway as texts with their length, status as a varint, attrs with their length.
// Texts are cut a little beyond what the text of a sample takes.
func AppendPackedSample(dst []byte, r *Request, id *Identity) []byte {
	texts := packedTexts(r, id)
	mask := uint64(0)
	for i := range texts {
		if texts[i].value != "" {
			mask |= 1 << i
		}
	}
	if r.Status != 0 {
		mask |= packedStatus
	}
	switch {
	case len(r.Attrs) > SampleBytes:
		mask |= packedNoAttrs
	case len(r.Attrs) > 0:
		mask |= packedAttrs
	}
	dst = append(dst, samplePacked)
	dst = binary.AppendUvarint(dst, mask)
	for i := range texts {
		if t := &texts[i]; t.value != "" {
			// One byte of a value takes one or more of the text, so what is cut here lies beyond what the text holds, and
			// enough is left to see that the value goes on.
			const beyond = 8
			value := t.value[:min(len(t.value), t.limit+beyond)]
			dst = binary.AppendUvarint(dst, uint64(len(value)))
			dst = append(dst, value...)
		}
	}
	if r.Status != 0 {
		dst = binary.AppendVarint(dst, int64(r.Status))
	}
	if mask&packedAttrs != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Attrs)))
		dst = append(dst, r.Attrs...)
	}
	return dst
}

// packedText is a text of a packed sample, and how many bytes of a sample's text it may take.
type packedText struct {
	value string
	limit int
}

func packedTexts(r *Request, id *Identity) [packedMembers]packedText {
	ip := r.IP
	if id.IP.IsValid() {
		ip = ""
	}
	return [packedMembers]packedText{
		{r.ID, sampleID}, {ip, sampleName}, {r.Method, sampleShort}, {r.Host, sampleID}, {r.Path, samplePath}, {r.Route, sampleID},
		{r.UserAgent, sampleAgent}, {r.Plan, sampleShort}, {r.Gateway, sampleName},
	}
}

// AppendSampleText appends the JSON text of a packed sample: what AppendSample writes for the same event with the time at and
// the identity id. A sample that is a text already is appended unchanged. Of a damaged sample it writes what can be read.
func AppendSampleText(dst, sample []byte, at Time, id *Identity) []byte {
	if len(sample) == 0 || sample[0] != samplePacked {
		return append(dst, sample...)
	}
	r := Request{Time: at}
	p := packedReader{rest: sample[1:]}
	mask := p.number()
	if p.bad || mask >= packedBits {
		mask = 0 // of a build that this one does not know, or damaged
	}
	for i, t := range [packedMembers]*string{&r.ID, &r.IP, &r.Method, &r.Host, &r.Path, &r.Route, &r.UserAgent, &r.Plan, &r.Gateway} {
		if mask&(1<<i) != 0 {
			*t = string(p.bytes())
		}
	}
	if mask&packedStatus != 0 {
		v := p.number()
		r.Status = int(v>>1) ^ -int(v&1) // zigzag, as varints are
	}
	switch {
	case mask&packedAttrs != 0:
		r.Attrs = p.bytes()
	case mask&packedNoAttrs != 0:
		r.Attrs = make([]byte, SampleBytes+1) // too many is all that is known of them
	}
	return AppendSample(dst, &r, id)
}

// packedReader reads the fields of a packed sample. After one that does not fit, bad is set and every answer is empty.
type packedReader struct {
	rest []byte
	bad  bool
}

func (p *packedReader) number() uint64 {
	v, n := binary.Uvarint(p.rest)
	if n <= 0 {
		p.rest, p.bad = nil, true
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *packedReader) bytes() []byte {
	n := p.number()
	if n > uint64(len(p.rest)) {
		p.rest, p.bad = nil, true
		return nil
	}
	b := p.rest[:n]
	p.rest = p.rest[n:]
	return b
}
