package console

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// maxShown bounds, in characters, what is shown of a text that a client chose.
const maxShown = 512

// visible writes s as a text that shows on one line. Bytes that are no UTF-8 are written \xNN, and every character that is
// invisible, or that moves others about (controls, zero-width and bidirectional marks, blanks other than the space), as
// \u{HEX}. The result is for reading: nothing may be keyed on it.
func visible(s string) string {
	var out strings.Builder
	shown := 0
	for i := 0; i < len(s); {
		if shown == maxShown {
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

// fieldView is one part of a source, for reading.
type fieldView struct {
	Field   string `json:"field"`
	Value   string `json:"value"`
	Missing bool   `json:"missing,omitempty"`
}

// sourceView is a subject: for machines as it is, for people decoded. No fields: everything that matches is one source.
type sourceView struct {
	Subject traffic.Subject `json:"subject"`
	Fields  []fieldView     `json:"fields"`
}

func source(s traffic.Subject) sourceView {
	v := sourceView{Subject: s, Fields: []fieldView{}}
	values, err := s.Values()
	if err != nil {
		v.Fields = append(v.Fields, fieldView{Field: "unreadable", Value: visible(string(s))})
	}
	for _, one := range values {
		shown := one.Value
		if one.Field == traffic.FieldIP.String() { // an address alone is a source by itself
			shown = strings.TrimSuffix(shown, "/32")
			if strings.Contains(shown, ":") {
				shown = strings.TrimSuffix(shown, "/128")
			}
		}
		v.Fields = append(v.Fields, fieldView{Field: visible(one.Field), Value: visible(shown), Missing: one.Missing})
	}
	return v
}

// sampleView is one event of the evidence, its texts made visible.
type sampleView struct {
	Time      traffic.Time `json:"time"`
	ID        string       `json:"id,omitempty"`
	IP        string       `json:"ip,omitempty"`
	Device    string       `json:"device,omitempty"`
	User      string       `json:"user,omitempty"`
	APIKey    string       `json:"api_key,omitempty"`
	Session   string       `json:"session,omitempty"`
	Method    string       `json:"method,omitempty"`
	Host      string       `json:"host,omitempty"`
	Path      string       `json:"path,omitempty"`
	Status    int          `json:"status,omitempty"`
	UserAgent string       `json:"user_agent,omitempty"`
	Gateway   string       `json:"gateway,omitempty"`
	Attrs     string       `json:"attrs,omitempty"`
}

func viewSample(s *traffic.Sample) sampleView {
	return sampleView{
		Time: s.Time, ID: visible(s.ID), IP: visible(s.IP), Device: visible(s.Device), User: visible(s.User),
		APIKey: visible(s.APIKey), Session: visible(s.Session), Method: visible(s.Method), Host: visible(s.Host),
		Path: visible(s.Path), Status: s.Status, UserAgent: visible(s.UserAgent), Gateway: visible(s.Gateway), Attrs: visible(s.Attrs),
	}
}
