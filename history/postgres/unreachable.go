package postgres

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// UnreachableError says that no connection can be made: where to, why, and what to do, in one line without the password.
type UnreachableError struct {
	Address string // host:port, or the path of a socket
	Cause   string
	Advice  string
	err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("PostgreSQL at %s cannot be reached (%s): %s", e.Address, e.Cause, e.Advice)
}

func (e *UnreachableError) Unwrap() error { return e.err }

// unreachable turns the driver's account of a failed connection to address, which is long and of several lines, into
// UnreachableError. It returns other errors as they are.
func unreachable(address string, err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	u := &UnreachableError{Address: address, Cause: lastLine(connect.Unwrap()), err: err}
	u.Advice = "start it there, or correct postgres.url"
	var refused *pgconn.PgError
	var network *net.OpError
	switch {
	case errors.As(err, &refused):
		u.Cause = refused.Message
		u.Advice = adviceFor(refused.Code)
	case errors.As(err, &network):
		u.Cause = lastLine(network.Err)
	}
	return u
}

// adviceFor says what to do about a server that refuses the connection, by its SQLSTATE.
func adviceFor(code string) string {
	switch {
	case code == "3D000": // invalid_catalog_name
		return "create the database, or correct postgres.url"
	case strings.HasPrefix(code, "28"): // invalid authorization specification
		return "correct user and password in postgres.url, or let them in in pg_hba.conf"
	case code == "53300": // too_many_connections
		return "raise max_connections there, or lower the number of weir's connections"
	case code == "57P03": // cannot_connect_now
		return "it is starting up; wait"
	}
	return "see the server's log"
}

// lastLine is the last line of a driver's message: of several addresses, the one tried last.
func lastLine(err error) string {
	text := strings.TrimSpace(err.Error())
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = strings.TrimSpace(text[i+1:])
	}
	return text
}

// addressOf names the server, or the servers, of a configuration.
func addressOf(c *pgx.ConnConfig) string {
	all := []string{hostPort(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if a := hostPort(f.Host, f.Port); a != all[len(all)-1] { // TLS fallbacks repeat the address
			all = append(all, a)
		}
	}
	return strings.Join(all, " or ")
}

func hostPort(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return filepath.Join(host, ".s.PGSQL."+strconv.Itoa(int(port)))
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Broken reports whether err is the database's, which could not do what it was told: it is away, or the connection broke. Whoever was
// refused for a reason of his own gets an error of another kind.
func Broken(err error) bool {
	var away *UnreachableError
	var connect *pgconn.ConnectError
	var server *pgconn.PgError
	var network *net.OpError
	return errors.As(err, &away) || errors.As(err, &connect) || errors.As(err, &server) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.Timeout(err)
}
