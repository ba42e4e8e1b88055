package kube

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/testbed"
)

// node is a machine of a cluster, on which pods of the chart work: the real program with the container's arguments, variables and files. What the
// container finds below /etc/weir lies in a folder of the test, and ports are free ones of loopback.
type node struct {
	t       *testing.T
	place   testbed.Workplace
	folder  string
	secrets map[string]string // by secret/key
	config  string
}

// newNode writes the configuration of a rendered installation for the servers of this machine.
func newNode(t *testing.T, all []object) *node {
	t.Helper()
	n := &node{t: t, place: testbed.NewWorkplace(t), folder: t.TempDir(), secrets: map[string]string{"weir-postgres/url": testbed.Postgres(t)}}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(find(t, all, "ConfigMap/weir").text("data", "weir.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	config["namespace"] = testbed.Namespace(t)
	kafka := config["kafka"].(map[string]any)
	kafka["brokers"], kafka["replication"] = testbed.Kafka(t), 1
	kafka["partitions"] = map[string]any{"requests": 4, "keyed": 8, "hits": 2}
	config["redis"] = map[string]any{"url": testbed.Redis(t)}
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	n.config = string(text)
	return n
}

// command gives the arguments and variables of a pod's container, as its machine would, and where it answers by port name.
func (n *node) command(pod object, name string) (args, env []string, ports map[string]string) {
	n.t.Helper()
	c := containers(pod)[0]
	ports = map[string]string{}
	config := n.config
	listed, _ := c.at("ports").([]any)
	for _, p := range listed {
		p := object(p.(map[string]any))
		ports[p.text("name")] = fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(n.t))
		config = strings.ReplaceAll(config, fmt.Sprintf("0.0.0.0:%v", p.at("containerPort")), ports[p.text("name")])
	}
	file := n.place.Write(name+".yaml", config)
	for _, a := range c.at("args").([]any) {
		args = append(args, a.(string))
	}
	for _, e := range c.at("env").([]any) {
		e := object(e.(map[string]any))
		value := e.text("value")
		switch {
		case e.text("valueFrom", "fieldRef", "fieldPath") == "metadata.name":
			value = name
		case e.text("name") == "WEIR_CONFIG":
			value = file
		case strings.HasPrefix(value, "/etc/weir/secrets/"):
			value = n.secret(pod, c, value)
		}
		env = append(env, e.text("name")+"="+value)
	}
	return args, env, ports
}

// secret writes what a file of the container holds: the key of the secret that the pod's volume brings to the mount's path.
func (n *node) secret(pod, c object, path string) string {
	n.t.Helper()
	for _, m := range c.at("volumeMounts").([]any) {
		m := object(m.(map[string]any))
		if m.text("mountPath") != filepath.Dir(path) {
			continue
		}
		for _, v := range pod.at("volumes").([]any) {
			v := object(v.(map[string]any))
			if v.text("name") != m.text("name") {
				continue
			}
			item := object(v.at("secret", "items").([]any)[0].(map[string]any))
			value, ok := n.secrets[v.text("secret", "secretName")+"/"+item.text("key")]
			if !ok || item.text("path") != filepath.Base(path) {
				n.t.Fatalf("%s: %v is of no secret of this test", path, v)
			}
			at := filepath.Join(n.folder, v.text("name"))
			if err := os.WriteFile(at, []byte(value), 0o600); err != nil {
				n.t.Fatal(err)
			}
			return at
		}
	}
	n.t.Fatalf("no mount brings %s", path)
	return ""
}

// probe asks what a probe of the container asks.
func probe(c object, name string, ports map[string]string) error {
	get := object(c.at(name, "httpGet").(map[string]any))
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get("http://" + ports[get.text("port")] + get.text("path"))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s", name, answer.Status, text)
	}
	return nil
}

// Every pod of the defaults starts the real program, which does what the pod is for: the job makes topics and tables, the stages get ready, and the
// gate lets a request pass.
func TestRenderedPodsWork(t *testing.T) {
	testbed.Night(t, "each pod of the chart runs for real")
	all := objects(t, renderInstallation(t, "default"))
	n := newNode(t, all)
	pods := pods(all)
	job := pods["Job/weir-migrate-0-1-0"]
	args, env, _ := n.command(job, "weir-migrate")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	migrate := n.place.Command(ctx, args...)
	migrate.Env = append(migrate.Env, env...)
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	// The gates come last: one is ready when the stage enforce has been there.
	for _, who := range slices.Backward(slices.Sorted(maps.Keys(pods))) {
		pod := pods[who]
		if strings.HasPrefix(who, "Job/") {
			continue
		}
		_, name, _ := strings.Cut(who, "/")
		args, env, ports := n.command(pod, name+"-0")
		command := n.place.Command(context.Background(), args...)
		command.Env = append(command.Env, env...)
		running := testbed.Run(t, command)
		c := containers(pod)[0]
		for _, what := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			testbed.Eventually(t, 2*time.Minute, func() error {
				if err := running.Alive(); err != nil {
					return fmt.Errorf("%s: %w", who, err)
				}
				return probe(c, what, ports)
			})
		}
		if strings.HasPrefix(who, "StatefulSet/") {
			testbed.Eventually(t, 2*time.Minute, func() error {
				if !strings.Contains(running.Said(), `"member":"`+name+`-0-`) {
					return fmt.Errorf("%s is no static member by its pod's name", who)
				}
				return nil
			})
		}
		if who == "DaemonSet/weir-gate" {
			answer, err := http.Get("http://" + ports["gate"] + "/v1/forward-auth")
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("the gate answers %s to a request of nobody", answer.Status)
			}
		}
	}
}
