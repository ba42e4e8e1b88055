package traffic

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func (g *gatewayRun) log() string { return filepath.Join(g.dir, "access.log") }

func startNginx(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	files, err := filepath.Abs("../deploy/gateway")
	if err != nil {
		t.Fatal(err)
	}
	server := g.adapt(documentedConfigs(t, FormatNginx, "nginx")[0], "127.0.0.1:8000", g.listen, "127.0.0.1:9465", g.origin,
		"/var/log/nginx/weir.log", g.log(), "include ", "include "+files+"/")
	temporary := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, g.dir, kind)
	}
	config := g.place("nginx.conf", "pid "+g.dir+"/pid;\nerror_log stderr info;\nworker_processes 1;\nevents {}\nhttp {\n"+temporary+server+"}\n")
	return exec.Command(path, "-e", "stderr", "-c", config, "-g", "daemon off;")
}

// envoyConfig takes clients' addresses from the PROXY protocol: for a peer on loopback Envoy would write its own node's
// address into X-Forwarded-For. %[1]s: port, %[2]s: the documented part, %[3]s: port of the API.
const envoyConfig = `
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %[1]s}}
    listener_filters:
    - name: envoy.filters.listener.proxy_protocol
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: api
          route_config:
            virtual_hosts:
            - {name: api, domains: ["*"], routes: [{name: guest, match: {prefix: "/"}, route: {cluster: api}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
%[2]s
  clusters:
  - name: api
    type: STATIC
    load_assignment:
      cluster_name: api
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %[3]s}}}}]}]
`

func startEnvoy(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	documented := documentedConfigs(t, FormatEnvoy, "yaml")[0]
	documented = strings.ReplaceAll(documented, "/var/log/envoy/access.log", g.log())
	documented = "          " + strings.ReplaceAll(strings.TrimSpace(documented), "\n", "\n          ")
	_, port, _ := strings.Cut(g.listen, ":")
	_, origin, _ := strings.Cut(g.origin, ":")
	g.proxied = "198.51.100.2"
	config := g.place("envoy.yaml", fmt.Sprintf(envoyConfig, port, documented, origin))
	return exec.Command(path, "-c", config, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning")
}

func startCaddy(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	_, port, _ := strings.Cut(g.listen, ":")
	site := g.adapt(documentedConfigs(t, FormatCaddy, "caddyfile")[0], "127.0.0.1:9465", g.origin,
		"/var/log/caddy/access.log", g.log(), "http://api.example.com {", "http://api.example.com {\n\tbind 127.0.0.1")
	config := g.place("Caddyfile", "{\n\tadmin off\n\thttp_port "+port+"\n}\n"+site)
	command := exec.Command(path, "run", "--adapter", "caddyfile", "--config", config)
	command.Env = append(os.Environ(), "HOME="+g.dir, "XDG_DATA_HOME="+g.dir, "XDG_CONFIG_HOME="+g.dir)
	return command
}

func startTraefik(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	blocks := documentedConfigs(t, FormatTraefik, "yaml")
	dynamic := g.place("dynamic.yaml", g.adapt(blocks[1], "127.0.0.1:9465", g.origin))
	static := "global: {checkNewVersion: false, sendAnonymousUsage: false}\n" +
		strings.NewReplacer("127.0.0.1:8000", g.listen, "/etc/traefik/dynamic.yaml", dynamic, "/var/log/traefik/access.log", g.log()).Replace(blocks[0])
	return exec.Command(path, "--configFile="+g.place("traefik.yaml", static))
}

func startHAProxy(t *testing.T, path string, g *gatewayRun) *exec.Cmd {
	config := g.place("haproxy.cfg", g.adapt(documentedConfigs(t, FormatHAProxy, "haproxy")[0], "127.0.0.1:8000", g.listen))
	return exec.Command("/bin/sh", "-c", `exec "$1" -f "$2" >"$3"`, "sh", path, config, g.log())
}
