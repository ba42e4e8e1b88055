package versions

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// stored is a rule as the store gives it, with versions of these limits; the last is pending where it is below the one before.
func stored(limits ...int) *rulestore.Rule {
	r := &rulestore.Rule{Mode: rules.ModeBlock}
	for i, limit := range limits {
		v := rulestore.StoredVersion{Version: rules.Version{Number: i + 1, Lineage: 1, Document: rules.Document{
			ID: "flood", Owner: "edge", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Missing: rules.MissingSkip, Limit: limit,
			Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute,
		}}}
		if i > 0 && i == len(limits)-1 && limit < limits[i-1] {
			v.Version.Pending = true
			r.Pending = &v
		} else {
			r.Newest = v
		}
		r.Versions = append([]rulestore.StoredVersion{v}, r.Versions...)
	}
	return r
}

func TestLimitChange(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		until  string
		length time.Duration
		end    bool
		says   string
	}{
		"until":           {[]string{"r", "50"}, "2026-12-24T18:00:00Z", 0, false, ""},
		"for":             {[]string{"r", "50"}, "", time.Hour, false, ""},
		"clear":           {[]string{"r"}, "", 0, true, ""},
		"both":            {[]string{"r", "50"}, "2026-12-24T18:00:00Z", time.Hour, false, "--until and --for"},
		"neither":         {[]string{"r", "50"}, "", 0, false, "neither --until nor --for"},
		"no limit":        {[]string{"r"}, "", time.Hour, false, "got no limit"},
		"no number":       {[]string{"r", "many"}, "", time.Hour, false, `got "many"`},
		"zero":            {[]string{"r", "0"}, "", time.Hour, false, `got "0"`},
		"no time":         {[]string{"r", "50"}, "tomorrow", 0, false, `--until: got "tomorrow"`},
		"clear and limit": {[]string{"r", "50"}, "", 0, true, "allowed: --clear alone"},
	} {
		c, err := limitChange(test.args, test.until, test.length, test.end)
		switch {
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want %q", name, err, test.says)
		case test.says == "" && (err != nil || c.Rule != "r" || test.end != (c.Limit == 0) ||
			(test.until == "") != c.Until.IsZero() || (test.length != 0) != (c.For == "1h")):
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func TestAgreed(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " YES \n": true, "y": true, "n\n": false, "\n": false, "": false, "yess\n": false, strings.Repeat("y", 100): false} {
		var out bytes.Buffer
		if ok, err := Agreed(strings.NewReader(answer), &out); err != nil || ok != want || out.Len() == 0 {
			t.Errorf("%q: %v, %v, asked %q", answer, ok, err, out.String())
		}
	}
	if ok, err := Agreed(iotest.ErrReader(errors.New("gone")), &bytes.Buffer{}); ok || err == nil {
		t.Errorf("no answer: %v, %v", ok, err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if Asks(f) || Asks(strings.NewReader("y\n")) {
		t.Error("somebody who is not there would be asked")
	}
}

func TestExportFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rules")
	all := []rulestore.Rule{*stored(3, 5, 4)}
	// A list may have the id of a rule.
	lists := []rulestore.AllowList{{List: rules.AllowList{ID: "flood", Owner: "edge", Entries: []rules.AllowEntry{
		{Kind: rules.AllowCIDR, Value: "192.0.2.0/24", Reason: "# an office: \"1\"", Until: traffic.At(time.Unix(1_900_000_000, 0))},
	}}}}
	env := rules.Environment{Identity: traffic.DefaultIdentityMap()}
	if err := exportFiles(dir, documents(all, lists, env), false); err != nil {
		t.Fatal(err)
	}
	var set *rules.Set
	files, err := rules.ReadDir(os.DirFS(dir), "rules")
	if err == nil {
		set, err = rules.ParseSet(files, rules.Environment{Identity: traffic.DefaultIdentityMap()})
	}
	if err != nil || len(set.Rules) != 1 || !set.Rules[0].Equal(&all[0].Pending.Version.Document) {
		t.Errorf("wrote %+v, %v: want what is pending, the newest document", set, err)
	} else if len(set.AllowLists) != 1 || !set.AllowLists[0].Equal(&lists[0].List) {
		t.Errorf("wrote %+v", set.AllowLists)
	}
	var out bytes.Buffer
	if err := exportTo(&out, documents(all, lists, env)); err != nil {
		t.Error(err)
	} else if set, err := rules.ParseSet([]rules.File{{Name: "-", Src: out.Bytes()}}, rules.Environment{Identity: traffic.DefaultIdentityMap()}); err != nil || len(set.Rules)+len(set.AllowLists) != 2 {
		t.Errorf("wrote\n%s%+v, %v", &out, set, err)
	}
	if err := exportFiles(dir, documents(all, lists, env), false); err != nil {
		t.Errorf("the same again: %v", err)
	}
	file := filepath.Join(dir, "flood.yaml")
	if err := os.WriteFile(file, []byte("# mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := *stored(1)
	other.Newest.Version.ID = "aaa"
	if err := exportFiles(dir, documents(append([]rulestore.Rule{other}, all...), lists, env), false); err == nil || !strings.Contains(err.Error(), "flood.yaml: got a file that holds something else") {
		t.Errorf("over another file: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("a refused export wrote %d files, %v", len(entries), err)
	}
	if err := exportFiles(dir, documents(all, lists, env), true); err != nil {
		t.Error(err)
	}
	// What was stored as it was written is exported so; where it means something else than what was stored, the document is.
	all[0].Pending.Source = "# why\nid: flood\nowner: edge\nmatch: {}\nkey: [{field: ip, v4: 32, v6: 64}]\nlimit: 4\nwindow: 1m\n"
	if got := documentOf(&all[0], env); !strings.HasPrefix(got, "# why\n") {
		t.Errorf("exported\n%s", got)
	}
	all[0].Pending.Source = "key: [ip] # no line end\nid: flood\nowner: edge\nmatch: {}\nlimit: 4\r\nwindow: 1m"
	if got := documentOf(&all[0], env); got != all[0].Pending.Source {
		t.Errorf("exported %q", got)
	}
	out.Reset()
	if err := exportTo(&out, documents(all, lists, env)); err != nil || !strings.HasPrefix(out.String(), all[0].Pending.Source+"\n---\n") {
		t.Errorf("exported %q, %v", out.String(), err)
	}
	another := env
	another.Identity.IP.V4 = 24
	if got := documentOf(&all[0], another); !strings.Contains(got, "v4: 32") {
		t.Errorf("by an identity map of which the text says otherwise it is exported as\n%s", got)
	}
	all[0].Pending.Source = strings.Replace(all[0].Pending.Source, "limit: 4", "limit: 40", 1)
	if got := documentOf(&all[0], env); strings.Contains(got, "40") || !strings.Contains(got, "limit: 4\n") {
		t.Errorf("exported\n%s", got)
	}
}
