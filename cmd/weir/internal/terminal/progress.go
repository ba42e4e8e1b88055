package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/weirhq/weir/internal/plural"
)

// progressEvery is how often plain progress lines are written where there is no terminal.
const progressEvery = 10 * time.Second

// Progress shows how far reading has come: a bar on a terminal, a line now and then elsewhere, as long as anything comes.
type Progress struct {
	Bytes  atomic.Int64 // read so far, as the files have them
	Events atomic.Int64 // found in them

	out   io.Writer
	total int64 // bytes; 0: not known
	begun time.Time
	bar   *progressbar.ProgressBar // nil without a terminal
	stop  chan struct{}
	ended sync.WaitGroup
}

// StartProgress begins to show how much of total bytes has been read; 0 stands for a total that is not known. Close ends it.
func StartProgress(out io.Writer, total int64) *Progress {
	p := &Progress{out: out, total: total, begun: time.Now(), stop: make(chan struct{})}
	every := progressEvery
	if isTerminal(out) {
		every = 100 * time.Millisecond
		p.bar = newBar(out, total)
	}
	p.ended.Go(func() { p.show(every) })
	return p
}

func newBar(out io.Writer, total int64) *progressbar.ProgressBar {
	size := total
	if size == 0 {
		size = -1 // a spinner
	}
	return progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(out), progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(24),
		progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth(), progressbar.OptionSetPredictTime(total > 0))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (p *Progress) show(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	shown := int64(0)
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		read := p.Bytes.Load() + p.Events.Load() // either grows only
		if p.bar == nil {
			if read != shown { // a pipe may be silent for days
				fmt.Fprintln(p.out, p.line(time.Since(p.begun)))
			}
			shown = read
			continue
		}
		p.bar.Describe(fmt.Sprintf("%s, %s/s", plural.Of(p.Events.Load(), "event"), Amount(p.rate(time.Since(p.begun)))))
		_ = p.bar.Set64(p.Bytes.Load()) // a terminal that went away is no reason to stop
	}
}

// line is what plain output shows: events, bytes, rate and, where it can be known, the time left.
func (p *Progress) line(elapsed time.Duration) string {
	var b strings.Builder
	read := p.Bytes.Load()
	fmt.Fprintf(&b, "%s, %sB", plural.Of(p.Events.Load(), "event"), Amount(float64(read)))
	if p.total > 0 {
		fmt.Fprintf(&b, " of %sB (%d %%)", Amount(float64(p.total)), min(100, 100*read/p.total))
	}
	fmt.Fprintf(&b, ", %s events/s", Amount(p.rate(elapsed)))
	if p.total > 0 && read > 0 && read < p.total {
		left := time.Duration(float64(elapsed) * float64(p.total-read) / float64(read))
		fmt.Fprintf(&b, ", about %s left", left.Round(time.Second))
	}
	return b.String()
}

func (p *Progress) rate(elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(p.Events.Load()) / elapsed.Seconds()
}

// Close shows no more.
func (p *Progress) Close() {
	close(p.stop)
	p.ended.Wait()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// Amount writes a number as people read it: 812, 12.3k, 4.5M.
func Amount(n float64) string {
	for _, unit := range []string{"", "k", "M", "G"} {
		if n < 1000 {
			if unit == "" {
				return fmt.Sprintf("%.0f", n)
			}
			return fmt.Sprintf("%.1f%s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.1fT", n)
}
