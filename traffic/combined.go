package traffic

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
func (d *combinedDecoder) Decode(b []byte, r *Request) error {
	*r = Request{Headers: r.Headers[:0]}
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
		return failure(ReasonMalformed, 0, "got %s, allowed: ip ident user [time] \"request\" status bytes …", quote(line))
	}
	r.IP = dash(ip)
	if _, ok = s.word(); !ok {
		return failure(ReasonMalformed, s.i, "got %s, allowed: ident, a space and the user", quote(s.rest()))
	}
	if err := s.userAndTime(r); err != nil {
		return err
	}
	r.claimMember(memberUser) // it is from Basic authentication, right or wrong
	at := s.i
	request, ok := s.quoted()
	if !ok {
		return failure(ReasonMalformed, at, "got %s, allowed: the request in double quotes", quote(line[min(at, len(line)):]))
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
		} else if !TokenByte(c) {
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

// TokenByte reports whether c is a tchar of RFC 9110, section 5.6.2: what methods and header names are made of.
func TokenByte(c byte) bool {
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
