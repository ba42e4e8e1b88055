// Package remote asks the API of a server for what commands do otherwise on the stores themselves: whoever has a token needs no
// credentials of Kafka, Redis and PostgreSQL. A Client does what acts.Service and api.Reader do, with the same errors.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/internal/loopback"
)

// Options configure a Client. Server and Token are required.
type Options struct {
	// Server is where the console is served: https://HOST[:PORT], http:// only for this machine.
	Server string
	// Token is one of the server's static tokens. It is sent in a header, and stands in no URL, log or error.
	Token string
	// Version is the program's, for the server's logs.
	Version string
	// Transport is how requests are sent; nil: over TLS with the roots of the system, by the proxies of the environment.
	Transport http.RoundTripper
}

// Client asks one server. It is safe for concurrent use.
type Client struct{ *connection }

// connection sends requests to one server, and turns its problems into errors.
type connection struct {
	base    *url.URL
	token   string
	version string
	http    *http.Client
}

// Bounds of one question.
const (
	answerTimeout = 30 * time.Second
	maxAnswer     = 256 << 20 // bytes
)

// New makes a Client. It asks nothing yet.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.Server)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		return nil, errors.New("server: got no address of a server; allowed: https://HOST or https://HOST:PORT, without a token, path or query")
	}
	if u.Scheme == "http" && !loopback.Host(u.Hostname()) {
		return nil, fmt.Errorf("server: got %s; allowed: https, since the token could be read on the way (http for this machine only)", u)
	}
	if o.Token == "" || strings.ContainsFunc(o.Token, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) || r == ' ' }) {
		return nil, errors.New("token: got none, or one with spaces or characters that no token has; allowed: the token in WEIR_TOKEN, or in the file that --token-file names")
	}
	u.Path = ""
	return &Client{&connection{base: u, token: o.Token, version: o.Version, http: &http.Client{
		Transport: o.Transport,
		// The token is for this server: no answer sends it elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}}, nil
}

// Server is the address that is asked.
func (c *connection) Server() string { return c.base.String() }

// get asks for a resource.
func (c *connection) get(ctx context.Context, path string, query url.Values, into any) error {
	_, err := c.ask(ctx, http.MethodGet, path, query, nil, into, answerTimeout)
	return err
}

// post has something done.
func (c *connection) post(ctx context.Context, path string, body, into any) error {
	_, err := c.ask(ctx, http.MethodPost, path, nil, body, into, answerTimeout)
	return err
}

// ask sends one request and reads its answer into a value.
func (c *connection) ask(ctx context.Context, method, path string, query url.Values, body, into any, timeout time.Duration) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	u := c.base.JoinPath("api", "v1", path)
	u.RawQuery = query.Encode()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, fmt.Errorf("asking %s: %w", c.base, err)
		}
		sent = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), sent)
	if err != nil {
		return 0, fmt.Errorf("asking %s: %w", c.base, err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "weir/"+c.version)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(r)
	if err != nil {
		var wrapped *url.Error // which would repeat the whole of the URL
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		if method != http.MethodGet {
			return 0, fmt.Errorf("server %s does not answer: %w; whether it was done is not known: look before you ask again", c.base, err)
		}
		return 0, fmt.Errorf("server %s does not answer: %w", c.base, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return response.StatusCode, fmt.Errorf("server %s: its answer breaks off: %w", c.base, err)
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case kind == "application/problem+json":
		var p api.Problem
		if err := json.Unmarshal(text, &p); err != nil {
			return response.StatusCode, fmt.Errorf("server %s answers %d with a problem that cannot be read: %w", c.base, response.StatusCode, err)
		}
		if p.Detail == "" {
			p.Detail = fmt.Sprintf("it answers %d, and does not say why", response.StatusCode)
		}
		return response.StatusCode, c.refusal(response.StatusCode, &p)
	case response.StatusCode/100 != 2 || kind != "application/json":
		return response.StatusCode, fmt.Errorf("server %s answers %d with %q, which no API of weir does: is it the address of the console?", c.base, response.StatusCode, kind)
	}
	err = json.Unmarshal(text, into)
	if err == nil {
		err = whole(text, reflect.TypeOf(into))
	}
	if err != nil {
		return response.StatusCode, c.unread(err)
	}
	return response.StatusCode, nil
}

// unread says of an answer that it is none to what was asked.
func (c *connection) unread(err error) error {
	return fmt.Errorf("server %s: its answer cannot be read by this build: %w; is it the address of the console, "+
		"and of a build that knows this question?",
		c.base, err)
}
