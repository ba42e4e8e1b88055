package traffic

import "strconv"

// AppendEvent appends r to dst as a weir event v1, from which the weir decoder reads the same request again. Members
// that r does not have are left out. Strings keep every byte, invalid UTF-8 too, which makes such a text more than RFC
// 8259 allows; only quotes, backslashes and control characters are escaped. r.Attrs must be JSON, as a decoder leaves
// it. What the format cannot say is not written: a query in the path, a time outside of the years 0000 to 9999,
// negative numbers, UnknownFields. A request with Control becomes the end mark.
func AppendEvent(dst []byte, r *Request) []byte {
	if r.Control == ControlEnd {
		return append(dst, EndMark()...)
	}
	dst = append(dst, `{"v":1`...)
	if r.HasTime && r.Time >= minEventTime && r.Time <= maxEventTime {
		dst = append(dst, `,"time":"`...)
		dst = appendTime(dst, r.Time)
		dst = append(dst, '"')
	}
	dst = appendMember(dst, memberID, r.ID)
	dst = appendMember(dst, memberIP, r.IP)
	dst = appendMember(dst, memberForwarded, r.Forwarded)
	dst = appendMember(dst, memberDevice, r.Device)
	dst = appendMember(dst, memberUser, r.User)
	dst = appendMember(dst, memberAPIKey, r.APIKey)
	dst = appendMember(dst, memberSession, r.Session)
	dst = appendClaimed(dst, r.Claimed)
	dst = appendMember(dst, memberMethod, r.Method)
	dst = appendMember(dst, memberHost, r.Host)
	dst = appendMember(dst, memberPath, cutQuery(r.Path))
	dst = appendMember(dst, memberRoute, r.Route)
	if r.Status > 0 && r.Status <= maxStatus {
		dst = append(dst, `,"status":`...)
		dst = strconv.AppendInt(dst, int64(r.Status), 10)
	}
	dst = appendMember(dst, memberUserAgent, r.UserAgent)
	if r.LatencyUS > 0 {
		dst = append(dst, `,"latency_ms":`...)
		dst = appendMillis(dst, r.LatencyUS)
	}
	if r.Bytes > 0 {
		dst = append(dst, `,"bytes":`...)
		dst = strconv.AppendInt(dst, r.Bytes, 10)
	}
	dst = appendMember(dst, memberPlan, r.Plan)
	if len(r.Attrs) > 0 {
		dst = append(dst, `,"attrs":`...)
		dst = append(dst, r.Attrs...)
	}
	dst = appendHeaders(dst, r.Headers)
	dst = appendMember(dst, memberGateway, r.Gateway)
	dst = appendVerdict(dst, r.Verdict)
	return append(dst, '}')
}

func appendMember(dst []byte, m member, v string) []byte {
	if v == "" {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, memberNames[m]...)
	dst = append(dst, '"', ':')
	return appendJSONString(dst, v)
}

func appendHeaders(dst []byte, headers []Header) []byte {
	if len(headers) == 0 {
		return dst
	}
	dst = append(dst, `,"headers":{`...)
	for i, h := range headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, h.Name)
		dst = append(dst, ':')
		dst = appendJSONString(dst, h.Value)
	}
	return append(dst, '}')
}

func appendVerdict(dst []byte, v Verdict) []byte {
	if !v.Refused() {
		return dst
	}
	dst = append(dst, `,"verdict":{"rule":`...)
	dst = appendJSONString(dst, v.Rule)
	dst = append(dst, `,"block":`...)
	dst = appendJSONString(dst, v.Block)
	return append(dst, '}')
}

// appendJSONString writes s in quotes, escaping only what would end or break the string.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			dst = append(dst, s[from:i]...)
			dst = appendEscape(dst, c)
			from = i + 1
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// appendEscape writes the JSON escape of a quote, a backslash or a control character.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
}

// appendMillis writes microseconds as milliseconds with as many decimals as it takes.
func appendMillis(dst []byte, us int64) []byte {
	dst = strconv.AppendInt(dst, us/1000, 10)
	rest := us % 1000
	if rest == 0 {
		return dst
	}
	dst = append(dst, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// appendTime appends what t.String returns.
func appendTime(dst []byte, t Time) []byte {
	if t == EndOfTime || t == BeforeTime {
		return append(dst, t.String()...)
	}
	return t.Std().AppendFormat(dst, timeLayout)
}
