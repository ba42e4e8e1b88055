package traffic

import "math"

// member is one field of the event format.
type member uint8

const (
	memberUnknown member = iota
	memberVersion
	memberControl
	memberClaimed
	memberTime
	memberID
	memberIP
	memberForwarded
	memberDevice
	memberUser
	memberAPIKey
	memberSession
	memberMethod
	memberHost
	memberPath
	memberRoute
	memberStatus
	memberUserAgent
	memberLatency
	memberBytes
	memberPlan
	memberAttrs
	memberHeaders
	memberGateway
	memberVerdict
	memberVerdictRule
	memberVerdictBlock
	numMembers
)

var memberNames = [numMembers]string{
	memberUnknown: "", memberVersion: "v", memberControl: "control", memberClaimed: "claimed",
	memberTime: "time", memberID: "id", memberIP: "ip", memberForwarded: "forwarded_for", memberDevice: "device",
	memberUser: "user", memberAPIKey: "api_key", memberSession: "session", memberMethod: "method", memberHost: "host",
	memberPath: "path", memberRoute: "route", memberStatus: "status", memberUserAgent: "user_agent",
	memberLatency: "latency_ms", memberBytes: "bytes", memberPlan: "plan", memberAttrs: "attrs",
	memberHeaders: "headers", memberGateway: "gateway", memberVerdict: "verdict",
	memberVerdictRule: "verdict.rule", memberVerdictBlock: "verdict.block",
}

// findMember is the top-level member of a weir event with that name. A switch, since the compiler makes it a search by
// length and bytes that no map comes near to.
func findMember(name string) member {
	switch name {
	case "v":
		return memberVersion
	case "control":
		return memberControl
	case "claimed":
		return memberClaimed
	case "time":
		return memberTime
	case "id":
		return memberID
	case "ip":
		return memberIP
	case "forwarded_for":
		return memberForwarded
	case "device":
		return memberDevice
	case "user":
		return memberUser
	case "api_key":
		return memberAPIKey
	case "session":
		return memberSession
	case "method":
		return memberMethod
	case "host":
		return memberHost
	case "path":
		return memberPath
	case "route":
		return memberRoute
	case "status":
		return memberStatus
	case "user_agent":
		return memberUserAgent
	case "latency_ms":
		return memberLatency
	case "bytes":
		return memberBytes
	case "plan":
		return memberPlan
	case "attrs":
		return memberAttrs
	case "headers":
		return memberHeaders
	case "gateway":
		return memberGateway
	case "verdict":
		return memberVerdict
	}
	return memberUnknown
}

// eventReader reads the values of an event's members into a Request. A null is as good as no member at all, and resets
// what an earlier member of the same name has set: the last one wins.
type eventReader struct {
	scanner
	// lax is for logs that were not written for weir: numbers pass as text, text that is a number passes as one, and
	// "" and "-" mean that there is nothing.
	lax bool
}

// read reads the value at hand as member m.
func (s *eventReader) read(m member, r *Request) error {
	switch m {
	case memberTime:
		return s.readTime(r)
	case memberStatus:
		status, err := s.readWhole(m, maxStatus)
		r.Status = int(status)
		return err
	case memberLatency:
		return s.readSpan(r, 3, "a number of milliseconds")
	case memberBytes:
		n, err := s.readWhole(m, math.MaxInt64)
		r.Bytes = n
		return err
	case memberPath:
		path, err := s.readText(m)
		r.Path = cutQuery(path)
		return err
	case memberAttrs:
		start := s.i
		err := s.skip()
		r.Attrs = s.b[start:s.i:s.i]
		return err
	case memberHeaders:
		return s.readHeaders(r)
	case memberVerdict:
		return s.readVerdict(r)
	case memberClaimed:
		return s.readClaimed(r)
	}
	v, err := s.readText(m)
	if p := textMember(m, r); p != nil {
		*p = v
	}
	return err
}

// textMember is where a member that is plain text belongs.
func textMember(m member, r *Request) *string {
	switch m {
	case memberID:
		return &r.ID
	case memberIP:
		return &r.IP
	case memberForwarded:
		return &r.Forwarded
	case memberDevice:
		return &r.Device
	case memberUser:
		return &r.User
	case memberAPIKey:
		return &r.APIKey
	case memberSession:
		return &r.Session
	case memberMethod:
		return &r.Method
	case memberHost:
		return &r.Host
	case memberRoute:
		return &r.Route
	case memberUserAgent:
		return &r.UserAgent
	case memberPlan:
		return &r.Plan
	case memberGateway:
		return &r.Gateway
	case memberVerdictRule:
		return &r.Verdict.Rule
	case memberVerdictBlock:
		return &r.Verdict.Block
	}
	return nil
}

// cutQuery keeps what is before the first question mark.
func cutQuery(path string) string {
	for i := 0; i < len(path); i++ {
		if path[i] == '?' {
			return path[:i]
		}
	}
	return path
}

// readText reads a string.
func (s *eventReader) readText(m member) (string, error) {
	switch c := s.peek(); {
	case c == '"':
		v, err := s.text()
		if s.lax && v == "-" {
			v = ""
		}
		return v, err
	case c == 'n':
		return "", s.literal("null")
	case s.lax && (c == '-' || c >= '0' && c <= '9'):
		return s.number()
	}
	if s.lax {
		return "", s.wrongType(m, "a string or a number")
	}
	return "", s.wrongType(m, "a string")
}

// maxStatus is the greatest status. Values outside of HTTP's 100 to 599 occur in logs: 0 for a client that went away.
const maxStatus = 999

// readWhole reads a whole number from 0 to limit, in any JSON spelling (2e2 is 200).
func (s *eventReader) readWhole(m member, limit int64) (int64, error) {
	at := s.i
	text, err := s.readNumber(m, "a whole number")
	if err != nil || text == "" {
		return 0, err
	}
	d, ok := parseDecimal(text)
	v, exact, fits := d.scaled(0)
	if !ok || !exact || !fits || v < 0 || v > limit {
		return 0, failure(ReasonBadValue, at, "%s: got %s, allowed: a whole number from 0 to %d", memberNames[m], quote(text), limit)
	}
	return v, nil
}

// readSpan reads the latency in a unit of 10^shift microseconds, with decimals; what is finer than a microsecond is
// dropped.
func (s *eventReader) readSpan(r *Request, shift int, allowed string) error {
	r.LatencyUS = 0
	at := s.i
	text, err := s.readNumber(memberLatency, allowed)
	if err != nil || text == "" {
		return err
	}
	d, ok := parseDecimal(text)
	v, _, fits := d.scaled(shift)
	if !ok || !fits || v < 0 {
		return failure(ReasonBadValue, at, "latency_ms: got %s, allowed: %s from 0", quote(text), allowed)
	}
	r.LatencyUS = v
	return nil
}

// readNumber reads a number's text. It is empty where there is none: null, and in lax reading "" and "-".
func (s *eventReader) readNumber(m member, allowed string) (string, error) {
	switch c := s.peek(); {
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 'n':
		return "", s.literal("null")
	case s.lax && c == '"':
		return s.readText(m)
	}
	return "", s.wrongType(m, allowed)
}
