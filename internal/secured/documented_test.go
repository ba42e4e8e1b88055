package secured

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// document is the page whose tables and SQL these tests give to the servers.
type document struct {
	kafka []kafkaRight
	redis map[string]string // rights, by user
	sql   string
}

// kafkaRight is one operation on one resource that a user may do.
type kafkaRight struct {
	user      string
	kind      kmsg.ACLResourceType
	name      string
	operation kmsg.ACLOperation
}

func (r kafkaRight) String() string {
	return fmt.Sprintf("%s: %s of %s %s", r.user, r.operation, strings.ToLower(r.kind.String()), r.name)
}

func readDocument(t testing.TB) *document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{redis: map[string]string{}}
	section, inSQL := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "## "):
			section = strings.TrimPrefix(line, "## ")
		case strings.HasPrefix(line, "```"):
			inSQL = line == "```sql"
		case inSQL:
			d.sql += line + "\n"
		case strings.HasPrefix(line, "| `weir-"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			for _, user := range names(cells[0]) {
				if section == "Redis" {
					d.redis[user] = strings.Trim(cells[1], "`")
					continue
				}
				d.readKafka(t, user, cells[1:])
			}
		}
	}
	if len(d.kafka) < 50 || len(d.redis) < 4 || len(d.sql) < 500 {
		t.Fatalf("docs/security.md names %d rights on Kafka, %d users of Redis and %d bytes of SQL: it is not read as it is written", len(d.kafka), len(d.redis), len(d.sql))
	}
	return d
}

// names are the words of a cell, which stand in backquotes.
func names(cell string) (all []string) {
	for i, part := range strings.Split(cell, "`") {
		if i%2 == 1 {
			all = append(all, part)
		}
	}
	return all
}

func (d *document) readKafka(t testing.TB, user string, cells []string) {
	t.Helper()
	kind, err := kmsg.ParseACLResourceType(cells[0])
	if err != nil || len(cells) != 3 {
		t.Fatalf("%s: %q: %v", user, cells, err)
	}
	for _, name := range names(cells[1]) {
		for operation := range strings.SplitSeq(cells[2], ", ") {
			op, err := kmsg.ParseACLOperation(operation)
			if err != nil {
				t.Fatalf("%s: %q: %v", user, cells, err)
			}
			d.kafka = append(d.kafka, kafkaRight{user, kind, name, op})
		}
	}
}
