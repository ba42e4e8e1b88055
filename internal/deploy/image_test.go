package deploy

import (
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dockerfile is the Dockerfile, stage by stage.
type dockerfile struct{ stages []*stage }

type stage struct {
	from, name string
	copies     [][]string // of COPY without --from: sources and target
	from0      [][2]string
	runs       []string
	args       []string
	user       string
	entrypoint []string
}

// readDockerfile knows the instructions that the Dockerfile uses; any other is an error.
func readDockerfile(t *testing.T) *dockerfile {
	t.Helper()
	var d dockerfile
	for line := range strings.Lines(string(read(t, "Dockerfile"))) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		instruction, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(rest)
		if instruction == "FROM" {
			if len(words) != 3 || words[1] != "AS" {
				t.Fatalf("Dockerfile: %s: a stage has a name", line)
			}
			d.stages = append(d.stages, &stage{from: words[0], name: words[2]})
			continue
		}
		d.add(t, d.stages[len(d.stages)-1], instruction, rest, words)
	}
	return &d
}

func (d *dockerfile) add(t *testing.T, s *stage, instruction, rest string, words []string) {
	t.Helper()
	switch {
	case instruction == "COPY" && strings.HasPrefix(words[0], "--from="):
		if d.stage(strings.TrimPrefix(words[0], "--from=")) == nil || len(words) != 3 {
			t.Fatalf("Dockerfile: COPY %s: allowed: --from=STAGE SOURCE TARGET", rest)
		}
		s.from0 = append(s.from0, [2]string{words[1], words[2]})
	case instruction == "COPY":
		s.copies = append(s.copies, words)
	case instruction == "RUN":
		s.runs = append(s.runs, rest)
	case instruction == "ARG":
		if len(words) != 1 || strings.Contains(rest, "=") {
			t.Fatalf("Dockerfile: ARG %s: allowed: one name, without a value", rest)
		}
		s.args = append(s.args, rest)
	case instruction == "USER":
		s.user = rest
	case instruction == "ENTRYPOINT":
		if err := json.Unmarshal([]byte(rest), &s.entrypoint); err != nil {
			t.Fatalf("Dockerfile: ENTRYPOINT %s: %v", rest, err)
		}
	case instruction == "WORKDIR":
	default:
		t.Fatalf("Dockerfile: this test does not know %s", instruction)
	}
}

func (d *dockerfile) stage(name string) *stage {
	for _, s := range d.stages {
		if s.name == name {
			return s
		}
	}
	return nil
}

// Images that run weir hold no more than they need, and run it as nobody in particular.
func TestImagesRunAsNobody(t *testing.T) {
	d := readDockerfile(t)
	for name, s := range readComposition(t).Services {
		if s.Build == nil {
			continue
		}
		image := d.stage(s.Build.Target)
		if image == nil {
			t.Errorf("%s: the Dockerfile has no stage %q", name, s.Build.Target)
			continue
		}
		if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(image.user) {
			t.Errorf("%s: USER %q; allowed: numbers other than 0", name, image.user)
		}
		if len(image.runs) > 0 || len(image.copies) > 0 {
			t.Errorf("%s: the image is built from more than the stage before it", name)
		}
		for _, want := range []string{"/bin/weir", "/etc/ssl/certs/ca-certificates.crt"} {
			if !slices.ContainsFunc(image.from0, func(c [2]string) bool { return c[1] == want }) {
				t.Errorf("%s: the image lacks %s", name, want)
			}
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
			t.Errorf("%s: want a read-only file system and no capabilities", name)
		}
	}
	if last := d.stages[len(d.stages)-1]; last.from != "scratch" || last.name != "weir" || !slices.Equal(last.entrypoint, []string{"/bin/weir"}) {
		t.Errorf("docker build makes %+v, want weir alone", last)
	}
}

// Go of the image is that of go.mod, or newer.
func TestImageHasTheRightGo(t *testing.T) {
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(read(t, "go.mod"))
	if from := readDockerfile(t).stage("build").from; !strings.HasPrefix(from, "golang:"+string(wanted[1])+".") {
		t.Errorf("the build stage is %s, go.mod wants %s", from, wanted[1])
	}
}

// builtVersion is the VERSION that images are built with here.
const builtVersion = "v9.8.7-6-gabcdef0"

// buildImage runs the build stage's own command on what .dockerignore leaves of the repository, and gives the program.
func buildImage(t *testing.T) string {
	t.Helper()
	s := readDockerfile(t).stage("build")
	source, out := t.TempDir(), filepath.Join(t.TempDir(), "weir")
	copyContext(t, source)
	var command string
	for _, r := range s.runs {
		if strings.Contains(r, "go build") {
			command = r
		} else if r != "go mod download" { // what this machine has done already
			t.Fatalf("Dockerfile: this test does not know RUN %s", r)
		}
	}
	if strings.Count(command, "/out/weir") != 1 {
		t.Fatalf("Dockerfile: %q does not write /out/weir", command)
	}
	c := exec.Command("/bin/sh", "-c", strings.ReplaceAll(command, "/out/weir", out))
	c.Dir, c.Env = source, slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "VERSION=") })
	if slices.Contains(s.args, "VERSION") {
		c.Env = append(c.Env, "VERSION="+builtVersion)
	}
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, said)
	}
	return out
}

// copyContext copies what docker sends to the build: everything but the names in .dockerignore, which are of the top level.
func copyContext(t *testing.T, to string) {
	t.Helper()
	left := strings.Fields(string(read(t, ".dockerignore")))
	for _, name := range left {
		if strings.ContainsAny(name, "*!/#") {
			t.Fatalf(".dockerignore: %s: this test knows plain names of the top level only", name)
		}
	}
	err := fs.WalkDir(os.DirFS(repository), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
			return nil
		case slices.Contains(left, path):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.Mkdir(filepath.Join(to, path), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// knowsItsVersion wants the version that docker build was told.
func knowsItsVersion(t *testing.T, path string) {
	t.Helper()
	said, err := exec.Command(path, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(said), "weir "+builtVersion+" ") {
		t.Errorf("built as %s, weir version says %s (%v)", builtVersion, said, err)
	}
}

// standsAlone wants a program that an image without any library can run.
func standsAlone(t *testing.T, path string) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Logf("%s is no program of Linux: %v", path, err)
		return
	}
	defer func() { _ = program.Close() }()
	libraries, err := program.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("the program needs %v (%v); scratch has none", libraries, err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program needs a loader, scratch has none")
		}
	}
}
