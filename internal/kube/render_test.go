package kube

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.MainWithWeir(m)) }

// repository is the top of the repository, seen from here.
const repository = "../.."

// object is one object of Kubernetes: maps, lists and scalars as YAML has them.
type object map[string]any

// at follows a path of members and returns what stands there, nil where there is nothing.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// name is kind/name, as kubectl has it.
func (o object) name() string { return o.text("kind") + "/" + o.text("metadata", "name") }

// cached gives a file or folder that a script keeps in the cache; make test runs the scripts.
func cached(t testing.TB, name, script string) string {
	t.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	found, err := filepath.Glob(filepath.Join(cache, "weir", name))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		testbed.Missing(t, name+" is not in the cache: scripts/"+script+" gets it")
	}
	return found[len(found)-1]
}

// helm runs Helm and returns what it prints, and what it says where it fails.
func helm(t testing.TB, args ...string) (string, error) {
	t.Helper()
	c := exec.Command(cached(t, "helm-*/helm", "helm.sh"), args...)
	c.Dir = repository
	home := t.TempDir() // Helm looks into it, and nothing of this machine's user belongs into a test
	c.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/dev/null")
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		return "", errors.New(strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// render is helm template, as a user has it.
func render(t testing.TB, args ...string) string {
	t.Helper()
	out, err := helm(t, append([]string{"template", "weir", "deploy/helm/weir", "--namespace", "weir", "--kube-version", "1.31"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objects reads a stream of documents.
func objects(t testing.TB, manifest string) []object {
	t.Helper()
	var all []object
	decoder := yaml.NewDecoder(strings.NewReader(manifest))
	for {
		var o map[string]any // and what lies in it
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
}

// find gives the object of a name such as StatefulSet/weir-detect.
func find(t testing.TB, all []object, name string) object {
	t.Helper()
	var names []string
	for _, o := range all {
		if o.name() == name {
			return o
		}
		names = append(names, o.name())
	}
	t.Fatalf("%s is not among %s", name, strings.Join(names, ", "))
	return nil
}

// pods are the objects that have a pod template, with it.
func pods(all []object) map[string]object {
	out := map[string]object{}
	for _, o := range all {
		if spec, ok := o.at("spec", "template", "spec").(map[string]any); ok {
			out[o.name()] = spec
		}
	}
	return out
}

// containers are those of a pod.
func containers(pod object) []object {
	var out []object
	for _, part := range []string{"initContainers", "containers"} {
		list, _ := pod.at(part).([]any)
		for _, c := range list {
			out = append(out, c.(map[string]any))
		}
	}
	return out
}
