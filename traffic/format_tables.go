package traffic

// namedFormats are the formats of gateways and of the Elastic stack, each as its program documents it. docs/gateways
// holds the same tables for people; a test holds the two together.
var namedFormats = [...]namedFormat{
	{
		// nginx.org/en/docs/varindex.html. The time is the one when the line is written: the end of the request.
		name: FormatNginx,
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
		name: FormatEnvoy,
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
		name: FormatCaddy,
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
		name: FormatTraefik,
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
		name:     FormatHAProxy,
		sources:  []source{{memberVerdictRule, "weir_rule", asEvent}, {memberVerdictBlock, "weir_block", asEvent}},
		headers:  []headerSource{{path: "headers"}},
		ownNames: true,
		nothing:  []string{"-1"},
	},
	{
		// elastic.co/guide/en/ecs/current/ecs-field-reference.html. It has no field for the forwarded chain and none
		// for a verdict; request headers are where Elastic's own agents put them, the verdict is in labels, which are
		// everybody's own.
		name: FormatECS,
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
