package rules

import (
	"fmt"
	"strings"
	"testing"
)

// manyFiles are n documents as their owners keep them: several in a file, some with a condition, a block, an allow list and tiers.
func manyFiles(n int) (files []File) {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\nid: rule-%05d\nowner: team-%d\nmatch: {method: POST, path: \"/service-%d/{id}\"", i, i%20, i)
		if i%4 == 0 {
			b.WriteString(`, when: 'event.status == 402 && event.attrs.model.startsWith("large")'`)
		}
		fmt.Fprintf(&b, "}\nkey: [ip, device]\nlimit: %d\nwindow: 5m\n", i%50+1)
		if i%2 == 0 {
			b.WriteString("block: {key: [ip, device], ttl: 15m}\n")
		}
		if i%100 == 99 || i == n-1 {
			files = append(files, File{Name: fmt.Sprintf("%d.yaml", len(files)), Src: []byte(b.String())})
			b.Reset()
		}
	}
	return files
}

// BenchmarkParseSet is what every command does with documents: ten times the rules shall take ten times as long.
func BenchmarkParseSet(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			files, env := manyFiles(n), testEnvironment()
			env.Warn = func(Problem) {}
			b.ReportAllocs()
			for b.Loop() {
				set, err := ParseSet(files, env)
				if err != nil || len(set.Rules) != n {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
		})
	}
}

// BenchmarkParseHostile is how long it takes to refuse what is meant to hurt a parser: none of it much longer than to
// read as many bytes.
func BenchmarkParseHostile(b *testing.B) {
	env := testEnvironment()
	for name, src := range hostileDocuments() {
		b.Run(name, func(b *testing.B) {
			text := []byte(src)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parse("hostile.yaml", text, env); err == nil {
					b.Fatal("it is taken")
				}
			}
		})
	}
}
