package dashboards_test

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// visitor is somebody in front of Grafana, who has a board open.
type visitor struct {
	w     *world
	conn  *pgx.Conn
	board sqlBoard
	g     *grafana
}

// open shows a board, with some variables set by the link that leads there.
func (v *visitor) open(t *testing.T, uid string, set map[string][]string) {
	t.Helper()
	boards := sqlBoards(t)
	v.board = boards[slices.IndexFunc(boards, func(b sqlBoard) bool { return b.uid == uid })]
	v.g = v.w.view(t, v.conn, v.board, 0)
	maps.Copy(v.g.variables, set)
}

// look reads a panel.
func (v *visitor) look(t *testing.T, title string) (named, []map[string]any) {
	t.Helper()
	q := v.board.queries[slices.IndexFunc(v.board.queries, func(q named) bool { return q.name == title })]
	return q, ask(t, v.conn, v.g.expand(t, q.text), title)
}

// click follows the link of a cell.
func (v *visitor) click(t *testing.T, q *named, row map[string]any, column string) {
	t.Helper()
	field, kept := regexp.MustCompile(`\$\{__data\.fields\.(\w+)(:percentencode)?\}`), regexp.MustCompile(`\$\{(\w+):queryparam\}`)
	address := field.ReplaceAllStringFunc(q.links[column], func(mention string) string {
		m := field.FindStringSubmatch(mention)
		if m[2] == "" {
			return fmt.Sprint(row[m[1]])
		}
		return url.QueryEscape(fmt.Sprint(row[m[1]]))
	})
	address = kept.ReplaceAllStringFunc(address, func(mention string) string {
		name := kept.FindStringSubmatch(mention)[1]
		return "var-" + name + "=" + url.QueryEscape(strings.Join(v.g.variables[name], ","))
	})
	address = strings.ReplaceAll(address, "${__url_time_range}", "from=now-6h&to=now")
	to, err := url.Parse(address)
	if err != nil || strings.Contains(address, "$") {
		t.Fatalf("a click on %s leads to %s: %v", column, address, err)
	}
	set := map[string][]string{}
	for name, values := range to.Query() {
		if variable, ok := strings.CutPrefix(name, "var-"); ok {
			set[variable] = values
		}
	}
	v.open(t, strings.TrimPrefix(to.Path, "/d/"), set)
}

// As an API owner would: which sources are over my rule, since when, what they asked for, what a block would hold.
func TestThreeClicks(t *testing.T) {
	w := newWorld(t)
	v := &visitor{w: w, conn: w.asReader(t)}
	v.open(t, "weir-overlimit", nil)
	q, found := v.look(t, "Rules, shadow beside blocking")
	mine := found[slices.IndexFunc(found, func(row map[string]any) bool { return row["rule"] == "guest-token-flood" })]
	if mine["mode"] != "shadow" || mine["over now"] == int64(0) || mine["would hold now"] == int64(0) {
		t.Fatalf("my rule: %v", mine)
	}

	v.click(t, &q, mine, "rule")
	q, found = v.look(t, "Top sources")
	if n := len(found); n < 50 && line(n) != line(mine["sources"]) {
		t.Errorf("%d sources are listed, and %v were counted", n, mine["sources"])
	}
	source := found[0]
	for _, column := range []string{"source", "over since", "asked for", "a block holds", "until"} {
		if source[column] == nil {
			t.Errorf("of the first source it is not said: %s", column)
		}
	}
	cameBack := false
	for _, row := range found {
		if row["rule"] != "guest-token-flood" {
			t.Errorf("a source of another rule: %v", row)
		}
		h := w.hits[slices.IndexFunc(w.hits, func(h detectors.Hit) bool { return h.ID == row["id"] })]
		if since, ok := row["over since"].(time.Time); !ok || traffic.At(since) != h.First {
			t.Errorf("%v is over since %v, which is to be %v", row["source"], row["over since"], h.First)
		}
		cameBack = cameBack || row["over since"] != row["first in range"]
	}
	if !cameBack {
		t.Error("no source of this world was over twice")
	}

	v.click(t, &q, source, "source")
	_, found = v.look(t, "Newest episodes")
	rulesOver := map[any]bool{}
	for _, row := range found {
		rulesOver[row["rule"]] = true
		if row["source"] != source["source"] {
			t.Errorf("the history of %v has %v", source["source"], row["source"])
		}
	}
	if !rulesOver["guest-token-flood"] || v.board.uid != "weir-history" {
		t.Errorf("on %s: %v", v.board.uid, found)
	}
	q, found = v.look(t, "Sample events")
	if len(found) == 0 || found[0]["path"] == nil {
		t.Errorf("no sample events: %v", found)
	}

	v.click(t, &q, found[0], "rule")
	if _, found = v.look(t, "Mode"); v.board.uid != "weir-rule" || len(found) != 1 {
		t.Errorf("back on %s: %v", v.board.uid, found)
	}
}
