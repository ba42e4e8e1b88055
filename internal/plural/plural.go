// Package plural counts things in messages: 1 rule, 2 rules.
package plural

import "fmt"

// Of writes n and the thing, with an s unless there is one.
func Of[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
