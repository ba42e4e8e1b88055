package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/testbed"
)

// suggestions are what the shell would be given behind the words.
func (b *bed) suggestions(words ...string) []string {
	b.t.Helper()
	args := append([]string{"__complete", words[0]}, b.flags...)
	o := outcomeOf(b.t, append(args, words[1:]...)...)
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(o.stdout), "\n") {
		if name, _, _ := strings.Cut(line, "\t"); !strings.HasPrefix(name, ":") {
			out = append(out, name)
		}
	}
	return out
}

func outcomeOf(t *testing.T, args ...string) outcome {
	t.Helper()
	o := offline(t, "", args...)
	if o.code != exitOK || strings.Contains(o.stderr, "weir: ") {
		t.Errorf("weir %s: exit code %d\n%s", strings.Join(args, " "), o.code, o.stderr)
	}
	return o
}

func TestCompletionKnowsRulesAndReplays(t *testing.T) {
	b := replayBed(t)
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule), "-f", writeFile(t, "flood.yaml", strings.Replace(tokenRule, "id: tokens", "id: flood", 1)))
	b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
	b.ok("rules", "apply", "-f", writeFile(t, "stricter.yaml", strings.NewReplacer("id: tokens", "id: ended").Replace(tokenRule)))
	b.ok("rules", "apply", "--prune", "-f", writeFile(t, "tokens.yaml", strings.Replace(tokenRule, "limit: 3", "limit: 2", 1)),
		"-f", writeFile(t, "flood.yaml", strings.Replace(tokenRule, "id: tokens", "id: flood", 1))) // ended is removed, and tokens has a version pending
	file := writeFile(t, "events.jsonl", calls("198.51.100.7", 6))
	b.ok("ingest", file, "--format", "weir", "--replay", "monday")
	for _, tc := range []struct {
		words []string
		want  []string
	}{
		{[]string{"rules", "show", ""}, []string{"ended", "flood", "tokens"}},
		{[]string{"rules", "history", ""}, []string{"ended", "flood", "tokens"}},
		{[]string{"rules", "diff", "e"}, []string{"ended"}},
		{[]string{"rules", "diff", "tokens", ""}, []string{"1", "2"}},
		{[]string{"rules", "diff", "tokens", "1", ""}, []string{"1", "2"}},
		{[]string{"rules", "diff", "nobody", ""}, nil},
		{[]string{"rules", "rollback", ""}, []string{"flood", "tokens"}},
		{[]string{"rules", "rollback", "tokens", "--to", ""}, []string{"1", "2"}},
		{[]string{"rules", "rollback", "flood", "--to", ""}, nil},
		{[]string{"rules", "export", ""}, []string{"flood", "tokens"}},
		{[]string{"rules", "set-limit", ""}, []string{"flood", "tokens"}},
		{[]string{"rules", "promote", "tokens", "--version", ""}, []string{"1", "2"}},
		{[]string{"rules", "promote", "--version", ""}, nil},
		{[]string{"counters", "show", ""}, []string{"flood", "tokens"}},
		{[]string{"rules", "show", "to"}, []string{"tokens"}},
		{[]string{"rules", "show", "tokens", ""}, nil},
		{[]string{"rules", "promote", ""}, []string{"flood", "tokens"}},
		{[]string{"rules", "demote", ""}, []string{"tokens"}},
		{[]string{"blocks", "release", "t"}, []string{"tokens"}},
		{[]string{"history", "hits", "--rule", ""}, []string{"ended", "flood", "tokens"}},
		{[]string{"history", "hits", "--replay", ""}, []string{"monday"}},
		{[]string{"history", "decisions", "--action", ""}, []string{"extended", "released", "withheld", "written"}},
		{[]string{"run", "--stages", ""}, []string{"detect", "enforce", "record", "route"}},
		{[]string{"rules", "list", "--output", ""}, []string{"table", "json"}},
	} {
		slices.Sort(tc.want)
		testbed.Eventually(t, 30*time.Second, func() error { // a second is little on a busy machine: then nothing is suggested
			got := b.suggestions(tc.words...)
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				return fmt.Errorf("%q: suggested %q, want %q", tc.words, got, tc.want)
			}
			return nil
		})
	}
}

