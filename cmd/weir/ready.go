package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// readyTimeout bounds weir ready; it is above probeTimeout, after which /readyz answers whatever happens.
const readyTimeout = 4 * time.Second

func readyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ready",
		Short: "Ask the weir process on this machine whether it can do its work",
		Long: `Ask the process that listens on http.listen whether it is ready, and exit with 0 if so, with 1 if not or if nobody answers.
It is the health check of containers that hold no other program.`,
		Example: "  weir ready\n  weir ready --http-listen 127.0.0.1:9464",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return askReady(cmd.Context(), &a.Output, conf.HTTP.Listen)
		}),
	}
}

func askReady(ctx context.Context, o *terminal.Output, listens string) error {
	address, err := reachable(listens)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // it is this machine: never a proxy
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("nobody answers: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, bytes.TrimSpace(said))
	}
	_, err = fmt.Fprintln(o.Stdout, "ready")
	return err
}

// reachable is the address at which this machine reaches a server that listens on listens: loopback, if that is every address.
func reachable(listens string) (string, error) {
	host, port, err := net.SplitHostPort(listens)
	if err != nil {
		return "", fmt.Errorf("http.listen: %w", err)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.IsUnspecified() && ip.Is4():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}
