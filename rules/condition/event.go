package condition

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Event is one event as conditions see it. It is not safe for concurrent use; its memory is used again after Reset.
type Event struct {
	request  *traffic.Request
	identity *traffic.Identity

	boxed  [numFields]ref.Val // for programs
	used   bool               // one of boxed is set
	ip     string             // of address
	addr   traffic.Identity   // whose IP ip is the text of
	values []value            // of the condition that is being judged
	strict bool               // that condition is
	read   [maxRead]readValue // of this event, so that no clause reads a value again
	reads  int                // how many of read are
	attrs  format.AttrIndex
	trees  []readTree // of this event, so that no program takes an object or a list apart again
}

// readTree is an object or a list of attrs as programs know it.
type readTree struct {
	id  string // of the value
	got ref.Val
}

// readValue is what the event has as a value that conditions name.
type readValue struct {
	id  string // of the value
	got format.AttrValue
}

// maxRead bounds what is kept of one event. Conditions of many rules that name more read it again.
const maxRead = 32

// Reset makes e the event of this request and the identity that was derived from it. Both must stay as they are while e is
// judged.
func (e *Event) Reset(r *traffic.Request, id *traffic.Identity) {
	e.request, e.identity = r, id
	clear(e.read[:e.reads])
	e.reads = 0
	e.attrs.Reset(r.Attrs)
	clear(e.trees)
	e.trees = e.trees[:0]
	if e.used {
		e.boxed, e.used = [numFields]ref.Val{}, false
	}
}

// Attrs are those of the event, for whoever reads them beside conditions.
func (e *Event) Attrs() *format.AttrIndex { return &e.attrs }

// text is the value of a text field; empty if the event does not have it.
func (e *Event) text(f field) string {
	r, id := e.request, e.identity
	var s string
	switch f {
	case fieldID:
		s = r.ID
	case fieldIP:
		return e.ipText()
	case fieldDevice:
		s = id.Device
	case fieldUser:
		s = id.User
	case fieldAPIKey:
		s = id.APIKey
	case fieldSession:
		s = id.Session
	case fieldMethod:
		return upper(cut(r.Method))
	case fieldHost:
		return cut(reading.PlainHost(r.Host))
	case fieldPath:
		s = r.Path
	case fieldRoute:
		s = r.Route
	case fieldUserAgent:
		s = r.UserAgent
	case fieldPlan:
		s = r.Plan
	case fieldGateway:
		s = r.Gateway
	}
	return cut(s)
}

// ipText is the address in text; it is kept, since neighbouring events often have the same.
func (e *Event) ipText() string {
	if ip := e.identity.IP; !ip.IsValid() {
		return ""
	} else if ip != e.addr.IP {
		e.addr.IP, e.ip = ip, ip.String()
	}
	return e.ip
}

// whole is the value of a field that is a whole number.
func (e *Event) whole(f field) int64 {
	if f == fieldStatus {
		return int64(e.request.Status)
	}
	return e.request.Bytes
}

// lacks reports whether a field has its zero value, as where the event does not tell it.
func (e *Event) lacks(f field) bool {
	switch fieldKinds[f] {
	case kindWhole:
		return e.whole(f) == 0
	case kindDecimal:
		return e.request.LatencyUS == 0
	case kindTime:
		return false
	}
	return e.text(f) == ""
}

// latency is in milliseconds.
func (e *Event) latency() float64 { return float64(e.request.LatencyUS) / 1000 }

// cut bounds what is judged of a text.
func cut(s string) string { return s[:min(len(s), MaxText)] }

// upper and lower change ASCII letters, and allocate only if there is one to change.
func upper(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'a' && c <= 'z' {
			return mapped(s, 'a', 'z')
		}
	}
	return s
}

func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			return mapped(s, 'A', 'Z')
		}
	}
	return s
}

// mapped is s with the letters from least to most in the other case.
func mapped(s string, least, most byte) string {
	b := []byte(s)
	for i, c := range b {
		if c >= least && c <= most {
			b[i] = c ^ 0x20
		}
	}
	return string(b)
}

// value is a member of attrs, or a header, that a condition names.
type value struct {
	name   string // as Reads has it
	id     string // the same, with names apart that have dots in them
	header string // its name in lower case; empty for attrs
	attrs  format.AttrPath
}

