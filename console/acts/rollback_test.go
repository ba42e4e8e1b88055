package acts

import (
	"strings"
	"testing"
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

func TestRollbackTarget(t *testing.T) {
	removed := stored(3, 5)
	removed.Removed, removed.ChangedBy = true, "ann"
	for name, test := range map[string]struct {
		rule *rulestore.Rule
		to   int
		want int // 0: an error
		says string
	}{
		"the one before":             {stored(3, 5, 7), 0, 2, ""},
		"named":                      {stored(3, 5, 7), 1, 1, ""},
		"pending: the one that acts": {stored(3, 5, 4), 0, 2, ""},
		"a pending one, named":       {stored(3, 5, 4), 3, 3, ""},
		"none before":                {stored(3), 0, 0, "none to go back to"},
		"none with the number":       {stored(3, 5), 9, 0, "got 9, allowed 1 to 2"},
		"removed":                    {removed, 0, 0, "was removed"},
	} {
		v, err := rollbackTarget(test.rule, test.to)
		switch {
		case test.want == 0 && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want %q", name, err, test.says)
		case test.want != 0 && (err != nil || v.Version.Number != test.want):
			t.Errorf("%s: %+v, %v, want version %d", name, v, err, test.want)
		}
	}
}
