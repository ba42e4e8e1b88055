package operations

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.MainWithWeir(m)) }

const (
	repository = "../.."
	version    = "v9.8.7-6-gabcdef0"
)

// platforms are what a release is built for.
func platforms() map[string]elf.Machine {
	return map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
}

// A release has a program for each platform that needs nothing but a kernel, says its version, and comes with what it was built from and with sums.
// Built a second time, elsewhere and by somebody with other habits, it has the same bytes.
func TestRelease(t *testing.T) {
	testbed.Night(t, "compiles weir for two platforms, twice")
	first := t.TempDir()
	release(t, repository, first)
	var names []string
	for arch, machine := range platforms() {
		name := "weir-" + version + "-linux-" + arch
		names = append(names, name, name+".cdx.json")
		isStatic(t, filepath.Join(first, name), machine)
		tellsWhatItIsOf(t, filepath.Join(first, name))
		if arch == runtime.GOARCH && runtime.GOOS == "linux" {
			said, err := exec.Command(filepath.Join(first, name), "version").CombinedOutput()
			if err != nil || !strings.HasPrefix(string(said), "weir "+version+" ") {
				t.Errorf("%s: weir version says %s (%v)", name, said, err)
			}
		}
	}
	slices.Sort(names)
	if summed := sums(t, first); !slices.Equal(summed, names) {
		t.Errorf("SHA256SUMS is of %v, want %v", summed, names)
	}

	elsewhere := filepath.Join(t.TempDir(), "another", "folder")
	copySources(t, elsewhere)
	t.Setenv("GOFLAGS", "-tags=whatever -ldflags=-X=main.linkedVersion=another")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("TZ", "Asia/Tokyo")
	second := filepath.Join(elsewhere, "dist")
	if err := os.MkdirAll(second, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second, "weir-v0-linux-amd64"), nil, 0o644); err != nil { // of an earlier build
		t.Fatal(err)
	}
	release(t, elsewhere, second)
	for _, name := range append(names, "SHA256SUMS") {
		a, b := readFile(t, filepath.Join(first, name)), readFile(t, filepath.Join(second, name))
		if !bytes.Equal(a, b) {
			t.Errorf("%s: built twice from the same sources, it has other bytes (%d and %d of them)", name, len(a), len(b))
		}
	}
	if found, _ := filepath.Glob(filepath.Join(second, "*")); len(found) != len(names)+1 {
		t.Errorf("the folder holds %v", found)
	}
}

// A release without a version is none.
func TestReleaseWantsAVersion(t *testing.T) {
	for _, bad := range []string{"v1 2", "../v1", "-v"} {
		out := t.TempDir()
		c := exec.Command(filepath.Join(repository, "scripts", "release.sh"), out)
		c.Env = append(os.Environ(), "VERSION="+bad)
		said, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(said), "version: got '"+bad+"'; allowed: ") {
			t.Errorf("%q: %v\n%s", bad, err, said)
		}
		if left, _ := os.ReadDir(out); len(left) > 0 {
			t.Errorf("%q: it left %v", bad, left)
		}
	}
}

func release(t *testing.T, sources, out string) {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(sources, "scripts", "release.sh"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, out)
	c.Env = append(os.Environ(), "VERSION="+version)
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("release.sh: %v\n%s", err, said)
	}
}

// sums checks SHA256SUMS as sha256sum would, and gives the names in it.
func sums(t *testing.T, folder string) (names []string) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(readFile(t, filepath.Join(folder, "SHA256SUMS"))))
	for lines.Scan() {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		is := sha256.Sum256(readFile(t, filepath.Join(folder, name)))
		if !ok || sum != hex.EncodeToString(is[:]) {
			t.Errorf("SHA256SUMS: %q is not the sum of %s", sum, name)
		}
		names = append(names, name)
	}
	return names
}

func isStatic(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	libraries, err := program.ImportedLibraries()
	if err != nil || len(libraries) > 0 || program.Machine != machine {
		t.Errorf("%s is for %s and needs %v (%v); want %s and nothing", path, program.Machine, libraries, err, machine)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s needs a loader", path)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("%s cannot be executed: %v, %v", path, info, err)
	}
}

// tellsWhatItIsOf holds the list beside a program against what the linker wrote into it.
func tellsWhatItIsOf(t *testing.T, path string) {
	t.Helper()
	var list struct {
		Format   string `json:"bomFormat"`
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(readFile(t, path+".cdx.json"), &list); err != nil {
		t.Fatal(err)
	}
	if c := list.Metadata.Component; list.Format != "CycloneDX" || c.Name != "github.com/weirhq/weir" || c.Version != version {
		t.Errorf("%s.cdx.json is %s of %+v", path, list.Format, c)
	}
	has := map[string]string{}
	for _, c := range list.Components {
		has[c.Name] = c.Version
	}
	built, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimPrefix(built.GoVersion, "go"); has["std"] != want && has["std"] != built.GoVersion {
		t.Errorf("%s.cdx.json has Go's library as %q, want %s", path, has["std"], want)
	}
	for _, m := range built.Deps {
		if has[m.Path] != m.Version {
			t.Errorf("%s.cdx.json has %s as %q, want %s", path, m.Path, has[m.Path], m.Version)
		}
	}
	if len(built.Deps) < 10 || len(has) != len(built.Deps)+1 {
		t.Errorf("%s.cdx.json has %d components, and the program %d modules and Go", path, len(has), len(built.Deps))
	}
}

// copySources copies what is compiled, without git.
func copySources(t *testing.T, to string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(repository), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{".git", "bin", "dist", "node_modules"}, path):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), text, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
