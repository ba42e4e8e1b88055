package condition

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// bounds are numbers at which kinds of numbers end: of whole ones that a decimal holds, of 64 bits, and of decimals.
func numbersAtBounds() (texts []string) {
	for _, power := range []uint{0, 31, 52, 53, 54, 62, 63, 64, 65} {
		for _, step := range []int64{-2, -1, 0, 1, 2} {
			n := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), power), big.NewInt(step))
			texts = append(texts, n.String(), new(big.Int).Neg(n).String())
		}
	}
	return append(texts, "0.5", "-0.5", "-0", "9007199254740992.5", "9007199254740991.5", "1e15", "9.007199254740992e15", "90071992547409930e-1", "9007199254740993.0", "1.8446744073709552e19",
		"9.223372036854775807e18", "-9.223372036854775808e18", "1e308", "-1e308", "5e-324")
}

// constants are the spellings of a number that CEL takes: of a whole one as an int, as a uint, and as a double.
func constants(number string) (out []string) {
	f, ok := new(big.Float).SetPrec(200).SetString(number)
	if !ok {
		return nil
	}
	if i, accuracy := f.Int64(); accuracy == big.Exact && !strings.ContainsAny(number, ".e") {
		out = append(out, fmt.Sprint(i))
	}
	if u, accuracy := f.Uint64(); accuracy == big.Exact && !strings.ContainsAny(number, ".e-") {
		out = append(out, fmt.Sprint(u)+"u")
	}
	if d, _ := f.Float64(); !math.IsInf(d, 0) {
		text := number
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		out = append(out, text)
	}
	return out
}

// Closures and the CEL program come to the same about numbers where decimals are too coarse for whole ones, and at the ends of 64
// bits: of attrs, which have them in any spelling, and of fields.
func TestNumbersAgreeAtTheirBounds(t *testing.T) {
	l := language(t)
	numbers := append(numbersAtBounds(), "1e400", "-1e400", `"1"`, "true", "null")
	var events []*Event
	for _, n := range numbers {
		e := &Event{}
		e.Reset(&traffic.Request{Attrs: []byte(`{"x": ` + n + `}`), Bytes: 1 << 53, LatencyUS: math.MaxInt64}, &traffic.Identity{})
		events = append(events, e)
	}
	var exprs []string
	for _, n := range numbersAtBounds() {
		for _, c := range constants(n) {
			for _, op := range []string{"==", "!=", "<", "<=", ">", ">="} {
				exprs = append(exprs, "event.attrs.x "+op+" "+c)
			}
			for _, list := range []string{"[%s]", "[%s, null]", `["a", %s]`, "[7, %s]", "[%s, 0.5]"} {
				exprs = append(exprs, "event.attrs.x in "+fmt.Sprintf(list, c))
			}
			exprs = append(exprs, "event.bytes < "+c, "event.bytes >= "+c, "event.bytes in [7, 7.5, "+c+"]", "event.latency_ms <= "+c, "event.latency_ms in [7, 7.5, "+c+"]")
		}
	}
	closures, held := 0, 0
	for _, expr := range exprs {
		fast, err := l.Compile(expr)
		if err != nil {
			if !strings.Contains(err.Error(), "two values of one type") && !strings.Contains(err.Error(), "in with") {
				t.Fatalf("%s: %v", expr, err)
			}
			continue
		}
		slow, err := l.compile(expr, mode{program: true})
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		if fast.clause != nil {
			closures++
		}
		for i, e := range events {
			holds, f := fast.Holds(e)
			if again, other := slow.Holds(e); again != holds || f != other {
				t.Errorf("%s of %s: %v %v, as a program %v %v", expr, numbers[i], holds, f, again, other)
			}
			if holds {
				held++
			}
		}
	}
	if closures < len(exprs)/2 || held < len(exprs) {
		t.Errorf("%d closures of %d conditions, which held %d times: the test has shown little", closures, len(exprs), held)
	}
}
