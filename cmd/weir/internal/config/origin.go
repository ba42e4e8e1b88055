package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/internal/yamlnode"
)

// Origin is where a field was set. The zero value is its default; of the others one of File, Variable and Flag is set.
type Origin struct {
	File     string // with Place
	Place    yamlnode.Place
	Variable string // of the environment
	Flag     string // as the user wrote it: --kafka-brokers, --set
}

var _ fmt.Stringer = Origin{}

// String says it as errors do: weir.yaml:3:9, WEIR_NAMESPACE, --namespace, default.
func (o Origin) String() string {
	if o.File != "" {
		if o.Place.Column == 0 {
			return fmt.Sprintf("%s:%d", o.File, o.Place.Line)
		}
		return fmt.Sprintf("%s:%d:%d", o.File, o.Place.Line, o.Place.Column)
	}
	return cmp.Or(o.Variable, o.Flag, "default")
}

// Origins says where the fields of a configuration were set, by path. A field that is not in it has its default.
type Origins map[string]Origin

// Has reports whether somebody set the field.
func (o Origins) Has(path string) bool {
	_, set := o[path]
	return set
}

// String sums them up: 3 fields from weir.yaml, 2 from the environment, 1 from flags, the rest by default.
func (o Origins) String() string {
	files, variables, flags := map[string]int{}, 0, 0
	for _, where := range o {
		switch {
		case where.File != "":
			files[where.File]++
		case where.Variable != "":
			variables++
		default:
			flags++
		}
	}
	var parts []string
	for file, n := range files {
		parts = append(parts, plural.Of(n, "field")+" from "+file)
	}
	slices.Sort(parts)
	if variables > 0 {
		parts = append(parts, fmt.Sprintf("%d from the environment", variables))
	}
	if flags > 0 {
		parts = append(parts, fmt.Sprintf("%d from flags", flags))
	}
	if len(parts) == 0 {
		return "defaults only"
	}
	return strings.Join(parts, ", ") + ", the rest by default"
}
