package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// detectorsArePure looks at package detectors only.
func detectorsArePure(f folder) []string {
	if f.path != "detectors" {
		return nil
	}
	var findings []string
	for _, s := range f.code() {
		for name, spec := range s.imports() {
			if why := impure(name); why != "" {
				findings = append(findings, s.at(spec, "imports %s: %s", name, why))
			}
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.GoStmt:
				findings = append(findings, s.at(node, "starts a goroutine"))
			case *ast.SelectStmt:
				findings = append(findings, s.at(node, "waits in a select"))
			case *ast.SelectorExpr:
				if name := s.selector(node); readsTheClock(name) || shares(name) {
					findings = append(findings, s.at(node, "uses %s", name))
				}
			}
			return true
		})
	}
	return findings
}

func impure(name string) string {
	for _, start := range []string{"os", "net/http", "net/rpc", "database/sql", "syscall", "io/ioutil", "plugin"} {
		if name == start || strings.HasPrefix(name, start+"/") {
			return "no input or output here"
		}
	}
	switch name {
	case "net":
		return "no input or output here (addresses: net/netip)"
	case "context", "log", "log/slog":
		return "nothing here waits or logs; the caller does"
	case "math/rand", "math/rand/v2", "crypto/rand":
		return "the same log must give the same bytes"
	case "hash/maphash":
		return "its seed differs from process to process"
	}
	return ""
}

func readsTheClock(name string) bool {
	return slices.Contains([]string{
		"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.Tick", "time.NewTimer",
		"time.NewTicker",
	}, name)
}

// shares names what only makes sense between goroutines. (A sync.Pool keeps memory, not meaning.)
func shares(name string) bool {
	return slices.Contains([]string{"sync.WaitGroup", "sync.Mutex", "sync.RWMutex", "sync.Cond", "sync.Map", "sync.Once"}, name)
}
