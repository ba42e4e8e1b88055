package format

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The formats of gateways and of the Elastic stack: JSON logs as they are, see docs/gateways.
const (
	Nginx   = "nginx"   // a log_format with escape=json whose members bear the names of nginx's variables
	Envoy   = "envoy"   // a json_format with the names that Istio and Envoy Gateway give by default
	Caddy   = "caddy"   // Caddy's structured access log
	Traefik = "traefik" // Traefik's access log in JSON
	HAProxy = "haproxy" // the log-format of docs/gateways/haproxy.md
	ECS     = "ecs"     // the Elastic Common Schema, nested or with dots in the names
)

// Names lists every format that NewDecoder knows.
func Names() []string {
	formats := []string{Weir, Protobuf, JSON, Combined}
	for i := range namedFormats {
		formats = append(formats, namedFormats[i].name)
	}
	return formats
}

// LineNames lists the formats that fit into files with one event a line: all but weir-protobuf, whose events may contain the
// byte of a line end.
func LineNames() []string {
	return slices.DeleteFunc(Names(), func(format string) bool { return format == Protobuf })
}

// TakesFieldMap reports whether a format reads members by a field map. For json the map says where everything is; for
// the log of a gateway it replaces single entries of the format's own table.
func TakesFieldMap(format string) bool { return format == JSON || findFormat(format) != nil }

// mappable lists the formats that TakesFieldMap is true for.
func mappable() []string {
	return slices.DeleteFunc(Names(), func(format string) bool { return !TakesFieldMap(format) })
}

// CarriesVerdict reports whether events of a format say which of them weir itself refused. Without that its refusals
// would feed the windows and keep a blocked client over the limit. In json only a field map can say so: that somebody
// else's log has a member of that name by chance is not to be relied on.
func CarriesVerdict(format string, fieldMap map[string]string) bool {
	switch format {
	case Weir, Protobuf:
		return true
	case JSON:
		return slices.ContainsFunc([]member{memberVerdict, memberVerdictRule, memberVerdictBlock},
			func(m member) bool { return fieldMap[memberNames[m]] != "" })
	}
	f := findFormat(format)
	return f != nil && slices.ContainsFunc(f.sources, func(s source) bool { return s.field == memberVerdictRule })
}

// namedFormat is the JSON log of one program: where its members go, and what is peculiar about them.
type namedFormat struct {
	name    string
	sources []source       // of several for one field, those further up are wanted more
	headers []headerSource // where it reports request headers
	// ownNames: the event's own names are taken too, wanted least. For logs whose names their owner chooses.
	ownNames bool
	// nothing lists JSON texts, beside null, "", "-" and [], that mean that there is no value.
	nothing []string
	// claimed lists members that hold what a client writes, right or wrong, whatever a field map takes them for: the
	// user name of Basic authentication.
	claimed []string
}

// source is one member that may fill an event field.
type source struct {
	field member
	path  string // as in a field map
	as    notation
}

// headerSource is an object whose members, but for those with a field of their own, are request headers.
type headerSource struct {
	path  string // of the object; "" is the line itself
	names headerNames
}

// headerNames says how an object's members name headers.
type headerNames struct {
	prefix     string // what stands before the header's name; a member without it is none
	underscore bool   // nginx: the name's dashes have become underscores
}

// findFormat is the table of a named format; nil for any other.
func findFormat(name string) *namedFormat {
	for _, f := range namedFormats {
		if f.name == name {
			return &f
		}
	}
	return nil
}

