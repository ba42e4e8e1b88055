package adversary

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// anyCase ends the name of a reading that does not ask for upper and lower case.
const anyCase = " (any case)"

// TestWhateverAServerServesIsWatched asks real servers, and the readers of URLs that their programs use, which spellings
// of a path they take for the watched operation. Both ends of weir have to reach all of these: ROUTE, else it is counted
// by nobody, and the gate, else it is a way past a block.
func TestWhateverAServerServesIsWatched(t *testing.T) {
	exact := &rules.Match{Methods: []string{"POST"}, Path: operation}
	folding := foldingMatch(t)
	// Rules for everything but what looks like a spelling of the operation, and is not it.
	except := []string{"/health", "/static/*", "/x/*", "/{a}", "/v1/{a}/{b}", "/v1/{a}/{b}/{c}", "/v1/*/guest-tokens", "/*.css", "/v1/guest-tokens.", "/v1/guest"}
	rest := &rules.Match{Methods: []string{"POST"}, Except: except}
	restFolding := &rules.Match{Methods: []string{"POST"}, Except: except, PathCase: rules.PathCaseIgnore}
	index := rules.NewIndex([]rules.Version{
		{Document: rules.Document{ID: "exact", Match: *exact}}, {Document: rules.Document{ID: "folding", Match: *folding}},
		{Document: rules.Document{ID: "rest", Match: *rest}}, {Document: rules.Document{ID: "rest-folding", Match: *restFolding}},
	})
	table := append(spellings(), eachByte()...)
	dice := rand.New(rand.NewPCG(seed(t), 1))
	for range 1500 {
		table = append(table, respelled(dice))
	}
	slices.Sort(table)
	table = slices.Compact(table)

	served := make(map[string][]string, len(table)) // by target
	for _, s := range startServers(t) {
		if by := s.asked(t, []string{operation})[0]; len(by) == 0 {
			t.Fatalf("%s does not serve %s", s.name, operation)
		}
		count := 0
		for i, by := range s.asked(t, table) {
			for _, reading := range by {
				served[table[i]] = append(served[table[i]], s.name+" "+reading)
			}
			count += min(len(by), 1)
		}
		t.Logf("%s serves %d of %d spellings", s.name, count, len(table))
	}
	findings := 0
	for _, target := range table {
		with, without := served[target], []string{}
		for _, reading := range with {
			if !strings.HasSuffix(reading, anyCase) {
				without = append(without, reading)
			}
		}
		matched := index.Match(nil, &rules.Target{Method: "POST", Path: target})
		switch {
		case len(without) > 0 && !exact.Reaches(&rules.Target{Method: "POST", Path: target}):
			t.Errorf("%.200q is served by %s, and not reached", target, some(without))
		case len(with) > 0 && !folding.Reaches(&rules.Target{Method: "POST", Path: target}):
			t.Errorf("%.200q is served by %s, and not reached by a rule that folds case", target, some(with))
		case len(without) > 0 && !rest.Reaches(&rules.Target{Method: "POST", Path: target}):
			t.Errorf("%.200q is served by %s, and left out as another path", target, some(without))
		case len(with) > 0 && !restFolding.Reaches(&rules.Target{Method: "POST", Path: target}):
			t.Errorf("%.200q is served by %s, and left out as another path by a rule that folds case", target, some(with))
		case len(without) > 0 && !(slices.Contains(matched, 0) && slices.Contains(matched, 2)), len(with) > 0 && !(slices.Contains(matched, 1) && slices.Contains(matched, 3)):
			t.Errorf("%.200q is served by %s, and reached, but the index finds %v", target, some(with), matched)
		default:
			continue
		}
		findings++
	}
	t.Logf("%d spellings are served by some server; %d findings", len(served), findings)
	reached := 0
	for _, target := range table {
		if len(served[target]) > 0 || !exact.Reaches(&rules.Target{Method: "POST", Path: target}) {
			continue
		}
		reached++
		if slices.Contains(spellings(), target) {
			t.Logf("reached, though none of these servers serves it: %.200q", target)
		}
	}
	t.Logf("%d spellings are reached though none of these servers serves them", reached)
	for _, target := range others() {
		if by := served[target]; len(by) > 0 {
			t.Errorf("%q is no other path: %s serve it", target, strings.Join(by, ", "))
		}
		if exact.Reaches(&rules.Target{Method: "POST", Path: target}) || folding.Reaches(&rules.Target{Method: "POST", Path: target}) || slices.ContainsFunc(index.Match(nil, &rules.Target{Method: "POST", Path: target}), func(i int) bool { return i < 2 }) {
			t.Errorf("%q is another path, and reached", target)
		}
	}
}

