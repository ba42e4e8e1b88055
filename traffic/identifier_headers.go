package traffic

// Headers are the names of the request headers that FromCarrier looks at, as http.Header spells them: what a gate has to
// be told of a request beside its addresses.
func (x *Identifier) Headers() []string {
	var names []string
	cookies := false
	for f := FieldDevice; f < NumFields; f++ {
		if name := x.sources[f].Header; name != "" {
			names = append(names, name)
		}
		cookies = cookies || x.sources[f].Cookie != ""
	}
	if cookies {
		names = append(names, "Cookie")
	}
	return names
}
