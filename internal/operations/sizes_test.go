package operations

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// sized is what the formulas of docs/operations.md make of three figures.
type sized struct {
	events, keys, blocks, partitions float64
}

// stage gives processes, and what each asks for in millicores, of an event's cost in microseconds.
func (s sized) stage(cost float64) (processes, millicores int) {
	all := math.Ceil(s.events * 2 * cost / 1000)
	processes = max(2, 1+int(math.Ceil(all/2000)))
	return processes, 100 + int(math.Ceil(all/float64(processes-1)))
}

func (s sized) budget() float64 {
	return math.Max(32, math.Ceil(s.keys*128/(s.partitions*(1<<20))))
}

func (s sized) detectorMemory() float64 {
	processes, _ := s.stage(1.9)
	return 400 + math.Ceil(1.25*math.Ceil(s.partitions/float64(processes-1))*s.budget())
}

func (s sized) rows() []string {
	stage := func(name string, cost float64) string {
		processes, millicores := s.stage(cost)
		return fmt.Sprintf("%s: processes × millicores=%d × %d", name, processes, millicores)
	}
	return []string{
		"keys=" + grouped(s.keys), "blocks=" + grouped(s.blocks), fmt.Sprintf("keyed partitions=%.0f", s.partitions),
		stage("ROUTE", 2.8), stage("DETECT", 1.9), stage("RECORD", 0.5), stage("ENFORCE", 0.5),
		fmt.Sprintf("budget a partition, MiB=%.0f", s.budget()), fmt.Sprintf("memory of a detector, MiB=%.0f", s.detectorMemory()),
		fmt.Sprintf("all snapshots stored in, seconds=%.0f", math.Ceil(s.budget()*s.partitions/10)),
		fmt.Sprintf("memory of a gate, MiB=%.0f", 256+math.Ceil(s.blocks/1024)),
		fmt.Sprintf("`requests` on disk, GB: 400 bytes an event, a day at half the peak, 3 replicas=%.0f", s.events/2*400*86400*3/1e9),
	}
}

// grouped writes a number with commas.
func grouped(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// The worked examples of docs/operations.md are what its formulas give, and those of docs/kubernetes.md, which the chart is held to, the same.
func TestDocumentedSizes(t *testing.T) {
	examples := []sized{{10_000, 2_000_000, 100_000, 64}, {100_000, 20_000_000, 1_000_000, 128}, {1_000_000, 100_000_000, 5_000_000, 256}}
	operations, kubernetes := string(readFile(t, filepath.Join(repository, "docs", "operations.md"))), string(readFile(t, filepath.Join(repository, "docs", "kubernetes.md")))
	lines := map[string]string{}
	var order []string
	for _, s := range examples {
		for _, row := range s.rows() {
			name, value, _ := strings.Cut(row, "=")
			if lines[name] == "" {
				lines[name] = "| " + name + " |"
				order = append(order, name)
			}
			lines[name] += " " + value + " |"
		}
	}
	for _, name := range order {
		if !strings.Contains(operations, lines[name]+"\n") {
			t.Errorf("docs/operations.md has not the line\n%s", lines[name])
		}
	}
	detect, route := "| `weir-detect` |", "| `weir-route` |"
	for _, s := range examples {
		processes, millicores := s.stage(1.9)
		detect += fmt.Sprintf(" %d × %dm, %s MiB |", processes, millicores, grouped(s.detectorMemory()))
		processes, millicores = s.stage(2.8)
		route += fmt.Sprintf(" %d × %dm, 512 MiB |", processes, millicores)
	}
	for _, line := range []string{detect, route} {
		if !strings.Contains(kubernetes, line) {
			t.Errorf("docs/kubernetes.md has other sizes than\n%s", line)
		}
	}
}
