package stream

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// frequentRoom is how many different requests are counted at the same time, and frequentPath how many bytes of a path tell
// them apart. A request that comes more often than once in frequentRoom is always among those counted at the end.
const (
	frequentRoom = 4096
	frequentPath = 200
)

// frequent finds the most frequent requests of a file of any length (Misra and Gries, Finding repeated elements, 1982): when
// there is no more room, all counts fall by one, and requests whose count is 0 are dropped. Counts are too low by missed at
// most.
type frequent struct {
	counts map[requestLine]*int64 // not numbers: an assignment would keep the strings that it was made with
	missed int64
}

type requestLine struct{ method, path string }

// add counts a request, whose strings may be overwritten afterwards.
func (f *frequent) add(r *traffic.Request) {
	path := r.Path
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	line := requestLine{r.Method[:min(len(r.Method), frequentPath)], path[:min(len(path), frequentPath)]}
	switch n := f.counts[line]; {
	case n != nil:
		*n++
	case len(f.counts) >= frequentRoom:
		f.makeRoom()
	default:
		if f.counts == nil {
			f.counts = map[requestLine]*int64{}
		}
		once := int64(1)
		f.counts[requestLine{strings.Clone(line.method), strings.Clone(line.path)}] = &once
	}
}

func (f *frequent) makeRoom() {
	f.missed++
	for line, n := range f.counts {
		if *n--; *n == 0 {
			delete(f.counts, line)
		}
	}
}

// FrequentRequest is one of the most frequent requests of a file.
type FrequentRequest struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Events int64  `json:"events"`
	// AtLeast says that there may have been more: not all requests of the file could be told apart.
	AtLeast bool `json:"at_least,omitempty"`
}

// top are the most frequent ones, at most so many.
func (f *frequent) top(most int) []FrequentRequest {
	var all []FrequentRequest
	for line, n := range f.counts {
		all = append(all, FrequentRequest{traffic.Printable(line.method), traffic.Printable(line.path), *n, f.missed > 0})
	}
	slices.SortFunc(all, func(a, b FrequentRequest) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return all[:min(len(all), most)]
}