// some are the first of many readings.
func some(readings []string) string {
	const shown = 4
	if len(readings) <= shown {
		return strings.Join(readings, "; ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(readings[:shown], "; "), len(readings)-shown)
}

// foldingMatch is that of a rule for an API that does not ask for upper and lower case.
func foldingMatch(t *testing.T) *rules.Match {
	t.Helper()
	const document = "id: r\nowner: o\nmatch: {method: POST, path: " + operation + ", path_case: ignore}\nkey: [ip]\nlimit: 2\nwindow: 5m\n"
	parsed, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: []byte(document)}}, rules.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	return &parsed[0].Match
}

// server is a program on this machine that serves the operation.
type server struct {
	name    string
	address string
}

// asked sends each target to the server as it stands, and says by which readings it was served.
func (s *server) asked(t *testing.T, targets []string) [][]string {
	t.Helper()
	found := make([][]string, len(targets))
	failed := make([]error, len(targets))
	next := make(chan int)
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for i := range next {
				found[i], failed[i] = s.ask(targets[i])
			}
		})
	}
	for i := range targets {
		next <- i
	}
	close(next)
	asking.Wait()
	for i, err := range failed {
		if err != nil {
			t.Fatalf("%s: %.200q: %v", s.name, targets[i], err)
		}
	}
	return found
}

func (s *server) ask(target string) ([]string, error) {
	connection, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return nil, err
	}
	request := "POST " + target + " HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(connection, request); err != nil {
		return nil, nil // it hung up over what it read
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			return nil, err
		}
		return nil, nil // it hung up, or its words are no HTTP: nothing was served
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusCreated {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(body)), "\n"), nil
}

const nginxAPI = nginxHead + `
    access_log off;
    server {
        listen %[2]s;
        location = /v1/guest-tokens { return 201 "location =\n"; }
        location ~* ^/v1/guest-tokens$ { return 201 "location ~* (any case)\n"; }
    }
    # proxies that pass on what they have made of a target, before servers that read it once more
    server { listen %[3]s; location / { proxy_pass http://%[5]s/; } }
    server { listen %[4]s; location / { proxy_pass http://%[6]s/; } }
}
`

const caddyAPI = `{
	admin off
	auto_https off
}
http://:%s {
	bind 127.0.0.1
	handle /v1/guest-tokens {
		respond "handle (any case)" 201
	}
}
`

// startServers starts one of each.
func startServers(t *testing.T) []server {
	t.Helper()
	dir := t.TempDir()
	open(dir)
	servers := []server{{"go", startGoAPI(t, "").address}}
	start := func(name string, command *exec.Cmd, addresses ...string) {
		running := testbed.Run(t, command)
		for i, address := range addresses {
			s := server{name: name, address: address}
			if i > 0 {
				s.name += fmt.Sprintf(" (%d)", i+1)
			}
			awaitServer(t, running, address)
			servers = append(servers, s)
		}
	}
	nodeAt, pythonAt := startNode(t, ""), startPython(t, "")
	servers = append(servers, server{"node", nodeAt}, server{"python", pythonAt})

	nginx := []string{address(t), address(t), address(t)}
	config := filepath.Join(dir, "nginx.conf")
	write(t, config, fmt.Sprintf(nginxAPI, dir, nginx[0], nginx[1], nginx[2], nodeAt, pythonAt))
	start("nginx", exec.Command(testbed.Program(t, "nginx"), "-e", "stderr", "-c", config, "-g", "daemon off;"), nginx[0])
	servers = append(servers, server{"nginx before node", nginx[1]}, server{"nginx before python", nginx[2]})

	caddyAt := address(t)
	write(t, filepath.Join(dir, "Caddyfile"), fmt.Sprintf(caddyAPI, portOf(caddyAt)))
	start("caddy", caddyCommand(t, dir, filepath.Join(dir, "Caddyfile")), caddyAt)

	javaAt := address(t)
	java := testbed.Program(t, "java")
	start("java", exec.Command(java, "testdata/Api.java", portOf(javaAt)), javaAt)
	jetty := []string{address(t), address(t)}
	start("jetty", exec.Command(java, "-cp", filepath.Join(kafkaJars(t), "*"), "testdata/Servlet.java", portOf(jetty[0]), portOf(jetty[1])), jetty...)
	return servers
}

// kafkaJars is the folder with Apache Kafka's jars, among which is Jetty.
func kafkaJars(t *testing.T) string {
	t.Helper()
	if home := os.Getenv("WEIR_TEST_KAFKA_HOME"); home != "" {
		return home
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "weir", "kafka-*", "libs"))
	if err != nil || len(found) == 0 {
		testbed.Missing(t, "Apache Kafka's jars, which hold Jetty, are not in the cache: scripts/fetch-kafka.sh fetches them")
	}
	return found[len(found)-1]
}
