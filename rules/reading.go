package rules

// reading is how a server understands a path: which delimiters it heeds, and what it does about segments that are dots or
// empty. Percent escapes are decoded once in every reading, since a pattern is written decoded: a server that compares
// them as they stand serves nothing under an escaped spelling that it would not serve under the plain one.
type reading uint16

const (
	readFragment           reading = 1 << iota // "#" ends the path
	readSemicolonEnd                           // ";" ends the path
	readParameters                             // ";" and what follows it in its segment are dropped
	readBackslash                              // "\" is a slash
	readEscapedBackslash                       // "%5C" is a slash
	readEscapedSlash                           // "%2F" is a slash
	readDots                                   // segments . and .. are resolved
	readEscapedDotsAsNames                     // but not those that are written with an escape
	readEmptySegments                          // .. takes away an empty segment; else slashes are merged before
	readAuthority                              // "//host" in front is a host, not a segment
)

// readings are those of common servers. Each is there because some path is served under it that no other one reads so; a
// test has these paths.
//
// Slashes are merged in all of them: patterns have no empty segments, so that a server which does not merge serves nothing
// that this could miss, but for what .. takes away.
var readings = [...]reading{
	// As written, decoded: Go's ServeMux since 1.22, routers on an escaped path, Spring's and ASP.NET's routes.
	0,
	// nginx, Apache, Python's http.server with files; nginx and Apache that do not merge slashes.
	readFragment | readEscapedSlash | readDots,
	readFragment | readEscapedSlash | readDots | readEmptySegments,
	// Go's URL.Path, WSGI, ASGI; the same, cleaned, as by path.Clean or http.FileServer; gunicorn, PHP, uvicorn.
	readEscapedSlash,
	readEscapedSlash | readDots,
	readFragment | readEscapedSlash,
	// Kestrel.
	readDots | readEmptySegments,
	readFragment | readDots | readEmptySegments,
	// Node's url.parse (Express, Koa), also decoded as a whole; new URL(), which takes //host for a host, also decoded.
	readFragment | readBackslash,
	readFragment | readBackslash | readEscapedSlash,
	readFragment | readBackslash | readDots | readEmptySegments,
	readFragment | readBackslash | readDots | readEmptySegments | readAuthority,
	readFragment | readBackslash | readEscapedSlash | readDots | readEmptySegments | readAuthority,
	// Envoy's path normalization with merged slashes, and with unescaped ones; IIS.
	readFragment | readBackslash | readDots,
	readFragment | readBackslash | readEscapedSlash | readDots,
	readFragment | readBackslash | readEscapedBackslash | readEscapedSlash | readDots,
	// Python's urlsplit, PHP's parse_url, java.net.URI, raw, decoded and cleaned; the same of Python's urlparse; URI.normalize.
	readFragment | readAuthority,
	readFragment | readAuthority | readEscapedSlash,
	readFragment | readAuthority | readEscapedSlash | readDots,
	readFragment | readAuthority | readParameters,
	readFragment | readAuthority | readParameters | readEscapedSlash,
	readFragment | readAuthority | readParameters | readEscapedSlash | readDots,
	readFragment | readEscapedSlash | readDots | readEscapedDotsAsNames,
	// Fastify's router with its semicolon delimiter.
	readFragment | readSemicolonEnd,
	// Spring and Undertow; Tomcat as it is, with %2F and with backslashes allowed.
	readFragment | readParameters,
	readFragment | readParameters | readEscapedSlash,
	readFragment | readParameters | readDots,
	readFragment | readParameters | readEscapedSlash | readDots,
	readFragment | readParameters | readBackslash | readEscapedBackslash | readDots,
	readFragment | readParameters | readBackslash | readEscapedBackslash | readEscapedSlash | readDots,
	// Jetty.
	readFragment | readParameters | readDots | readEmptySegments,
	readFragment | readParameters | readEscapedSlash | readDots | readEmptySegments,
}

// readAndPassedOn is the reading of nginx, which is often set up to pass on the path that it has read. The server behind it
// then reads that once more, in one of readings.
const readAndPassedOn = readFragment | readEscapedSlash | readDots

// delimiter is what may stand between two pieces of a path and part them in some reading.
type delimiter uint8

const (
	delimiterNone delimiter = iota // the beginning
	delimiterSlash
	delimiterEscapedSlash
	delimiterBackslash
	delimiterEscapedBackslash
	delimiterSemicolon
	delimiterFragment
	numDelimiters
)

// delimiterOf says which delimiter a byte is, if it is one.
func delimiterOf(c byte, escaped bool) delimiter {
	plain := [...]delimiter{delimiterNone, delimiterSlash, delimiterBackslash, delimiterSemicolon, delimiterFragment}
	if escaped {
		plain = [...]delimiter{delimiterNone, delimiterEscapedSlash, delimiterEscapedBackslash, delimiterNone, delimiterNone}
	}
	switch c {
	case '/':
		return plain[1]
	case '\\':
		return plain[2]
	case ';':
		return plain[3]
	case '#':
		return plain[4]
	}
	return delimiterNone
}

// heed is what a reading does at a delimiter.
type heed uint8

const (
	heedNot   heed = iota // it is text
	heedSlash             // the next segment begins
	heedDrop              // what follows in this segment is dropped
	heedEnd               // the path ends
)

// heeds is what r does at each delimiter.
func (r reading) heeds() (at [numDelimiters]heed) {
	set := func(flag reading, d delimiter, h heed) {
		if r&flag != 0 {
			at[d] = h
		}
	}
	at[delimiterSlash] = heedSlash
	set(readEscapedSlash, delimiterEscapedSlash, heedSlash)
	set(readBackslash, delimiterBackslash, heedSlash)
	set(readEscapedBackslash, delimiterEscapedBackslash, heedSlash)
	set(readParameters, delimiterSemicolon, heedDrop)
	set(readSemicolonEnd, delimiterSemicolon, heedEnd)
	set(readFragment, delimiterFragment, heedEnd)
	return at
}

// flags are the properties of a reading that make a difference where this delimiter occurs.
func (d delimiter) flags() reading {
	switch d {
	case delimiterEscapedSlash:
		return readEscapedSlash
	case delimiterBackslash:
		return readBackslash
	case delimiterEscapedBackslash:
		return readEscapedBackslash
	case delimiterSemicolon:
		return readSemicolonEnd | readParameters
	case delimiterFragment:
		return readFragment
	}
	return 0
}