// of reads the value from an event. It stays as it is until the next one is read.
func (v *value) of(e *Event) *format.AttrValue {
	for i := range e.read[:e.reads] {
		if e.read[i].id == v.id {
			return &e.read[i].got
		}
	}
	e.reads = min(e.reads+1, maxRead) // the last place is that of the newest
	r := &e.read[e.reads-1]
	r.id = v.id
	if v.header != "" {
		r.got = headerOf(e.request.Headers, v.header)
	} else {
		r.got = e.attrs.Value(v.attrs)
	}
	r.got.Text = cut(r.got.Text)
	return &r.got
}

// headerOf is a header's value. The lines of one with several are joined by commas (RFC 9110, section 5.3).
func headerOf(headers []traffic.Header, name string) format.AttrValue {
	found := slices.IndexFunc(headers, func(h traffic.Header) bool { return strings.EqualFold(h.Name, name) })
	if found < 0 {
		return format.AttrValue{}
	}
	text := headers[found].Value
	for _, h := range headers[found+1:] {
		if strings.EqualFold(h.Name, name) && len(text) <= MaxText {
			text += ", " + h.Value
		}
	}
	return format.AttrValue{Kind: format.AttrText, Text: text}
}

var _ cel.Activation = (*Event)(nil)

// Parent is part of CEL's Activation: there is none.
func (e *Event) Parent() cel.Activation { return nil }

// ResolveName is part of CEL's Activation.
func (e *Event) ResolveName(name string) (any, bool) {
	if kind, i, ok := parseValueName(name); ok {
		if i >= len(e.values) {
			return nil, false
		}
		v := e.values[i].of(e)
		if kind == hasPrefix {
			return types.Bool(v.Kind != format.AttrMissing), true
		}
		if v.Kind == format.AttrComposite {
			return e.tree(e.values[i].id, v.JSON), true
		}
		return celValue(v), true
	}
	if f, ok := fieldAsked(name); ok {
		return types.Bool(!e.lacks(f)), true
	}
	f, ok := fieldNamed(strings.TrimPrefix(name, eventPrefix))
	if !ok || !strings.HasPrefix(name, eventPrefix) {
		return nil, false
	}
	if e.strict && e.lacks(f) {
		return types.WrapErr(errMissing), true
	}
	if e.boxed[f] == nil {
		e.boxed[f], e.used = e.box(f), true
	}
	return e.boxed[f], true
}

// tree is an object or a list of attrs, which is taken apart once for an event.
func (e *Event) tree(id string, text []byte) ref.Val {
	for i := range e.trees {
		if e.trees[i].id == id {
			return e.trees[i].got
		}
	}
	got := celComposite(text)
	if len(e.trees) < maxRead {
		e.trees = append(e.trees, readTree{id, got})
	}
	return got
}

// box is the value of a field for CEL.
func (e *Event) box(f field) ref.Val {
	switch fieldKinds[f] {
	case kindWhole:
		return types.Int(e.whole(f))
	case kindDecimal:
		return types.Double(e.latency())
	case kindTime:
		return types.Timestamp{Time: e.request.Time.Std()}
	}
	return types.String(e.text(f))
}

// celValue is a value of attrs for CEL: an error for one that is missing or too big.
func celValue(v *format.AttrValue) ref.Val {
	switch v.Kind {
	case format.AttrNull:
		return types.NullValue
	case format.AttrFalse, format.AttrTrue:
		return types.Bool(v.Kind == format.AttrTrue)
	case format.AttrWhole:
		return types.Int(v.Whole)
	case format.AttrDecimal:
		return types.Double(v.Decimal)
	case format.AttrText:
		return types.String(v.Text)
	case format.AttrComposite:
		return celComposite(v.JSON)
	}
	return types.WrapErr(errMissing)
}

func celComposite(text []byte) ref.Val {
	if len(text) > MaxComposite {
		return types.WrapErr(errComposite)
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return types.WrapErr(errMissing) // no JSON: an event cannot have it
	}
	return celTree(tree)
}

// celTree is a decoded tree as programs know it, its numbers as attrs have them elsewhere.
func celTree(v any) ref.Val {
	switch v := v.(type) {
	case json.Number:
		n := format.AttrPathOf().Value([]byte(v))
		return celValue(&n)
	case []any:
		list := make([]ref.Val, len(v))
		for i := range v {
			list[i] = celTree(v[i])
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case map[string]any:
		members := make(map[ref.Val]ref.Val, len(v))
		for name := range v {
			members[types.String(name)] = celTree(v[name])
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, members)
	}
	return types.DefaultTypeAdapter.NativeToValue(v) // a text, true, false or null
}
