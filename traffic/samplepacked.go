package traffic

import (
	"encoding/binary"
)

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
	for i, t := range texts {
		if t.value != "" {
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
	for _, t := range texts {
		if t.value != "" {
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

// AppendSampleText appends the JSON text of a sample: the one that AppendSample would have written of the event at time
// at, by id, whose AppendPackedSample sample is. A sample that is a text already is appended as it is. Of a damaged one
// what can be read is taken.
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
