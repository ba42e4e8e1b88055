package adversary

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// seed is where a test's dice begin: WEIR_TEST_SEED, or 1, so that a run fails for what has changed and not for its luck.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("WEIR_TEST_SEED")
	if text == "" {
		text = "1"
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("WEIR_TEST_SEED: %v", err)
	}
	t.Logf("WEIR_TEST_SEED=%d", number)
	return number
}

// address is a loopback address that nobody listens on.
func address(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(t))
}

func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// open lets other users reach a folder of a test: nginx's worker is one, if this is root.
func open(folder string) {
	for ; folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) {
		_ = os.Chmod(folder, 0o755)
	}
}

func awaitServer(t *testing.T, running *testbed.Running, address string) {
	t.Helper()
	testbed.Eventually(t, time.Minute, func() error {
		if err := running.Alive(); err != nil {
			t.Fatal(err)
		}
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	})
}

// startNode starts testdata/api.js and returns its address.
func startNode(t *testing.T, recordTo string) string {
	t.Helper()
	return startScript(t, testbed.Program(t, "node"), "testdata/api.js", recordTo)
}

// startPython starts testdata/api.py and returns its address.
func startPython(t *testing.T, recordTo string) string {
	t.Helper()
	return startScript(t, testbed.Program(t, "python3"), "testdata/api.py", recordTo)
}

func startScript(t *testing.T, program, script, recordTo string) string {
	t.Helper()
	at := address(t)
	arguments := []string{script, portOf(at)}
	if recordTo != "" {
		arguments = append(arguments, recordTo)
	}
	// go test takes a result from its cache unless this process reads what the program reads.
	if _, err := os.ReadFile(script); err != nil {
		t.Fatal(err)
	}
	awaitServer(t, testbed.Run(t, exec.Command(program, arguments...)), at)
	return at
}

func caddyCommand(t *testing.T, home, config string) *exec.Cmd {
	t.Helper()
	command := exec.Command(testbed.Program(t, "caddy"), "run", "--config", config, "--adapter", "caddyfile")
	command.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	return command
}
