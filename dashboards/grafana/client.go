// Package grafana puts boards into a Grafana by its HTTP API.
package grafana

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/loopback"
	"github.com/weirhq/weir/internal/retry"
)

// What a call may take, so that a Grafana that hangs is told from one that is slow.
const (
	callTimeout = 15 * time.Second
	tries       = 3
	leastWait   = 300 * time.Millisecond
	mostWait    = 2 * time.Second
	mostBytes   = 32 << 20 // of an answer
)

// Client asks one Grafana. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// New makes a client of the Grafana at an address, with its path where it is served under one. The token is that of a service
// account; without one the name and password of the address are used, if it has them.
func New(address, token string) (*Client, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("not an address of a Grafana; allowed: http://HOST:PORT or https://HOST, with a path where Grafana is served under one")
	}
	if base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("%s has a query or a fragment; allowed: the address of Grafana's front page", base.Redacted())
	}
	if _, password := base.User.Password(); base.Scheme == "http" && (token != "" || password) &&
		!loopback.Host(base.Hostname()) {
		return nil, fmt.Errorf("got %s with a token or password; allowed: https, since it could be read on the way "+
			"(http for this machine only)", base.Redacted())
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token has characters that no token of Grafana has, such as a space or a line break in it")
	}
	return &Client{base: base, token: token, http: &http.Client{
		Timeout: callTimeout,
		// A client that follows a redirect makes a GET of a POST: the board would seem to be put.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Address is the Grafana's, without a password.
func (c *Client) Address() string { return c.base.Redacted() }

// AnswerError is an answer of Grafana that is no success.
type AnswerError struct {
	Address string
	Status  int
	Path    string
	Message string // Grafana's own words, if it said any
}

func (e *AnswerError) Error() string {
	said := ""
	if e.Message != "" {
		said = fmt.Sprintf(": %q", e.Message)
	}
	switch e.Status {
	case http.StatusUnauthorized:
		return fmt.Sprintf("Grafana at %s does not know who asks (401%s): it needs the token of a service account that is valid", e.Address, said)
	case http.StatusForbidden:
		return fmt.Sprintf("Grafana at %s does not allow it (403%s): the token's service account needs the role Editor", e.Address, said)
	case http.StatusNotFound:
		return fmt.Sprintf("%s answers 404 at %s%s: is it Grafana's address, with the path that it is served under?", e.Address, e.Path, said)
	}
	return fmt.Sprintf("Grafana at %s answers %d at %s%s", e.Address, e.Status, e.Path, said)
}

// unreachableError is a call that Grafana did not answer, or not to the end.
type unreachableError struct {
	address string
	err     error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("Grafana at %s does not answer: %v", e.address, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// unreachable leaves out what the client's own error repeats: the method, and the address with its query.
func (c *Client) unreachable(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return &unreachableError{address: c.Address(), err: err}
}

// passing tells of an answer, or of none, that the next try may not get.
func passing(err error) bool {
	var silent *unreachableError
	if errors.As(err, &silent) {
		return true
	}
	var answer *AnswerError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// patiently tries work again, whole, while its failure may pass. What it did before it failed it finds done.
func patiently(ctx context.Context, work func() error) error {
	pause := retry.NewBackoff(leastWait, mostWait)
	for try := 1; ; try++ {
		err := work()
		if err == nil || !passing(err) {
			return err
		}
		if try == tries {
			return fmt.Errorf("%w; tried %d times", err, tries)
		}
		if pause.Wait(ctx) != nil {
			return err
		}
	}
}

// call makes one request and decodes its answer.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	at := c.base.JoinPath(path)
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, at.String(), content)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = answer.Body.Close() }()
	return c.decode(path, answer, into)
}

func (c *Client) decode(path string, answer *http.Response, into any) error {
	if to := answer.Header.Get("Location"); answer.StatusCode/100 == 3 && to != "" {
		return fmt.Errorf("%s redirects to %q: give the address that Grafana itself has", c.Address(), to)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostBytes))
	if err != nil {
		return c.unreachable(err)
	}
	if answer.StatusCode/100 != 2 {
		var said struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(text, &said) // a proxy's page says nothing that helps
		return &AnswerError{Address: c.Address(), Status: answer.StatusCode, Path: path, Message: said.Message}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s answers at %s what is no JSON (%s): is it Grafana?", c.Address(), path, answer.Header.Get("Content-Type"))
	}
	return nil
}
