// Package shown writes what the console shows, for reading: texts that clients chose, sources, events, commands, numbers and
// times. Nothing may be keyed on what comes out.
package shown

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// maxText bounds, in characters, what is shown of a text that a client chose.
const maxText = 512

// Text writes s as a text that shows on one line. Bytes that are no UTF-8 are written \xNN, and every character that is
// invisible, or that moves others about (controls, zero-width and bidirectional marks, blanks other than the space), as
// \u{HEX}. What is longer than 512 characters ends in "…". It escapes nothing: html/template does.
func Text(s string) string { return visible(s, maxText) }

// visible is Text of at most so many characters.
func visible(s string, most int) string {
	var out strings.Builder
	shown := 0
	for i := 0; i < len(s); {
		if shown == most {
			out.WriteString("…")
			break
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case !unicode.IsPrint(r): // IsPrint takes no format character, and of blanks only U+0020
			fmt.Fprintf(&out, `\u{%x}`, r)
		case shown == 0 && unicode.Is(unicode.M, r): // would be drawn over what stands before the text
			fmt.Fprintf(&out, `\u{%x}`, r)
		default:
			out.WriteRune(r)
		}
		i += n
		shown++
	}
	return out.String()
}

// Field is one part of a source.
type Field struct {
	Field   string `json:"field"`
	Value   string `json:"value"`
	Missing bool   `json:"missing,omitempty"`
}

// String is the part as one text: device tv-7.
func (f Field) String() string {
	if f.Missing {
		return f.Field + " missing"
	}
	return f.Field + " " + f.Value
}

// Source is a subject: for machines as it is, for people decoded. No fields: everything that matches is one source.
type Source struct {
	Subject traffic.Subject `json:"subject"`
	Fields  []Field         `json:"fields"`
}

// SourceOf takes a subject apart. One that is none has the one field "unreadable".
func SourceOf(s traffic.Subject) Source {
	v := Source{Subject: s, Fields: []Field{}}
	values, err := s.Values()
	if err != nil {
		v.Fields = append(v.Fields, Field{Field: "unreadable", Value: Text(string(s))})
	}
	for _, one := range values {
		shown := one.Value
		if one.Field == traffic.FieldIP.String() { // an address alone is a source by itself
			shown = strings.TrimSuffix(shown, "/32")
			if strings.Contains(shown, ":") {
				shown = strings.TrimSuffix(shown, "/128")
			}
		}
		v.Fields = append(v.Fields, Field{Field: Text(one.Field), Value: Text(shown), Missing: one.Missing})
	}
	return v
}

// String is the source as one text, for labels.
func (s Source) String() string {
	if len(s.Fields) == 0 {
		return "everything that matches"
	}
	parts := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		parts[i] = f.String()
	}
	return strings.Join(parts, ", ")
}

// Event is one event of the evidence, its texts made visible.
type Event struct {
	Time      traffic.Time `json:"time"`
	Before    bool         `json:"before,omitempty"` // it came before its source was over the limit
	ID        string       `json:"id,omitempty"`
	IP        string       `json:"ip,omitempty"`
	Device    string       `json:"device,omitempty"`
	User      string       `json:"user,omitempty"`
	APIKey    string       `json:"api_key,omitempty"`
	Session   string       `json:"session,omitempty"`
	Method    string       `json:"method,omitempty"`
	Host      string       `json:"host,omitempty"`
	Path      string       `json:"path,omitempty"`
	Route     string       `json:"route,omitempty"`
	Status    int          `json:"status,omitempty"`
	UserAgent string       `json:"user_agent,omitempty"`
	Plan      string       `json:"plan,omitempty"`
	Gateway   string       `json:"gateway,omitempty"`
	Attrs     string       `json:"attrs,omitempty"`
}

// EventOf makes a sample readable.
func EventOf(s *traffic.Sample) Event {
	return Event{
		Time: s.Time, Before: s.Before, ID: Text(s.ID), IP: Text(s.IP), Device: Text(s.Device), User: Text(s.User),
		APIKey: Text(s.APIKey), Session: Text(s.Session), Method: Text(s.Method), Host: Text(s.Host), Path: Text(s.Path), Route: Text(s.Route),
		Status: s.Status, UserAgent: Text(s.UserAgent), Plan: Text(s.Plan), Gateway: Text(s.Gateway), Attrs: Text(s.Attrs),
	}
}
