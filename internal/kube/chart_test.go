package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// installations are those of which plain manifests are kept, with the values that they are rendered from.
var installations = map[string]string{"default": "", "100k": "values/100k.yaml", "gate-only": "values/gate-only.yaml"}

func renderInstallation(t testing.TB, name string) string {
	t.Helper()
	if installations[name] == "" {
		return render(t)
	}
	return render(t, "--values", "deploy/helm/weir/"+installations[name])
}

// The plain manifests are what the chart says. WEIR_TEST_UPDATE=1 writes them anew.
func TestManifestsAreOfTheChart(t *testing.T) {
	for name := range installations {
		rendered := "# Rendered from deploy/helm/weir: change that.\n" + renderInstallation(t, name)
		folder := filepath.Join(repository, "deploy", "kubernetes", name)
		kustomization := "# kubectl apply -k deploy/kubernetes/" + name + ", or a base of overlays of yours.\n" +
			"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: weir\nresources: [weir.yaml]\n"
		for file, want := range map[string]string{"weir.yaml": rendered, "kustomization.yaml": kustomization} {
			at := filepath.Join(folder, file)
			if os.Getenv("WEIR_TEST_UPDATE") == "1" {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("%s is not what the chart says: WEIR_TEST_UPDATE=1 go test ./internal/kube writes it anew", at)
			}
		}
	}
}

// Every object is one that Kubernetes takes, in the oldest release that the chart names, in one later and in the newest whose schemas there are.
func TestManifestsAreValid(t *testing.T) {
	folder := cached(t, "kubernetes-schemas-*/schemas", "fetch-kubernetes-schemas.sh")
	newest, err := filepath.Glob(filepath.Join(folder, "v1.37.*-local-strict"))
	if err != nil || len(newest) != 1 {
		t.Fatalf("no schemas of 1.37 in %s: %v", folder, err)
	}
	for _, version := range []string{"v1.27.0", "v1.31.0", "v1.37.0"} {
		compiler := jsonschema.NewCompiler()
		compiler.UseLoader(schemaFolder(filepath.Join(folder, version+"-local-strict")))
		for name := range installations {
			for _, o := range objects(t, renderInstallation(t, name)) {
				if o.text("apiVersion") == "monitoring.coreos.com/v1" {
					continue // the Prometheus operator's
				}
				if err := valid(compiler, o); err != nil {
					t.Errorf("%s of %s in Kubernetes %s: %v", o.name(), name, version, err)
				}
			}
		}
		broken := find(t, objects(t, renderInstallation(t, "default")), "StatefulSet/weir-route")
		broken.at("spec").(map[string]any)["replica"] = 3
		if err := valid(compiler, broken); err == nil || !strings.Contains(err.Error(), "replica") {
			t.Errorf("a StatefulSet with a member that none has, in Kubernetes %s: %v: the test sees nothing", version, err)
		}
	}
}

// schemaFolder loads the schemas of one release, by the last part of their address.
type schemaFolder string

