package exactness

import (
	"errors"
	"fmt"
	"strings"
)

// Verdict is what a judge has found wrong.
type Verdict struct {
	Lost    int      // counted too seldom
	Doubled int      // counted too often
	Extra   int      // there, but should not be
	Wrong   []string // in words, the first few
}

// told bounds Verdict.Wrong: what is wrong is most often wrong a thousand times.
const told = 10

func (v *Verdict) wrong(format string, arguments ...any) {
	if len(v.Wrong) < told {
		v.Wrong = append(v.Wrong, fmt.Sprintf(format, arguments...))
	}
}

// Err is nil where nothing is wrong.
func (v *Verdict) Err() error {
	if v.Lost+v.Doubled+v.Extra == 0 && len(v.Wrong) == 0 {
		return nil
	}
	text := fmt.Sprintf("lost %d, doubled %d, extra %d", v.Lost, v.Doubled, v.Extra)
	if len(v.Wrong) > 0 {
		text += ": " + strings.Join(v.Wrong, "; ")
	}
	return errors.New(text)
}
