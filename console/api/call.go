package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/rules"
)

// Bounds of what a request may bring.
const (
	maxBody      = 1 << 20  // bytes, but for documents
	maxDocuments = 65 << 20 // bytes of a body with rule documents
	maxQuery     = 16 << 10 // bytes
	bodyTimeout  = time.Minute
	limitDefault = 100 // items of a page
	limitMost    = 1000
)

// call is one request to a route.
type call struct {
	*API
	*route
	w     http.ResponseWriter
	r     *http.Request
	actor access.Actor
	mask  *access.Mask // what the actor is shown: of answers and problems all that goes out

	values map[string]string // of the query
	asFile bool              // the answer is a file, which is in the audit trail
	// revision, where set, begins the answer's ETag: If-Match is compared with it alone.
	revision string
}

// query reads the parameters of the route; what the route does not know is refused, since it would not hold.
func (c *call) query() error {
	if len(c.r.URL.RawQuery) > maxQuery {
		return &httpError{status: http.StatusRequestURITooLong, title: "the query is too long", detail: fmt.Sprintf("got %d bytes, allowed %d", len(c.r.URL.RawQuery), maxQuery)}
	}
	given := c.r.URL.Query()
	names := make([]string, len(c.params))
	c.values = map[string]string{}
	for i, p := range c.params {
		names[i] = p.name
		values := given[p.name]
		switch {
		case len(values) > 1:
			return &acts.Invalid{Field: p.name, Got: strings.Join(values, ", "), Allowed: "one value"}
		case len(values) == 1 && len(p.allowed) > 0 && !slices.Contains(p.allowed, values[0]):
			return &explore.BadFilterError{Field: p.name, Got: values[0], Allowed: strings.Join(p.allowed, ", "), Near: rules.Nearest(values[0], p.allowed)}
		case len(values) == 1:
			c.values[p.name] = values[0]
		}
	}
	for name := range given {
		if !slices.Contains(names, name) {
			allowed := "no parameter"
			if len(names) > 0 {
				allowed = strings.Join(names, ", ")
			}
			return &acts.Invalid{Field: name, Got: given.Get(name), Allowed: "one of the parameters " + allowed}
		}
	}
	return nil
}

// limit is the size of the page that is asked for.
func (c *call) limit() (int, error) {
	text, given := c.values["limit"]
	if !given {
		return limitDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > limitMost {
		return 0, &acts.Invalid{Field: "limit", Got: text, Allowed: fmt.Sprintf("1 to %d", limitMost)}
	}
	return n, nil
}

// cursor is the place behind which a page of a list without a store of its own begins; empty for the first page.
func (c *call) cursor() (string, error) {
	text, err := c.place()
	if err != nil {
		return "", err
	}
	place, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", c.badCursor()
	}
	return string(place), nil
}

// place is the parameter cursor as whoever reads on made it.
func (c *call) place() (string, error) {
	text, err := c.mask.Place(c.values["cursor"])
	if err != nil {
		return "", c.badCursor()
	}
	return text, nil
}

func (c *call) badCursor() error {
	return &acts.Invalid{Field: "cursor", Got: c.values["cursor"], Allowed: "next of an answer to the same question"}
}

// cursorAt is the opaque form of a place. Who is shown pseudonyms gets it sealed, as each Page.Next.
func cursorAt(place string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(place))
}

// flag is a parameter that is true or false.
func (c *call) flag(name string) bool { return c.values[name] == "true" }

// body reads the request's body, one JSON object without a member that into does not have.
func (c *call) body(into any) error {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &httpError{status: http.StatusUnsupportedMediaType, title: "the body is no JSON",
			detail: fmt.Sprintf("Content-Type: got %q; allowed: application/json", c.r.Header.Get("Content-Type"))}
	}
	most := int64(maxBody)
	if c.route.documents {
		most = maxDocuments
	}
	if c.route.documents { // they are larger than what the server has its time for
		connection := http.NewResponseController(c.w)
		_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout)) // a writer without deadlines is a test's
		defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	}
	dec := json.NewDecoder(http.MaxBytesReader(c.w, c.r.Body, most))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more behind the JSON document")
		}
	}
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return &httpError{status: http.StatusRequestEntityTooLarge, title: "the body is too large", detail: fmt.Sprintf("allowed: %d bytes", large.Limit)}
	case errors.As(err, &kind):
		return &acts.Invalid{Field: kind.Field, Got: kind.Value, Allowed: "a JSON " + kind.Type.Kind().String()}
	}
	return &acts.Invalid{Field: "body", Got: strings.TrimPrefix(err.Error(), "json: "), Allowed: "one JSON object as the OpenAPI document describes it"}
}

// seen is the revision that the request's If-Match names; empty: any. RFC 9110 allows several; a list is refused.
func (c *call) seen() (string, error) {
	text := c.r.Header.Get("If-Match")
	if text == "" || text == "*" {
		return "", nil
	}
	tag, ok := strings.CutSuffix(strings.TrimPrefix(text, `"`), `"`)
	if !ok || strings.Contains(tag, `"`) {
		return "", &acts.Invalid{Field: "If-Match", Got: text, Allowed: "the ETag of GET /api/v1/rules/{rule}, or the revision of an answer in quotes"}
	}
	revision, _, _ := strings.Cut(tag, ".")
	return revision, nil
}

// errUnwritten keeps a file back that mayBeFile has not let out.
var errUnwritten = errors.New("a file of which it is not written down who takes it")

// encode gives an answer's bytes, as who asks is shown it, and what they are.
func (c *call) encode(answer any) (body []byte, kind string, err error) {
	switch a := answer.(type) {
	case []byte: // the description of the API
		return a, "application/json", nil
	case *csvFile: // made of what is shown
		if !c.asFile {
			return nil, "", errUnwritten
		}
		return c.file(a), "text/csv; charset=utf-8", nil
	}
	answer = access.Show(c.mask, answer)
	if d, ok := answer.(*Dossier); ok {
		if err := d.seal(); err != nil {
			return nil, "", err
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err = enc.Encode(answer)
	return shown.JSON(b.Bytes()), "application/json", err
}

// write answers, as JSON or as a file, or says that the client has it already.
func (c *call) write(status int, answer any) {
	body, kind, err := c.encode(answer)
	if err != nil { // of plain data: never
		c.fail(c.w, c.r, c.name, &httpError{status: http.StatusInternalServerError, title: "the answer could not be written", detail: "see the log", cause: err})
		return
	}
	h := c.w.Header()
	if !access.Changes(c.r.Method) {
		sum := sha256.Sum256(body)
		tag := hex.EncodeToString(sum[:8])
		if c.revision != "" {
			tag = c.revision + "." + tag
		}
		tag = `"` + tag + `"`
		h.Set("ETag", tag)
		h.Set("Cache-Control", "private, no-cache")
		h.Set("Vary", "Authorization, Cookie, Accept")
		if known := c.r.Header.Get("If-None-Match"); known == tag || known == "W/"+tag {
			c.requests.WithLabelValues(c.name, "304").Inc()
			c.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	c.requests.WithLabelValues(c.name, strconv.Itoa(status)).Inc()
	h.Set("Content-Type", kind)
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // the client is gone
}