// compile makes the tree by which namedDecoder walks. An entry of fieldMap takes the place of all sources of its field.
func (f *namedFormat) compile(fieldMap map[string]string) (*fieldNode, error) {
	if _, err := compileFieldMap(fieldMap); err != nil { // says what is wrong with it
		return nil, err
	}
	root := new(fieldNode)
	var ranks [numMembers]uint8
	add := func(field member, path string, as notation) {
		for _, node := range root.at(path) {
			if slices.ContainsFunc(node.targets, func(t target) bool { return t.field == field }) {
				continue // wanted more already
			}
			t := target{field: field, as: as, rank: ranks[field]}
			if _, identity := field.identityField(); identity {
				// The identity map names the header or cookie that tells the field. Another member of the log does so too only
				// if the operator says so.
				t.claimed = fieldMap[memberNames[field]] == "" || slices.Contains(f.claimed, path)
			}
			node.targets = append(node.targets, t)
		}
		ranks[field]++
	}
	for _, name := range slices.Sorted(maps.Keys(fieldMap)) {
		field := member(slices.Index(memberNames[:], name))
		add(field, fieldMap[name], f.mappedAs(field))
	}
	for _, s := range f.sources {
		if !replaced(s.field, fieldMap) {
			add(s.field, s.path, s.as)
		}
	}
	for m := memberTime; f.ownNames && m < numMembers; m++ {
		if m != memberVerdict && m != memberHeaders && !replaced(m, fieldMap) {
			add(m, memberNames[m], asEvent)
		}
	}
	if !replaced(memberHeaders, fieldMap) {
		f.placeHeaders(root)
	}
	return root, nil
}

// mappedAs is the notation of the member that a field map names for field.
func (f *namedFormat) mappedAs(field member) notation {
	for _, s := range f.sources {
		switch {
		case s.field != field:
		case s.as == asPeer:
			return asPeer // it is as likely to stand in the forwarded chain as what it replaces
		case s.as == asBeginning:
			return asBeginning // it is the same time under another name
		case s.as == asEnd:
			return asEvent // the most wanted one is the end already
		}
	}
	return asEvent
}

// asTold is the format as it was before times were moved to the end of the request: see TimesAsTold.
func (f *namedFormat) asTold() *namedFormat {
	told := *f
	told.sources = nil
	plain := slices.ContainsFunc(f.sources, func(s source) bool { return s.field == memberTime && s.as == asEvent })
	for _, s := range f.sources {
		if s.field == memberTime && s.as != asEvent {
			if plain {
				continue
			}
			s.as = asEvent
		}
		told.sources = append(told.sources, s)
	}
	return &told
}

// reading returns the format with the members of one notation read in another.
func (f *namedFormat) reading(one, other notation) *namedFormat {
	changed := *f
	changed.sources = slices.Clone(f.sources)
	for i := range changed.sources {
		if s := &changed.sources[i]; s.as == one {
			s.as = other
		}
	}
	return &changed
}

func (f *namedFormat) placeHeaders(root *fieldNode) {
	for i := range f.headers {
		nodes := []*fieldNode{root}
		if path := f.headers[i].path; path != "" {
			nodes = root.at(path)
		}
		for _, node := range nodes {
			node.headers = &f.headers[i].names
		}
	}
}

// replaced reports whether a field map says where field is, by its name or, for a part of the verdict, by the whole.
func replaced(field member, fieldMap map[string]string) bool {
	switch field {
	case memberVerdictRule, memberVerdictBlock:
		if fieldMap[memberNames[memberVerdict]] != "" {
			return true
		}
	}
	return fieldMap[memberNames[field]] != ""
}

// wrongFormat says which formats there are.
func wrongFormat(got string) error {
	return fmt.Errorf("format: got %q, allowed: %s", got, strings.Join(Names(), ", "))
}

