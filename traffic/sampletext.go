package traffic

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

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
// for the same input. The time is r.Time, so set it to the one that was decided on first; the ip is id's, or the
// event's own text if that was no address.
//
// Members are cut at the end of a character; attrs are kept whole or not at all.
func AppendSample(dst []byte, r *Request, id *Identity) []byte {
	w := sampleWriter{dst: dst, start: len(dst)}
	w.dst = append(w.dst, `{"time":"`...)
	w.dst = appendTime(w.dst, r.Time)
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
// that cut something off.
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
				dst = appendEscape(dst, c)
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
