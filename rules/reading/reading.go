// Package reading is how servers read the path of a request, and what a path pattern of a rule means for it. Servers differ: each
// way in which a common one reads a path is asked, so that no spelling gets past a pattern. It holds no rules: package rules asks
// it for routing and at the gates.
package reading

// reading is how a server understands a path: which delimiters it takes for one, and what it does about segments that are dots or
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

// readings are how common servers read a path. Each is listed because it alone serves some path; a test has these paths.
//
// Every reading merges slashes. Patterns have no empty segments, so a server that does not merge slashes serves no path that
// merging would miss, except where .. takes an empty segment away (readEmptySegments).
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

// action is what a reading does at a delimiter.
type action uint8

const (
	actionNone  action = iota // it is text
	actionSplit               // the next segment begins
	actionDrop                // what follows in this segment is dropped
	actionEnd                 // the path ends
)

// actions is what r does at each delimiter.
func (r reading) actions() (at [numDelimiters]action) {
	set := func(flag reading, d delimiter, h action) {
		if r&flag != 0 {
			at[d] = h
		}
	}
	at[delimiterSlash] = actionSplit
	set(readEscapedSlash, delimiterEscapedSlash, actionSplit)
	set(readBackslash, delimiterBackslash, actionSplit)
	set(readEscapedBackslash, delimiterEscapedBackslash, actionSplit)
	set(readParameters, delimiterSemicolon, actionDrop)
	set(readSemicolonEnd, delimiterSemicolon, actionEnd)
	set(readFragment, delimiterFragment, actionEnd)
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
