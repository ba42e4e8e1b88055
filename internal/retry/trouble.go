package retry

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Between two lines about one trouble.
const (
	leastGap = time.Second // also when the text changes: addresses in an error's text must not make a flood
	mostGap  = 5 * time.Minute
)

// Trouble logs a failure that repeats: at once, again when its text changes (at most once a second) or at doubling intervals
// (1 s to 5 min) while it lasts, and one line when it is over. The zero value is ready; it is safe for concurrent use.
type Trouble struct {
	mu    sync.Mutex
	text  string // of the last failure, see tellable; empty: there is none
	gap   time.Duration
	after time.Time // not again before
}

// Failed notes that it failed, for err, and logs message with args and the error as a warning if a line is due.
func (t *Trouble) Failed(log *slog.Logger, message string, err error, args ...any) {
	if !t.due(tellable(err.Error()), time.Now()) {
		return
	}
	log.Warn(message, append(args[:len(args):len(args)], "error", err)...)
}

func (t *Trouble) due(text string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := t.text == ""
	changed := text != t.text && now.After(t.after.Add(leastGap-t.gap))
	if !fresh && !changed && now.Before(t.after) {
		return false
	}
	if fresh || changed {
		t.gap = leastGap
	} else {
		t.gap = min(2*t.gap, mostGap)
	}
	t.text, t.after = text, now.Add(t.gap)
	return true
}

// tellable is an error's text without the near ends of connections, as in "read tcp 127.0.0.1:43210->127.0.0.1:6379: i/o timeout". Each try
// has another port of its own there: the trouble is the same.
func tellable(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if _, far, ok := strings.Cut(word, "->"); ok {
			words[i] = far
		}
	}
	return strings.Join(words, " ")
}

// Over notes that it works. It logs message with args if it had failed.
func (t *Trouble) Over(log *slog.Logger, message string, args ...any) {
	t.mu.Lock()
	was := t.text != ""
	t.text, t.gap, t.after = "", 0, time.Time{}
	t.mu.Unlock()
	if was {
		log.Info(message, args...)
	}
}
