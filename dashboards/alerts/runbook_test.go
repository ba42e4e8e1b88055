package alerts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repository is the top of the repository, seen from here.
const repository = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sections are those of the runbook, by heading.
func sections(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, section := range strings.Split(read(t, "docs/runbook.md"), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if _, twice := found[heading]; twice {
			t.Errorf("%s has two sections", heading)
		}
		found[heading] = text
	}
	return found
}

func TestEachAlertHasASection(t *testing.T) {
	found := sections(t)
	alerts := map[string]bool{}
	for name := range alertRules() {
		alerts[name[0]] = true
	}
	for name := range alerts {
		text, ok := found[name]
		if !ok {
			t.Errorf("%s has no section", name)
			continue
		}
		at := 0
		for _, part := range []string{"Meaning", "Impact", "Look at", "Do"} {
			next := strings.Index(text[at:], "\n**"+part+".** ")
			if next < 0 {
				t.Errorf("%s lacks %s, or has it out of order", name, part)
				break
			}
			at += next + 1
		}
	}
	for heading := range found {
		if !alerts[heading] {
			t.Errorf("there is no alert %s", heading)
		}
	}
}

// GitHub makes an anchor of a heading by taking its letters as small ones: names of alerts are nothing but letters.
func TestAnchorsAreGitHubs(t *testing.T) {
	for name := range alertRules() {
		if !regexp.MustCompile(`^Weir[A-Za-z]+$`).MatchString(name[0]) {
			t.Errorf("%s: the anchor of such a heading may be another one", name[0])
		}
	}
	text := read(t, "docs/runbook.md")
	for _, link := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(sections(t))), func(heading string) bool { return Anchor(heading) == link[1] }) {
			t.Errorf("the runbook has no section #%s", link[1])
		}
	}
}

// spans are what the runbook shows as code within its text.
func spans(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(read(t, "docs/runbook.md"), -1) {
		all = append(all, strings.Join(strings.Fields(found[1]), " "))
	}
	return all
}

// Each command that the runbook shows is one of weir's, with flags that it has.
func TestRunbookCommandsExist(t *testing.T) {
	known := 0
	for _, span := range spans(t) {
		if words := strings.Fields(span); words[0] == "weir" {
			if err := weirHas(t, words); err != nil {
				t.Errorf("%s: %v", span, err)
			}
			known++
		}
	}
	if known < 20 {
		t.Errorf("only %d commands: are they shown otherwise?", known)
	}
	for _, wrong := range []string{"weir partition list", "weir partitions list --halted", "weir blocks", "weir"} {
		if weirHas(t, strings.Fields(wrong)) == nil {
			t.Errorf("%s passes for a command", wrong)
		}
	}
}

// weirHas looks a command up in the help pages, which a test of cmd/weir holds to be those of the program.
func weirHas(t *testing.T, words []string) error {
	t.Helper()
	name, help := "weir", ""
	rest := words[1:]
	for ; len(rest) > 0; rest = rest[1:] {
		text, err := os.ReadFile(filepath.Join(repository, "cmd/weir/testdata/help", name+"-"+rest[0]+".txt"))
		if err != nil {
			break
		}
		name, help = name+"-"+rest[0], string(text)
	}
	if help == "" || strings.Contains(help, "Available Commands:") {
		return fmt.Errorf("no command, or one that is a family")
	}
	for _, word := range rest {
		if strings.HasPrefix(word, "-") && !regexp.MustCompile(`[ ,]`+regexp.QuoteMeta(word)+`\b`).MatchString(help) {
			return fmt.Errorf("it has no flag %s", word)
		}
	}
	return nil
}

// What the runbook shows as PromQL is.
func TestRunbookQueriesParse(t *testing.T) {
	var queries []Rule
	for _, span := range spans(t) {
		if strings.Contains(span, "weir_") || strings.HasPrefix(span, "up ") {
			queries = append(queries, Rule{Record: fmt.Sprintf("query:%d:asked", len(queries)), Expr: span})
		}
	}
	if len(queries) < 40 {
		t.Fatalf("only %d queries: are they shown otherwise?", len(queries))
	}
	path := filepath.Join(t.TempDir(), FileName)
	writeGroups(t, path, []Group{{Name: "runbook", Rules: queries}})
	promtool(t, "check", "rules", path)
	for _, q := range queries {
		checkNames(t, q.Expr)
	}
}

// What is recorded or alerted on is exported or recorded, under these labels.
func TestRulesAskForWhatThereIs(t *testing.T) {
	for _, g := range Groups(RunbookURL) {
		for _, r := range g.Rules {
			checkNames(t, r.Expr)
		}
	}
}

// A replay must wake nobody: each expression says that it means the live stream, where a replay exports the metric, too.
func TestRulesLookAtTheLiveStream(t *testing.T) {
	byReplays := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)` .*\\bingest\\b.*$").FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		byReplays[row[1]] = true
	}
	if len(byReplays) < 50 || byReplays["weir_gate_observing"] {
		t.Fatalf("docs/metrics.md has %d metrics of replays", len(byReplays))
	}
	for _, g := range Groups(RunbookURL) {
		for _, r := range g.Rules {
			for _, found := range regexp.MustCompile(`([a-z_0-9:]*weir_[a-z_0-9:]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(r.Expr, -1) {
				if byReplays[found[1]] && !strings.Contains(found[2], live) {
					t.Errorf("%s%s: %s without %s", r.Record, r.Alert, found[1], live)
				}
			}
		}
	}
}

// exported are the metrics of docs/metrics.md, which a test of cmd/weir holds to be those of the program, with their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	word := regexp.MustCompile("`([a-z_]+)`")
	found := map[string][]string{}
	for line := range strings.Lines(read(t, "docs/metrics.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(cells[1], " `weir_") {
			continue
		}
		labels := []string{"namespace", "stream", "job", "instance", "le"}
		for _, label := range word.FindAllStringSubmatch(cells[3], -1) {
			labels = append(labels, label[1])
		}
		found[word.FindStringSubmatch(cells[1])[1]] = labels
	}
	if len(found) < 50 {
		t.Fatalf("docs/metrics.md has %d metrics", len(found))
	}
	return found
}

// checkNames holds an expression to the metrics, the recorded series and their labels.
func checkNames(t *testing.T, expr string) {
	t.Helper()
	metrics, recorded := exported(t), map[string]bool{}
	for _, g := range Groups(RunbookURL) {
		for _, r := range g.Rules {
			recorded[r.Record] = true
		}
	}
	may := []string{"job", "instance", "namespace"}
	for _, found := range regexp.MustCompile(`([a-z_0-9:]*weir_[a-z_0-9:]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expr, -1) {
		name := found[1]
		if recorded[name] {
			may = append(may, "rule", "slo", "owner", "mode", "stage", "partition")
			continue
		}
		labels, ok := metrics[name]
		if !ok {
			labels, ok = metrics[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")]
		}
		if !ok {
			t.Errorf("nobody exports or records %s: %s", name, expr)
		}
		may = append(may, labels...)
		for _, label := range regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"`).FindAllStringSubmatch(found[2], -1) {
			if !slices.Contains(labels, label[1]) {
				t.Errorf("%s has no label %s: %s", name, label[1], expr)
			}
		}
	}
	for _, list := range regexp.MustCompile(`(?:by|on) \(([a-z_, ]+)\)`).FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(list[1], ",") {
			if !slices.Contains(may, strings.TrimSpace(label)) {
				t.Errorf("nothing there has a label %s: %s", label, expr)
			}
		}
	}
}
