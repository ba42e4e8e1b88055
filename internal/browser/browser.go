// Package browser starts a Chromium for tests.
package browser

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// find returns Chromium's program, or ends the test: skipped, or failed where real programs are required.
func find(t testing.TB) string {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"}
	if named := os.Getenv("WEIR_TEST_CHROMIUM"); named != "" {
		names = []string{named}
	}
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	hint := strings.Join(names, ", ") + ": not on this machine: apt-get install chromium, or set WEIR_TEST_CHROMIUM to its program"
	if os.Getenv("WEIR_TEST_REQUIRE_REAL") == "1" {
		t.Fatal("WEIR_TEST_REQUIRE_REAL=1, but " + hint)
	}
	t.Skip(hint)
	return ""
}

// Start starts a browser that lives as long as the test and talks to nobody of its own accord. Contexts made of the one
// returned are its tabs. Without a Chromium the test is skipped, or fails where real programs are required.
func Start(t testing.TB) context.Context {
	t.Helper()
	program := find(t)
	profile := t.TempDir()
	allocator, cancel := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(program), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.UserDataDir(profile),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("force-color-profile", "srgb"))
	t.Cleanup(cancel)
	browser, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("starting %s: %v", program, err)
	}
	t.Cleanup(func() {
		bounded, cancel := context.WithTimeout(browser, 10*time.Second)
		defer cancel()
		if err := chromedp.Cancel(bounded); err != nil {
			t.Logf("closing the browser: %v", err)
		}
	})
	return browser
}
