package traffic

import "strings"

// FieldsAsIs takes the fields of an event as builds before record format 4 do: every member as the gateway's word, the last
// line of a repeated header, the last line with the cookie, any bytes. It is for streams whose routers may be of such a
// build: all must route an event alike. It goes, with this file, when record format 3 does. A gate never has it.
func FieldsAsIs() IdentifierOption {
	return func(x *Identifier) { x.asIs = true }
}

// fieldAsIs stores field f in id, or says why it is missing.
func (r *Request) fieldAsIs(id *Identity, f Field, src *FieldSource) MissingReason {
	value := trimBlank(r.Field(f))
	for i := len(r.Headers) - 1; value == "" && src.Header != "" && i >= 0; i-- {
		if strings.EqualFold(r.Headers[i].Name, src.Header) {
			value = trimBlank(r.Headers[i].Value)
			break
		}
	}
	for i := len(r.Headers) - 1; value == "" && src.Cookie != "" && i >= 0; i-- {
		if strings.EqualFold(r.Headers[i].Name, "Cookie") {
			value = filledCookie(r.Headers[i].Value, src.Cookie)
		}
	}
	switch {
	case src.Header == "" && src.Cookie == "":
		return MissingNoSource
	case value == "":
		return MissingAbsent
	}
	id.set(f, value)
	return Present
}

// filledCookie is the first cookie of that name in a line that has a value.
func filledCookie(line, name string) string {
	for line != "" {
		part, rest, _ := strings.Cut(line, ";")
		if value, _ := cookie(part, name); value != "" {
			return value
		}
		line = rest
	}
	return ""
}
