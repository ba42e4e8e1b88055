package condition

import (
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
)

// field is a member of the event that is always there, if only as its zero value.
type field uint8

const (
	fieldID field = iota
	fieldTime
	fieldIP
	fieldDevice
	fieldUser
	fieldAPIKey
	fieldSession
	fieldMethod
	fieldHost
	fieldPath
	fieldRoute
	fieldStatus
	fieldUserAgent
	fieldLatency
	fieldBytes
	fieldPlan
	fieldGateway
	numFields
)

// fieldNames are as events.md has them.
var fieldNames = [numFields]string{
	"id", "time", "ip", "device", "user", "api_key", "session", "method", "host", "path", "route", "status", "user_agent", "latency_ms", "bytes",
	"plan", "gateway",
}

// kind is the type of a field.
type kind uint8

const (
	kindText kind = iota
	kindWhole
	kindDecimal
	kindTime
)

var fieldKinds = [numFields]kind{
	fieldTime: kindTime, fieldStatus: kindWhole, fieldBytes: kindWhole, fieldLatency: kindDecimal,
}

const (
	attrsName   = "attrs"
	headersName = "headers"
	eventName   = "event"
	eventPrefix = eventName + "."
)

func (k kind) cel() *cel.Type {
	return [...]*cel.Type{kindText: cel.StringType, kindWhole: cel.IntType, kindDecimal: cel.DoubleType, kindTime: cel.TimestampType}[k]
}

func fieldNamed(name string) (field, bool) {
	for f, n := range fieldNames {
		if n == name {
			return field(f), true
		}
	}
	return 0, false
}

// Fields lists the names behind `event.`.
func Fields() []string {
	return append(append([]string(nil), fieldNames[:]...), attrsName, headersName)
}

// The values of an expression are variables of their own, which nobody can write: @value0 and so on, and @has0 for whether
// the event has it.
const (
	valuePrefix = "@value"
	hasPrefix   = "@has"
)

// fieldAskedPrefix begins the variables of strict conditions that say whether the event has a field: @hasfield.plan.
const fieldAskedPrefix = hasPrefix + "field."

// fieldAsked is the field of such a variable.
func fieldAsked(name string) (field, bool) {
	if name, ok := strings.CutPrefix(name, fieldAskedPrefix); ok {
		return fieldNamed(name)
	}
	return 0, false
}

func valueName(prefix string, i int) string { return prefix + strconv.Itoa(i) }

func parseValueName(name string) (prefix string, i int, ok bool) {
	if !strings.HasPrefix(name, "@") {
		return "", 0, false
	}
	for _, prefix = range []string{valuePrefix, hasPrefix} {
		if number, found := strings.CutPrefix(name, prefix); found {
			i, err := strconv.Atoi(number)
			return prefix, i, err == nil
		}
	}
	return "", 0, false
}
