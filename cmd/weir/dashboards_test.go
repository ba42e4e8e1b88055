package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/dashboards"
	"github.com/weirhq/weir/dashboards/grafana/grafanatest"
)

func TestDashboardsGenerate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "provisioned")
	results := func(args ...string) []string {
		got := offline(t, "", append([]string{"dashboards", "generate", "--dir", dir, "--output", "json"}, args...)...)
		if got.code != exitOK {
			t.Fatalf("exit code %d: %s", got.code, got.stderr)
		}
		var files []writtenFile
		if err := json.Unmarshal([]byte(got.stdout), &files); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, f := range files {
			rel, err := filepath.Rel(dir, f.File)
			if err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(f.File)
			if err != nil {
				t.Fatal(err)
			}
			committed, err := os.ReadFile(filepath.Join("..", "..", "dashboards", rel))
			if err != nil {
				t.Fatal(err)
			}
			if len(args) == 0 && string(content) != string(committed) {
				t.Errorf("%s differs from the committed one", rel)
			}
			all = append(all, f.Result)
		}
		return all
	}
	boards, err := dashboards.All()
	if err != nil {
		t.Fatal(err)
	}
	first := results()
	if len(first) != len(boards)+1 || slices.Contains(first, "unchanged") {
		t.Errorf("the first time: %v", first)
	}
	if again := results(); slices.Contains(again, "written") {
		t.Errorf("the second time: %v", again)
	}
	if other := results("--runbook-url", "https://wiki.example/weir"); !slices.Equal(other[len(boards):], []string{"written"}) || slices.Contains(other[:len(boards)], "written") {
		t.Errorf("with another runbook: %v", other)
	}
	rules, err := os.ReadFile(filepath.Join(dir, "alerts", "rules.yaml"))
	if err != nil || !strings.Contains(string(rules), "https://wiki.example/weir#") {
		t.Errorf("the alerts do not link to the runbook that was named: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*.new"))
	if err != nil || len(left) > 0 {
		t.Errorf("unfinished files are left: %v %v", left, err)
	}
}

func TestDashboardsGenerateRefuses(t *testing.T) {
	file := emptyFile(t)
	blocked := t.TempDir()
	if err := os.MkdirAll(filepath.Join(blocked, "json", "weir-gate.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, dir, want string }{
		{"a file", file, "not a directory"},
		{"in a directory that is not there", filepath.Join(t.TempDir(), "typo", "dashboards"), "no such file or directory"},
		{"a directory where a board goes", blocked, "weir-gate.json"},
		{"nothing", "", "--dir"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := offline(t, "", "dashboards", "generate", "--dir", tc.dir)
			if got.code == exitOK || !strings.Contains(got.stderr, tc.want) {
				t.Errorf("exit code %d: %s", got.code, got.stderr)
			}
		})
	}
}

func TestDashboardsPush(t *testing.T) {
	s := grafanatest.New(t)
	file := writeFile(t, "token", s.Token+"\n")
	t.Setenv("GRAFANA_TOKEN", "")
	t.Setenv("VIEWER", s.Read)
	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"a dry run", []string{"--token-file", file, "--dry-run"}, exitOK, []string{"would be created", s.URL + "/d/weir-gate"}},
		{"the first push", []string{"--token-file", file}, exitOK, []string{"created", "Pipeline health"}},
		{"the second push", []string{"--token-file", file, "--output", "json"}, exitOK, []string{`"result": "unchanged"`, `"uid": "weir-pipeline"`}},
		{"no token", nil, exitError, []string{"401"}},
		{"a token without the right", []string{"--token-env", "VIEWER", "--folder", "other"}, exitError, []string{"403", "Editor"}},
		{"a token in place of a variable's name", []string{"--token-env", s.Token}, exitUsage, []string{"--token-env"}},
		{"a token in place of a file's name", []string{"--token-file", s.Token}, exitUsage, []string{"--token-file", "no such file"}},
		{"an empty file", []string{"--token-file", emptyFile(t)}, exitUsage, []string{"--token-file", "empty"}},
		{"two places", []string{"--token-env", "VIEWER", "--token-file", file}, exitUsage, []string{"one of them"}},
		{"a password that is no address", []string{"--grafana", "hunter2"}, exitUsage, []string{"--grafana", "http://"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := offline(t, "", append([]string{"dashboards", "push", "--grafana", s.URL}, tc.args...)...)
			said := got.stdout + got.stderr
			if got.code != tc.code {
				t.Fatalf("exit code %d, want %d: %s", got.code, tc.code, said)
			}
			for _, want := range tc.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q does not say %q", said, want)
				}
			}
			for _, secret := range []string{s.Token, s.Read, "hunter2"} {
				if strings.Contains(said, secret) {
					t.Errorf("a secret is shown: %s", said)
				}
			}
		})
	}
}
