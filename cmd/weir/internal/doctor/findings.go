// Package doctor looks at everything that an installation needs, and says of each thing whether it is as it should be and what to
// do about it if not. It changes nothing.
package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Status is what a Finding means.
type Status string

// The statuses; those that are worse come later.
const (
	OK   Status = "ok"
	Warn Status = "warn" // it works, and somebody should know
	Fail Status = "fail" // something that weir is for does not work
)

// Finding is one line of weir doctor.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // what to do about it; empty where nothing is to be done
}

func fine(check, format string, args ...any) Finding {
	return Finding{Check: check, Status: OK, Found: fmt.Sprintf(format, args...)}
}

func warning(check, remedy, format string, args ...any) Finding {
	return Finding{Check: check, Status: Warn, Found: fmt.Sprintf(format, args...), Remedy: remedy}
}

func failing(check, remedy, format string, args ...any) Finding {
	return Finding{Check: check, Status: Fail, Found: fmt.Sprintf(format, args...), Remedy: remedy}
}

// MarshalJSON writes the remedy a second time under the name that it had before, mend: programs may read that for one release.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	return json.Marshal(struct {
		plain
		Mend string `json:"mend,omitempty"`
	}{plain(f), f.Remedy})
}

// failed is the finding of a check that could not be made. Where the error advises nothing, otherwise is the remedy.
func failed(check string, err error, otherwise string) Finding {
	text := problems(err)
	if advised := (interface{ Advice() string })(nil); errors.As(err, &advised) {
		return failing(check, advised.Advice(), "%s", strings.TrimSuffix(text, "; "+advised.Advice()))
	}
	return failing(check, otherwise, "%s", text)
}

// problems writes several joined errors one to a line.
func problems(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\nweir: ") }
