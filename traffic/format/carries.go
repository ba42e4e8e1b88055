package format

import "slices"

// Carries reports whether events of a format can have a member of the weir event, by its name there: plan, attrs, headers.
// Where the owner of a log chooses its names, they can.
func Carries(format string, fieldMap map[string]string, name string) bool {
	switch format {
	case Weir, Protobuf, JSON:
		return true
	case Combined:
		return slices.Contains([]string{"time", "ip", "user", "method", "path", "status", "user_agent", "bytes"}, name)
	}
	f := findFormat(format)
	if f == nil || f.ownNames || fieldMap[name] != "" {
		return true
	}
	if name == memberNames[memberHeaders] {
		return len(f.headers) > 0
	}
	return slices.ContainsFunc(f.sources, func(s source) bool { return memberNames[s.field] == name })
}