func (s schemaFolder) Load(url string) (any, error) {
	f, err := os.Open(filepath.Join(string(s), path.Base(url)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return jsonschema.UnmarshalJSON(f)
}

func valid(compiler *jsonschema.Compiler, o object) error {
	group, version, found := strings.Cut(o.text("apiVersion"), "/")
	file := strings.ToLower(o.text("kind")) + "-"
	if found {
		file += strings.Split(group, ".")[0] + "-" + version
	} else {
		file += group
	}
	schema, err := compiler.Compile("https://kubernetes.io/api/" + file + ".json")
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// Pods run where the restricted Pod Security Standard is enforced, and beyond it on a read-only root, without a token of the cluster and
// with secrets in files.
// Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
func TestPodsAreRestricted(t *testing.T) {
	for name := range installations {
		all := pods(objects(t, renderInstallation(t, name)))
		if len(all) == 0 {
			t.Errorf("%s has no pods", name)
		}
		for who, pod := range all {
			fail := func(format string, args ...any) { t.Errorf("%s of %s: %s", who, name, fmt.Sprintf(format, args...)) }
			for _, member := range []string{"hostNetwork", "hostPID", "hostIPC"} {
				if pod[member] != nil {
					fail("%s: %v", member, pod[member])
				}
			}
			if pod["automountServiceAccountToken"] != false {
				fail("the token of its account is mounted")
			}
			if pod.at("securityContext", "runAsNonRoot") != true || pod.at("securityContext", "runAsUser") == 0 || pod.text("securityContext", "seccompProfile", "type") != "RuntimeDefault" {
				fail("securityContext %v", pod.at("securityContext"))
			}
			volumes, _ := pod.at("volumes").([]any)
			for _, v := range volumes {
				for kind := range v.(map[string]any) {
					if !slices.Contains([]string{"name", "configMap", "secret", "emptyDir", "projected"}, kind) {
						fail("volume of kind %s", kind)
					}
				}
			}
			for _, c := range containers(pod) {
				if c.at("securityContext", "allowPrivilegeEscalation") != false || c.at("securityContext", "readOnlyRootFilesystem") != true ||
					fmt.Sprint(c.at("securityContext", "capabilities", "drop")) != "[ALL]" || c.at("securityContext", "capabilities", "add") != nil {
					fail("container %s: %v", c.text("name"), c.at("securityContext"))
				}
				if c.at("resources", "requests", "memory") == nil || c.at("resources", "requests", "memory") != c.at("resources", "limits", "memory") || c.at("resources", "requests", "cpu") == nil {
					fail("container %s: resources %v", c.text("name"), c.at("resources"))
				}
				for _, e := range c.at("env").([]any) {
					if e := object(e.(map[string]any)); strings.Contains(e.text("name"), "PASSWORD") && !strings.HasSuffix(e.text("name"), "_FILE") {
						fail("a secret in the variable %s", e.text("name"))
					}
				}
			}
		}
	}
}

// A pod is given the secrets of those servers that it speaks to, and no others.
func TestSecretsAreForThoseWhoNeedThem(t *testing.T) {
	out := render(t, "--set", "console.enabled=true",
		"--set-json", `secretFiles={"kafka.sasl.password_file":{"secret":"k","key":"p"},"redis.password_file":{"secret":"r","key":"p"},"postgres.url_file":{"secret":"pg","key":"url"},"console.masking.secret_file":{"secret":"c","key":"m"}}`,
		"--set-json", `stages.detect.secretFiles={"postgres.url_file":{"secret":"pg-detect","key":"dsn"}}`)
	want := map[string]string{
		"StatefulSet/weir-route":   "k/p pg/url",
		"StatefulSet/weir-detect":  "k/p pg-detect/dsn",
		"StatefulSet/weir-record":  "k/p pg/url",
		"StatefulSet/weir-enforce": "k/p pg/url r/p",
		"DaemonSet/weir-gate":      "r/p",
		"Deployment/weir-console":  "c/m k/p pg/url r/p",
		"Job/weir-migrate-0-1-0":   "k/p pg/url r/p",
	}
	got := map[string]string{}
	for who, pod := range pods(objects(t, out)) {
		var secrets []string
		for _, v := range pod.at("volumes").([]any) {
			if v := object(v.(map[string]any)); v.at("secret") != nil {
				item := object(v.at("secret", "items").([]any)[0].(map[string]any))
				secrets = append(secrets, v.text("secret", "secretName")+"/"+item.text("key"))
			}
		}
		slices.Sort(secrets)
		got[who] = strings.Join(secrets, " ")
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What stages need follows from the sizes, as docs/kubernetes.md reckons it: here by hand.
func TestSizesFollow(t *testing.T) {
	tests := []struct {
		events, keys, partitions int
		route, detect            int // replicas
		budget                   int // MiB
	}{
		{10_000, 2_000_000, 64, 2, 2, 32},
		{100_000, 20_000_000, 128, 2, 2, 32},
		{1_000_000, 100_000_000, 256, 4, 3, 48},
	}
	for _, test := range tests {
		all := objects(t, render(t, "--set", fmt.Sprintf("sizing.eventsPerSecond=%d,sizing.keys=%d,config.kafka.partitions.keyed=%d", test.events, test.keys, test.partitions)))
		for stage, want := range map[string]int{"route": test.route, "detect": test.detect} {
			o := find(t, all, "StatefulSet/weir-"+stage)
			if o.at("spec", "replicas") != want {
				t.Errorf("%d events/s: %v replicas of %s, want %d", test.events, o.at("spec", "replicas"), stage, want)
			}
		}
		var config struct {
			Detect struct {
				Budget string `yaml:"budget_per_partition"`
			}
		}
		if err := yaml.Unmarshal([]byte(find(t, all, "ConfigMap/weir").text("data", "weir.yaml")), &config); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%dMiB", test.budget); config.Detect.Budget != want {
			t.Errorf("%d keys: a budget of %s a partition, want %s", test.keys, config.Detect.Budget, want)
		}
		others := test.detect - 1 // one may be away
		memory := fmt.Sprintf("%dMi", int(math.Ceil(1.25*float64(test.budget*((test.partitions+others-1)/others))))+400)
		c := containers(pods(all)["StatefulSet/weir-detect"])[0]
		if c.at("resources", "limits", "memory") != memory {
			t.Errorf("%d keys: %v of memory for a detector, want %s", test.keys, c.at("resources", "limits", "memory"), memory)
		}
	}
}

// Values that the chart does not know are refused by name, before anything is rendered.
func TestValuesAreChecked(t *testing.T) {
	for set, want := range map[string]string{
		"stages.detect.replica=3":             "replica",
		"gate.kind=Deployment":                "kind",
		"sizing.eventsPerSecond=many":         "eventsPerSecond",
		"secretFiles.kafka=x":                 "secretFiles",
		"networkPolicy.enabled=yes please":    "enabled",
		"stages.detect.budgetMiB=0":           "budgetMiB",
		"image.pullPolicy=Sometimes":          "pullPolicy",
		"stages.enforce.env[0].value=nothing": "name",
	} {
		if out, err := helm(t, "template", "weir", "deploy/helm/weir", "--kube-version", "1.31", "--set", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s; rendered %d bytes", set, err, want, len(out))
		}
	}
}

// Helm finds nothing wrong with the chart, nor with the values that are shown as examples.
func TestChartIsClean(t *testing.T) {
	for name, values := range installations {
		args := []string{"lint", "--strict", "--kube-version", "1.31", "deploy/helm/weir"}
		if values != "" {
			args = append(args, "--values", "deploy/helm/weir/"+values)
		}
		if out, err := helm(t, args...); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The container for a gateway's pod that docs/kubernetes.md shows is the one of the chart.
func TestDocumentedGateIsTheCharts(t *testing.T) {
	var shown []object
	doc, err := os.ReadFile(filepath.Join(repository, "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "### A gate beside the gateway")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	var read struct{ Containers []map[string]any }
	if err := yaml.Unmarshal([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	for _, c := range read.Containers {
		shown = append(shown, c)
	}
	if want := containers(pods(objects(t, renderInstallation(t, "gate-only")))["DaemonSet/weir-gate"]); !reflect.DeepEqual(shown, want) {
		t.Errorf("docs/kubernetes.md shows %v, the chart has %v", shown, want)
	}
}

// The worked example of docs/kubernetes.md is what the chart renders.
func TestDocumentedSizesAreTheCharts(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(repository, "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := []string{"sizing.eventsPerSecond=10000,sizing.keys=2000000", "sizing.eventsPerSecond=100000,sizing.keys=20000000,config.kafka.partitions.keyed=128",
		"sizing.eventsPerSecond=1000000,sizing.keys=100000000,config.kafka.partitions.keyed=256"}
	for _, stage := range []string{"route", "detect"} {
		row := "| `weir-" + stage + "` |"
		for _, size := range sizes {
			all := objects(t, render(t, "--set", size))
			c := containers(pods(all)["StatefulSet/weir-"+stage])[0]
			memory := strings.TrimSuffix(c.text("resources", "requests", "memory"), "Mi")
			if len(memory) > 3 {
				memory = memory[:len(memory)-3] + "," + memory[len(memory)-3:]
			}
			row += fmt.Sprintf(" %v × %v, %s MiB |", find(t, all, "StatefulSet/weir-"+stage).at("spec", "replicas"), c.at("resources", "requests", "cpu"), memory)
		}
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/kubernetes.md has not the line\n%s", row)
		}
	}
}
