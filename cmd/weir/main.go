// Command weir finds those who use an API too much, in the stream of requests that its gateways emit, and holds them
// back where a rule has been promoted to do so.
package main

import (
	"context"
	"os"

	"github.com/weirhq/weir/blocklist"
)

func main() {
	blocklist.QuietClient()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
