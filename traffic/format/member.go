package format

import "github.com/weirhq/weir/traffic"

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

// textMember is where a member that is plain text belongs.
func textMember(m member, r *traffic.Request) *string {
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

// identityField is the field of the identity that member m tells.
func (m member) identityField() (f traffic.Field, ok bool) {
	switch m {
	case memberDevice:
		return traffic.FieldDevice, true
	case memberUser:
		return traffic.FieldUser, true
	case memberAPIKey:
		return traffic.FieldAPIKey, true
	case memberSession:
		return traffic.FieldSession, true
	}
	return 0, false
}