// Whatever takes a rule suggests rules: a command that is added does so, or is entered here with the reason why not.
func TestCommandsOnRulesSuggestThem(t *testing.T) {
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "blocks.yaml", tokenRule), "-f", writeFile(t, "shadow.yaml", strings.Replace(tokenRule, "id: tokens", "id: other", 1)))
	b.ok("rules", "promote", "tokens", "--reason", "test", "--yes", "--override", "tests")
	asked := 0
	visitCommands((&app{}).root(), func(c *cobra.Command) {
		if !regexp.MustCompile(`\bRULE\b`).MatchString(c.Use) || c.CommandPath() == "weir rules explain" { // a rule of files
			return
		}
		asked++
		words := append(strings.Fields(c.CommandPath())[1:], "")
		testbed.Eventually(t, 30*time.Second, func() error { // who presses Tab does not wait for a slow answer
			if got := b.suggestions(words...); !slices.Contains(got, "tokens") && !slices.Contains(got, "other") {
				return fmt.Errorf("%s: suggested %q", c.CommandPath(), got)
			}
			return nil
		})
	})
	if asked < 10 {
		t.Errorf("%d commands take a rule", asked)
	}
}

// A shell that waits for a key is no place for an error, nor for a long wait.
func TestCompletionIsSilentWhenHistoryIsAway(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }() // connections wait in its queue and are never answered
	for name, url := range map[string]string{
		"refused": "postgres://u@" + nowhere(t) + "/weir", "mute": "postgres://u@" + mute.Addr().String() + "/weir?sslmode=disable", "no URL": "nonsense",
	} {
		for _, words := range [][]string{{"show", ""}, {"promote", ""}, {"diff", "tokens", ""}, {"rollback", "tokens", "--to", ""}} {
			if o := outcomeOf(t, append([]string{"__complete", "rules", "--postgres-url", url}, words...)...); !strings.HasPrefix(o.stdout, ":") {
				t.Errorf("%s, %v: said %q", name, words, o.stdout)
			}
		}
	}
}

// Whatever history does, the shell has an answer after a second.
func TestCompletionDoesNotWaitForHistory(t *testing.T) {
	config := emptyFile(t)
	synctest.Test(t, func(t *testing.T) {
		a := &app{}
		show, _, err := a.root().Find([]string{"rules", "show"})
		if err != nil {
			t.Fatal(err)
		}
		a.configFile = config
		show.SetContext(t.Context())
		hangs := make(chan struct{})
		asked := false
		find := suggestNames(a, func(context.Context, *history.Store) ([]string, error) {
			asked = true
			<-hangs
			return []string{"late"}, nil
		})
		begun := time.Now()
		names, _ := find(show, nil, "")
		if took := time.Since(begun); took != completionTimeout || len(names) != 0 {
			t.Errorf("after %s it suggests %q, want nothing after %s", took, names, completionTimeout)
		}
		close(hangs)
		synctest.Wait()
		if !asked {
			t.Error("history was not asked")
		}
	})
}

// A file is a file to the shell; where there are few values, these are suggested.
func TestCompletionOfBacktest(t *testing.T) {
	for words, want := range map[string]string{"--output": "table\njson\ncsv\n:4\n", "--format": "weir\njson\ncombined\n", "": ":0\n"} {
		args := []string{"__complete", "backtest"}
		if words != "" {
			args = append(args, words)
		}
		if o := outcomeOf(t, append(args, "")...); !strings.HasPrefix(o.stdout, want) {
			t.Errorf("backtest %s: suggested %q, want %q", words, o.stdout, want)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if o := outcomeOf(t, "completion", shell); !strings.Contains(o.stdout, "__complete") {
			t.Errorf("%s: %d bytes that ask weir nothing", shell, len(o.stdout))
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal("bash checks its script: ", err)
	}
	check := exec.CommandContext(t.Context(), bash, "-n")
	check.Stdin = strings.NewReader(outcomeOf(t, "completion", "bash").stdout)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
