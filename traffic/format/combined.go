package format

import (
	"strconv"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// combinedDecoder reads one line of the log format that Apache and nginx call combined, or common, which is the same
// without the last two fields:
//
//	ip ident user [time] "METHOD target PROTOCOL" status bytes "referer" "user agent" …
//
// (httpd.apache.org/docs/2.4/logs.html, nginx.org/en/docs/http/ngx_http_log_module.html). ip, time, request and status
// must be readable, else the line is malformed; a request that is no HTTP request line (a TLS hello, "-") leaves method
// and path missing. `-` means missing everywhere. Escapes inside quotes are undone, so that a path has the bytes that
// the client sent. Whatever follows the user agent is ignored. A quote that is never closed after the status leaves its
// own field and those after it missing: a cut value would be a wrong one. The referer is not kept.
type combinedDecoder struct{ max int }

var _ Decoder = (*combinedDecoder)(nil)

// Decode reads one line.
func (d *combinedDecoder) Decode(b []byte, r *traffic.Request) error {
	*r = traffic.Request{Headers: r.Headers[:0]}
	if err := checkSize(b, d.max); err != nil {
		return err
	}
	line := alias(b)
	for line[len(line)-1] == '\n' || line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	s := lineScanner{line: line}
	ip, ok := s.word()
	if !ok {
		return failure(ReasonMalformed, 0, "got %s, allowed: ip ident user [time] \"request\" status bytes …", traffic.Quote(line))
	}
	r.IP = dash(ip)
	if _, ok = s.word(); !ok {
		return failure(ReasonMalformed, s.i, "got %s, allowed: ident, a space and the user", traffic.Quote(s.rest()))
	}
	if err := s.userAndTime(r); err != nil {
		return err
	}
	claimMember(r, memberUser) // it is from Basic authentication, right or wrong
	at := s.i
	request, ok := s.quoted()
	if !ok {
		return failure(ReasonMalformed, at, "got %s, allowed: the request in double quotes", traffic.Quote(line[min(at, len(line)):]))
	}
	r.Method, r.Path = splitRequest(request)
	if err := s.statusAndBytes(r); err != nil {
		return err
	}
	if _, ok = s.quoted(); !ok {
		return nil
	}
	if agent, ok := s.quoted(); ok {
		r.UserAgent = dash(agent)
	}
	return nil
}

// dash is v, or nothing if v is the mark for nothing.
func dash(v string) string {
	if v == "-" {
		return ""
	}
	return v
}

// splitRequest takes a request line apart. What is no `METHOD target` or `METHOD target HTTP/…` has neither.
func splitRequest(request string) (method, path string) {
	space := -1
	for i := 0; i < len(request) && space < 0; i++ {
		if c := request[i]; c == ' ' {
			space = i
		} else if !traffic.TokenByte(c) {
			return "", ""
		}
	}
	if space <= 0 {
		return "", ""
	}
	target := request[space+1:]
	for i := len(target) - 1; i > 0; i-- {
		if target[i] == ' ' {
			if len(target)-i > 5 && target[i+1:i+6] == "HTTP/" {
				target = target[:i]
			}
			break
		}
	}
	if target == "" {
		return "", ""
	}
	return request[:space], cutQuery(target)
}

// lineScanner reads the fields of a log line from left to right.
type lineScanner struct {
	line string
	i    int
}

func (s *lineScanner) rest() string { return s.line[min(s.i, len(s.line)):] }

// word reads up to the next space, which it passes. A word must have a byte and a space after it.
func (s *lineScanner) word() (string, bool) {
	n := strings.IndexByte(s.rest(), ' ')
	if n <= 0 {
		return "", false
	}
	w := s.line[s.i : s.i+n]
	s.i += n + 1
	return w, true
}

// maxBracketed is longer than every time that stands in brackets.
const maxBracketed = 48

// userAndTime reads up to the quote of the request. A user may hold anything, spaces and brackets included, as it is
// what the client claimed in Basic authentication; so the time is the first bracket that holds one and is followed by
// the request's quote, which a client cannot write, as servers escape quotes.
func (s *lineScanner) userAndTime(r *traffic.Request) error {
	start := s.i
	badTime := -1
	for open := start; ; open++ {
		n := strings.IndexByte(s.line[open:], '[')
		if n < 0 && badTime >= 0 {
			return failure(ReasonBadValue, badTime, "time: got %s, allowed: [21/Nov/2026:05:06:07 +0000] or ISO 8601", traffic.Quote(s.line[badTime:]))
		}
		if n < 0 {
			return failure(ReasonMalformed, start, "got %s, allowed: the user and the [time]", traffic.Quote(s.line[start:]))
		}
		open += n
		window := s.line[open+1 : min(open+1+maxBracketed, len(s.line))]
		size := strings.IndexByte(window, ']')
		if size < 0 || !strings.HasPrefix(s.line[open+1+size+1:], ` "`) {
			continue
		}
		t, ok := parseBracketed(window[:size])
		if !ok {
			badTime = open
			continue
		}
		r.Time, r.HasTime = t, true
		r.User = user(s.line[start:open])
		s.i = open + 1 + size + 1
		return nil
	}
}

func parseBracketed(text string) (traffic.Time, bool) {
	if t, ok := parseTimeLocal(text); ok {
		return t, true
	}
	return parseRFC3339(text, true)
}

// user is the user field without the space after it; `-` and Apache's `""` mean none.
func user(text string) string {
	text = strings.TrimSuffix(text, " ")
	if text == "-" || text == `""` {
		return ""
	}
	return text
}

// statusAndBytes reads the two numbers after the request.
func (s *lineScanner) statusAndBytes(r *traffic.Request) error {
	status, at, _ := s.field()
	if len(status) != 3 || digitRun(status) != 3 {
		return failure(ReasonMalformed, at, "status: got %s, allowed: three digits", traffic.Quote(status))
	}
	r.Status = int(status[0]-'0')*100 + int(status[1]-'0')*10 + int(status[2]-'0')
	size, at, found := s.field()
	if !found || size == "-" {
		return nil
	}
	n, err := strconv.ParseUint(size, 10, 63)
	if err != nil {
		return failure(ReasonBadValue, at, "bytes: got %s, allowed: a whole number or -", traffic.Quote(size))
	}
	r.Bytes = int64(n)
	return nil
}

// field reads an unquoted field after a space.
func (s *lineScanner) field() (text string, at int, found bool) {
	rest := s.rest()
	if rest == "" || rest[0] != ' ' {
		return "", s.i, false
	}
	n := strings.IndexByte(rest[1:], ' ')
	if n < 0 {
		n = len(rest) - 1
	}
	at = s.i + 1
	s.i = at + n
	return rest[1 : 1+n], at, true
}

// quoted reads a field in double quotes after a space, and undoes its escapes. It is false if there is none, or if its
// quote is not closed before the next field.
func (s *lineScanner) quoted() (string, bool) {
	rest := s.rest()
	if len(rest) < 2 || rest[0] != ' ' || rest[1] != '"' {
		return "", false
	}
	text := rest[2:]
	escaped := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			s.i += 2 + i + 1
			if tail := s.rest(); tail != "" && tail[0] != ' ' {
				return "", false
			}
			if escaped {
				return unescapeLog(text[:i]), true
			}
			return text[:i], true
		}
	}
	return "", false
}

// unescapeLog undoes what Apache (\" \\ \b \n \r \t \v \xhh) and nginx (\xHH) write for bytes that would break a line.
// Everything else behind a backslash stays, backslash included.
func unescapeLog(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '"', '\\':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'v':
			out = append(out, '\v')
		case 'x':
			if i+2 < len(s) {
				hi, ok1 := traffic.HexDigit(s[i+1])
				lo, ok2 := traffic.HexDigit(s[i+2])
				if ok1 && ok2 {
					out = append(out, hi<<4|lo)
					i += 2
					continue
				}
			}
			out = append(out, '\\', c)
		default:
			out = append(out, '\\', c)
		}
	}
	return string(out)
}
