// Package format reads events as gateways and logs write them, each into a traffic.Request, and writes weir's own: as JSON
// (Weir) and as Protocol Buffers (Protobuf). NewDecoder has a decoder for every format; docs/events.md describes them.
package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// The formats that were made for events. Those of gateways are beside their tables; Names lists all.
const (
	Weir     = "weir"     // one weir event v1, as JSON (docs/events.md)
	JSON     = "json"     // one JSON object with members of the user's own naming, see ParseFieldMap
	Combined = "combined" // one line of the Apache/nginx combined or common log format
)

// DefaultMaxEventBytes is the size above which an event is refused unless configured otherwise: 1 MiB, about what
// Kafka takes as one record by default.
const DefaultMaxEventBytes = 1 << 20

// Decoder turns one message, or one line of a file without its line end, into a request.
//
// Decode overwrites r wholly, reusing only the memory of r.Headers. The strings of r alias b where the format allows
// it. After an error, always a *DecodeError, r holds no event. A Decoder may be used by several goroutines.
type Decoder interface {
	Decode(b []byte, r *traffic.Request) error
}

// DecoderOption changes how NewDecoder builds a decoder.
type DecoderOption func(*decoderSettings)

type decoderSettings struct {
	max     int
	control bool
	asTold  bool // times
	urlAsIs bool
}

// TimesAsTold leaves the time of a request where the log tells it, also where that is the request's beginning. It is for
// streams whose routers may be of a build that does not know better: all must date an event alike.
func TimesAsTold() DecoderOption {
	return func(s *decoderSettings) { s.asTold = true }
}

// URLsAsIs takes what follows the first :// and its next slash for the path of a URL. It is for streams whose routers may be
// of a build that does not know that programs differ on where a host ends: all must see the same path in an event.
func URLsAsIs() DecoderOption {
	return func(s *decoderSettings) { s.urlAsIs = true }
}

// AllowControl lets the weir format take the end mark of a replay (see EndMark). Without it, which is how a live
// stream is read, an end mark is malformed: nobody who may write events can close a live partition.
func AllowControl() DecoderOption {
	return func(s *decoderSettings) { s.control = true }
}

// NewDecoder builds the decoder of a format. fieldMap (event field → member, see ParseFieldMap) is only for formats of
// which TakesFieldMap says so. Messages above maxBytes are refused as oversized; 0 means DefaultMaxEventBytes.
func NewDecoder(format string, fieldMap map[string]string, maxBytes int, options ...DecoderOption) (Decoder, error) {
	set := decoderSettings{max: maxBytes}
	for _, o := range options {
		o(&set)
	}
	switch {
	case maxBytes < 0:
		return nil, fmt.Errorf("max_event_bytes: got %d, allowed: 0 (for the default, %d) and more", maxBytes, DefaultMaxEventBytes)
	case maxBytes == 0:
		set.max = DefaultMaxEventBytes
	}
	if !slices.Contains(Names(), format) {
		return nil, wrongFormat(format)
	}
	if len(fieldMap) > 0 && !TakesFieldMap(format) {
		return nil, fmt.Errorf("map: format %s takes none, its fields are fixed; allowed with: %s", format, strings.Join(mappable(), ", "))
	}
	if set.control && format != Weir {
		return nil, fmt.Errorf("format %s has no end mark; a replay stream is allowed in: %s", format, Weir)
	}
	if named := findFormat(format); named != nil {
		if set.asTold {
			named = named.asTold()
		}
		if set.urlAsIs {
			named = named.reading(asURL, asPlainURL)
		}
		root, err := named.compile(fieldMap)
		if err != nil {
			return nil, err
		}
		return &namedDecoder{max: set.max, format: named, root: root}, nil
	}
	switch format {
	case JSON:
		root, err := compileFieldMap(fieldMap)
		if err != nil {
			return nil, err
		}
		return &mappedDecoder{max: set.max, root: root}, nil
	case Combined:
		return &combinedDecoder{max: set.max}, nil
	case Protobuf:
		return &protobufDecoder{max: set.max}, nil
	default:
		return newWeirDecoder(set.max, set.control), nil
	}
}

// Reasons of a DecodeError: few and fixed, so that they can label a counter.
const (
	ReasonEmpty     = "empty"       // no bytes, or nothing but white space
	ReasonOversized = "oversized"   // more bytes than the decoder's limit
	ReasonMalformed = "malformed"   // not the format at all: no JSON, too deep, not a log line
	ReasonWrongType = "wrong_type"  // a known member has a type that is not allowed
	ReasonBadValue  = "bad_value"   // a known member has the right type and an impossible value
	ReasonVersion   = "bad_version" // an event version that this build does not know
)

// Reasons are all of them.
func Reasons() []string {
	return []string{ReasonEmpty, ReasonOversized, ReasonMalformed, ReasonWrongType, ReasonBadValue, ReasonVersion}
}

// DecodeError says why one message is no event. The caller knows the place: file and line, or partition and offset.
type DecodeError struct {
	Reason string // one of the Reason constants
	Column int    // first byte that is wrong, counted from 1; 0 when it is the message as a whole
	// Detail says what is wrong, what was found and what is allowed, and begins with "column N: " unless Column is 0.
	// It quotes at most quotedBytes of the message and never the value of an identity.
	Detail string
}

var _ error = (*DecodeError)(nil)

func (e *DecodeError) Error() string { return e.Reason + " event: " + e.Detail }

// failure makes a DecodeError at the byte offset at, or about the whole message if at is negative.
func failure(reason string, at int, format string, args ...any) error {
	e := &DecodeError{Reason: reason, Detail: fmt.Sprintf(format, args...)}
	if at >= 0 {
		e.Column = at + 1
		e.Detail = fmt.Sprintf("column %d: %s", e.Column, e.Detail)
	}
	return e
}

// checkSize refuses what is too large to look at, and what is not there.
func checkSize(b []byte, limit int) error {
	if len(b) > limit {
		return failure(ReasonOversized, -1, "got %d bytes, allowed: at most %d", len(b), limit)
	}
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return nil
		}
	}
	return failure(ReasonEmpty, -1, "got %d bytes of white space, allowed: one event", len(b))
}