// namedFormats are the formats of gateways and of the Elastic stack, each as its program documents it. docs/gateways
// holds the same tables for people; a test holds the two together.
var namedFormats = [...]namedFormat{
	{
		// nginx.org/en/docs/varindex.html. The time is the one when the line is written: the end of the request.
		name: Nginx,
		sources: []source{
			{memberTime, "msec", asEvent}, {memberTime, "time_iso8601", asEvent}, {memberTime, "time_local", asEvent},
			{memberID, "request_id", asEvent},
			{memberIP, "remote_addr", asEvent},
			{memberForwarded, "http_x_forwarded_for", asEvent},
			{memberUser, "remote_user", asEvent},
			{memberMethod, "request_method", asEvent}, {memberMethod, "request", asMethodOfLine},
			{memberHost, "host", asEvent}, {memberHost, "http_host", asEvent}, {memberHost, "server_name", asEvent},
			{memberPath, "request_uri", asEvent}, {memberPath, "request", asTargetOfLine}, {memberPath, "uri", asEvent},
			{memberStatus, "status", asEvent},
			{memberUserAgent, "http_user_agent", asEvent},
			{memberLatency, "request_time", asSeconds},
			{memberBytes, "body_bytes_sent", asEvent}, {memberBytes, "bytes_sent", asEvent},
			{memberGateway, "hostname", asEvent},
			{memberVerdictRule, "weir_rule", asEvent}, {memberVerdictRule, "sent_http_x_weir_rule", asEvent},
			{memberVerdictBlock, "weir_block", asEvent}, {memberVerdictBlock, "sent_http_x_weir_block", asEvent},
		},
		headers:  []headerSource{{names: headerNames{prefix: "http_", underscore: true}}, {path: "headers"}},
		ownNames: true,
		claimed:  []string{"remote_user"},
	},
	{
		// envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage. The names are those of
		// Istio's default (x_forwarded_for) and of Envoy Gateway's (x-forwarded-for).
		name: Envoy,
		sources: []source{
			{memberTime, "start_time", asBeginning},
			{memberID, "request_id", asEvent}, {memberID, "x-request-id", asEvent},
			{memberIP, "downstream_remote_address", asPeer}, {memberIP, "downstream_direct_remote_address", asPeer},
			{memberForwarded, "x_forwarded_for", asEvent}, {memberForwarded, "x-forwarded-for", asEvent},
			{memberMethod, "method", asEvent},
			{memberHost, "authority", asEvent}, {memberHost, ":authority", asEvent},
			{memberPath, "path", asEvent}, {memberPath, "x-envoy-origin-path", asEvent},
			{memberRoute, "route_name", asEvent},
			{memberStatus, "response_code", asEvent},
			{memberUserAgent, "user_agent", asEvent}, {memberUserAgent, "user-agent", asEvent},
			{memberLatency, "duration", asEvent},
			{memberBytes, "bytes_sent", asEvent},
			{memberGateway, "hostname", asEvent},
			{memberVerdictRule, "weir_rule", asEvent}, {memberVerdictBlock, "weir_block", asEvent},
		},
		headers: []headerSource{{path: "headers"}},
	},
	{
		// caddyserver.com/docs/caddyfile/directives/log. Headers are lists of lines; credentials are [] up to Caddy
		// 2.6 and "REDACTED" later, which must not become everybody's identity.
		name: Caddy,
		sources: []source{
			{memberTime, "ts", asEvent},
			{memberID, "resp_headers.X-Request-Id", asLines}, {memberID, "request.headers.X-Request-Id", asLines},
			{memberIP, "request.remote_ip", asEvent}, {memberIP, "request.remote_addr", asEvent},
			{memberForwarded, "request.headers.X-Forwarded-For", asLines},
			{memberUser, "user_id", asEvent},
			{memberMethod, "request.method", asEvent},
			{memberHost, "request.host", asEvent},
			{memberPath, "request.uri", asEvent},
			{memberStatus, "status", asEvent},
			{memberUserAgent, "request.headers.User-Agent", asLines},
			{memberLatency, "duration", asSeconds},
			{memberBytes, "size", asEvent},
			{memberVerdictRule, "resp_headers.X-Weir-Rule", asLines},
			{memberVerdictBlock, "resp_headers.X-Weir-Block", asLines},
		},
		headers: []headerSource{{path: "request.headers"}},
		nothing: []string{`"REDACTED"`, `["REDACTED"]`},
	},
	{
		// doc.traefik.io/traefik/observability/access-logs. ClientHost is no source: it holds what the client wrote
		// into X-Forwarded-For.
		name: Traefik,
		sources: []source{
			{memberTime, "StartUTC", asBeginning}, {memberTime, "StartLocal", asBeginning},
			{memberID, "request_X-Request-Id", asEvent},
			{memberIP, "ClientAddr", asEvent},
			{memberForwarded, "request_X-Forwarded-For", asEvent},
			{memberUser, "ClientUsername", asEvent},
			{memberMethod, "RequestMethod", asEvent},
			{memberHost, "RequestHost", asEvent}, {memberHost, "RequestAddr", asEvent},
			{memberPath, "RequestPath", asEvent},
			{memberRoute, "RouterName", asEvent},
			{memberStatus, "DownstreamStatus", asEvent}, {memberStatus, "OriginStatus", asEvent},
			{memberUserAgent, "request_User-Agent", asEvent},
			{memberLatency, "Duration", asNanoseconds},
			{memberBytes, "DownstreamContentSize", asEvent},
			{memberVerdictRule, "downstream_X-Weir-Rule", asEvent},
			{memberVerdictBlock, "downstream_X-Weir-Block", asEvent},
		},
		headers: []headerSource{{names: headerNames{prefix: "request_"}}},
		nothing: []string{`"REDACTED"`},
		claimed: []string{"ClientUsername"},
	},
	{
		// docs.haproxy.org/2.6/configuration.html#8.2.4. Timers and the status are -1 where a request was cut short.
		name:     HAProxy,
		sources:  []source{{memberVerdictRule, "weir_rule", asEvent}, {memberVerdictBlock, "weir_block", asEvent}},
		headers:  []headerSource{{path: "headers"}},
		ownNames: true,
		nothing:  []string{"-1"},
	},
	{
		// elastic.co/guide/en/ecs/current/ecs-field-reference.html. It has no field for the forwarded chain and none
		// for a verdict; request headers are where Elastic's own agents put them, the verdict is in labels, which are
		// everybody's own.
		name: ECS,
		sources: []source{
			{memberTime, "event.end", asEnd}, {memberTime, "event.start", asBeginning}, {memberTime, "@timestamp", asEvent},
			{memberID, "http.request.id", asEvent}, {memberID, "event.id", asEvent},
			{memberIP, "source.ip", asEvent}, {memberIP, "source.address", asEvent},
			{memberIP, "client.ip", asEvent}, {memberIP, "client.address", asEvent},
			{memberForwarded, "http.request.headers.X-Forwarded-For", asLines},
			{memberForwarded, "http.request.headers.x-forwarded-for", asLines},
			{memberDevice, "device.id", asEvent},
			{memberUser, "user.id", asEvent}, {memberUser, "user.name", asEvent},
			{memberMethod, "http.request.method", asEvent},
			{memberHost, "url.domain", asEvent},
			{memberPath, "url.path", asEvent}, {memberPath, "url.original", asURL}, {memberPath, "url.full", asURL},
			{memberStatus, "http.response.status_code", asEvent},
			{memberUserAgent, "user_agent.original", asEvent},
			{memberLatency, "event.duration", asNanoseconds},
			{memberBytes, "http.response.body.bytes", asEvent}, {memberBytes, "http.response.bytes", asEvent},
			{memberGateway, "observer.name", asEvent}, {memberGateway, "observer.hostname", asEvent},
			{memberGateway, "host.hostname", asEvent}, {memberGateway, "host.name", asEvent},
			{memberVerdictRule, "labels.weir_rule", asEvent}, {memberVerdictBlock, "labels.weir_block", asEvent},
		},
		headers: []headerSource{{path: "http.request.headers"}, {names: headerNames{prefix: "http.request.headers."}}},
		nothing: []string{`"REDACTED"`, `"[REDACTED]"`, `["REDACTED"]`, `["[REDACTED]"]`},
	},
}
