package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

// readLine is a line as LineReader tells it: of one that is longer than allowed, the allowed start.
type readLine struct {
	text string
	size int
}

// tester is a test, or one of rapid's cases.
type tester interface {
	rapid.TB
	Context() context.Context
}

// linesOf reads a file to its end.
func linesOf(t tester, file io.Reader, limit int, filled bool) (lines []readLine, broken *BreakOff) {
	t.Helper()
	in := NewLineReader(t.Context(), io.NopCloser(file), limit, filled)
	for l := new(Lines); !l.Last; broken = l.Broken {
		if err := in.Next(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if l.Oversized > 0 {
			lines = append(lines, readLine{string(l.Text[:limit]), l.Oversized})
			continue
		}
		for text := l.Text; len(text) > 0; {
			var line []byte
			line, text = CutLine(text)
			lines = append(lines, readLine{string(line[:min(len(line), limit)]), len(line)})
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	return lines, broken
}

// naiveLines cuts a text that is there as a whole.
func naiveLines(text string, limit int) (lines []readLine) {
	for line := range strings.SplitAfterSeq(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\n") {
		if line == "" {
			break // right after the last line feed
		}
		if whole, ended := strings.CutSuffix(line, "\n"); ended {
			line = strings.TrimSuffix(whole, "\r")
		}
		lines = append(lines, readLine{line[:min(len(line), limit)], len(line)})
	}
	return lines
}

// piecewise gives pieces of drawn sizes, the last one perhaps together with the end.
type piecewise struct {
	t    *rapid.T
	rest []byte
}

func (p *piecewise) Read(to []byte) (int, error) {
	sizes := []int{len(to), 20_000, stretchBytes - 1}
	if len(p.rest) < 4096 {
		sizes = []int{1, 2, 3, 60, len(to)}
	}
	n := copy(to[:min(len(to), rapid.SampledFrom(sizes).Draw(p.t, "read"))], p.rest)
	p.rest = p.rest[n:]
	if len(p.rest) == 0 && (n == 0 || rapid.Bool().Draw(p.t, "end with data")) {
		return n, io.EOF
	}
	return n, nil
}

// Whatever pieces a file comes in, its lines are those of its text.
func TestLinesAgainstTheWholeText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 8, 64, 3 * stretchBytes}).Draw(t, "limit")
		var text strings.Builder
		text.WriteString(rapid.SampledFrom([]string{"", "", "\xef\xbb\xbf", "\xef\xbb", "\n\xef\xbb\xbf"}).Draw(t, "start"))
		for range rapid.IntRange(0, 12).Draw(t, "lines") {
			near := rapid.SampledFrom([]int{0, 1, limit, stretchBytes, 2 * stretchBytes, 4 * stretchBytes}).Draw(t, "near")
			text.WriteString(strings.Repeat("x", max(0, near+rapid.IntRange(-2, 3).Draw(t, "off"))))
			text.WriteString(rapid.SampledFrom([]string{"\n", "\r\n", "\n", "\r\r\n", "\n\n"}).Draw(t, "ending"))
		}
		text.WriteString(rapid.SampledFrom([]string{"", "y", "y\r", strings.Repeat("z", limit+1)}).Draw(t, "last"))
		want := naiveLines(text.String(), limit)
		for _, filled := range []bool{true, false} {
			got, broken := linesOf(t, &piecewise{t, []byte(text.String())}, limit, filled)
			if broken != nil || !slices.Equal(sizesOf(got), sizesOf(want)) || !slices.Equal(got, want) {
				t.Fatalf("filled %t: broken %v, sizes %v, want %v", filled, broken, sizesOf(got), sizesOf(want))
			}
		}
	})
}

func sizesOf(lines []readLine) []int {
	sizes := make([]int, len(lines))
	for i := range lines {
		sizes[i] = lines[i].size
	}
	return sizes
}

// packed is a file of several members, and where each of them ends.
type packed struct {
	file []byte
	ends []int
}

func zstdPacked(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// packings are parts in all that a file may be, each part a member.
func packings(t testing.TB, parts ...string) map[string]packed {
	t.Helper()
	skipped := []byte{0x53, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4} // as zstd's parallel packers write before each frame
	all := map[string]packed{}
	for name, member := range map[string]func(text string) []byte{
		"gzip":              func(text string) []byte { return gzipped(t, text) },
		"zstd":              func(text string) []byte { return zstdPacked(t, text) },
		"zstd, in parallel": func(text string) []byte { return append(slices.Clone(skipped), zstdPacked(t, text)...) },
	} {
		var p packed
		for _, part := range parts {
			p.file = append(p.file, member(part)...)
			p.ends = append(p.ends, len(p.file))
		}
		if name == "zstd, in parallel" {
			for _, end := range slices.Clone(p.ends) {
				p.ends = append(p.ends, end+len(skipped)) // a frame without text is one, too
			}
			p.ends = append(p.ends, len(skipped))
		}
		all[name] = p
	}
	return all
}

// numbered are n lines that do not pack well.
func numbered(from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d %x\n", from+i, uint64(from+i)*0x9e3779b97f4a7c1)
	}
	return b.String()
}

func TestSeveralMembers(t *testing.T) {
	t.Parallel()
	text := numbered(0, 5000)
	for name, p := range packings(t, text[:41_003], text[41_003:41_004], "", text[41_004:]) {
		for _, filled := range []bool{true, false} {
			if got, broken := linesOf(t, bytes.NewReader(p.file), 64, filled); broken != nil || !slices.Equal(got, naiveLines(text, 64)) {
				t.Errorf("%s, filled %t: %d lines, broken %+v", name, filled, len(got), broken)
			}
		}
	}
}

// Wherever a packed file is cut off, its lines up to there are given, no half one among them, and it is told that it ends early: but
// between two members nobody can know.
func TestEveryCut(t *testing.T) {
	t.Parallel()
	first, second := numbered(0, 90), numbered(90, 30)
	all := naiveLines(first+second, 64)
	for name, p := range packings(t, first, second) {
		most := 0
		for cut := 4; cut < len(p.file); cut++ { // before, it looks like a text
			got, broken := linesOf(t, bytes.NewReader(p.file[:cut]), 64, cut%2 == 0)
			if len(got) > len(all) || !slices.Equal(got, all[:len(got)]) {
				t.Fatalf("%s cut at %d of %d: %d lines, and not those that it begins with", name, cut, len(p.file), len(got))
			}
			if member := slices.Contains(p.ends, cut); (broken == nil) != member || broken != nil && broken.Reason != ReasonTruncated {
				t.Errorf("%s cut at %d of %d, where a member ends %t: broken %+v", name, cut, len(p.file), member, broken)
			}
			if whole := slices.Index(p.ends, cut) == 0; whole && len(got) != 90 {
				t.Errorf("%s cut behind its first member: %d lines", name, len(got))
			}
			most = max(most, len(got))
		}
		if most < 90 {
			t.Errorf("%s: at most %d lines were read of a file cut off", name, most)
		}
	}
}

// A packed file in which a byte is wrong is either read in full or told to be broken; it never ends as if it were whole.
func TestEveryDamage(t *testing.T) {
	t.Parallel()
	text := numbered(0, 60)
	want := naiveLines(text, 64)
	for name, p := range packings(t, text) {
		told := 0
		for at := 4; at < len(p.file); at++ {
			bad := slices.Clone(p.file)
			bad[at] ^= 0x55
			got, broken := linesOf(t, bytes.NewReader(bad), 64, false)
			if broken == nil && !slices.Equal(got, want) {
				t.Errorf("%s with byte %d wrong: %d lines of %d, as if all were well", name, at, len(got), len(want))
			}
			if broken != nil {
				told++
			}
		}
		if told < len(p.file)/2 {
			t.Errorf("%s: %d of %d damages were told", name, told, len(p.file))
		}
	}
}

func TestZstdWindow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		header []byte
		broken bool
	}{
		{"128 MiB", []byte{0x00, 17 << 3}, false},
		{"144 MiB", []byte{0x00, 17<<3 | 1}, true},
		{"terabytes", []byte{0x00, 0xf8}, true},
		{"1 GiB in one segment", []byte{0xa0, 0, 0, 0, 0x40}, true},
	} {
		file := slices.Concat(zstdMagic, tt.header, []byte{0x01, 0x00, 0x00})
		lines, broken := linesOf(t, bytes.NewReader(file), 64, false)
		if (broken != nil) != tt.broken || len(lines) > 0 {
			t.Errorf("%s: %d lines, broken %+v", tt.name, len(lines), broken)
		}
		if broken != nil && (broken.Reason != ReasonUnreadable || !strings.Contains(broken.Err.Error(), "than 128 MiB, which is allowed")) {
			t.Errorf("%s: %s: %v", tt.name, broken.Reason, broken.Err)
		}
	}
}

// failing gives its text with the error, and after it an end that is none.
type failing struct {
	text string
	err  error
}

func (f *failing) Read(to []byte) (int, error) {
	n := copy(to, f.text)
	f.text = f.text[n:]
	if err := f.err; f.text == "" && err != nil {
		f.err = nil
		return n, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestReadErrorIsToldOnceAllBeforeItIsGiven(t *testing.T) {
	t.Parallel()
	away := errors.New("input/output error")
	long := strings.Repeat("x", 3*stretchBytes)
	for _, tt := range []struct {
		text, rest string
		lines      int
	}{
		{"a\nb\nhalf", "half", 2},
		{"a\nb\n", "", 2},
		{"", "", 0},
		{"a\n" + long, "", 2}, // the long line is told as one
		{"a\n" + long + "\nb\nhalf", "half", 3},
	} {
		for _, filled := range []bool{true, false} {
			lines, broken := linesOf(t, &failing{tt.text, away}, 64, filled)
			if broken == nil || broken.Reason != ReasonUnreadable || !errors.Is(broken.Err, away) || string(broken.Rest) != tt.rest || len(lines) != tt.lines {
				t.Errorf("%.20q, filled %t: %d lines, broken %+v", tt.text, filled, len(lines), broken)
			}
		}
	}
}

// What a pipe has shown is given at once: whoever writes into it may not write again for hours.
func TestLinesAreGivenAsTheyCome(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ first, text, second string }{
		{"1 a\n2 b\n3", "1 a\n2 b\n", " c\n"},
		{strings.Repeat("x", 5*stretchBytes) + "\n1 a\n2 b\n3", "1 a\n2 b\n", " c\n"},
	} {
		from, to := io.Pipe()
		in := NewLineReader(t.Context(), startedReader{from, to, tt.first}.begin(), 64, false)
		l := new(Lines)
		for {
			if err := in.Next(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			if l.Oversized == 0 {
				break
			}
		}
		if string(l.Text) != tt.text || l.Last {
			t.Errorf("%.10q…: given %q, last %t", tt.first, l.Text, l.Last)
		}
		go func() { _, _ = io.WriteString(to, tt.second) }()
		if err := in.Next(t.Context(), l); err != nil || string(l.Text) != "3"+tt.second {
			t.Errorf("%.10q…: given %q, %v", tt.first, l.Text, err)
		}
		if err := errors.Join(in.Close(), to.Close()); err != nil {
			t.Error(err)
		}
	}
}

// startedReader is a pipe into which a text was written.
type startedReader struct {
	io.ReadCloser
	to   io.Writer
	text string
}

func (s startedReader) begin() io.ReadCloser {
	go func() { _, _ = io.WriteString(s.to, s.text) }()
	return s
}

func TestReadUnderWayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	from, to := io.Pipe()
	over := errors.New("the sender has failed")
	go func() {
		_, _ = io.WriteString(to, "1 a\n2")
		_, _ = io.WriteString(to, " b") // read by Next, once this returns
		cancel(over)
	}()
	in := NewLineReader(ctx, from, 64, true)
	if err := in.Next(ctx, new(Lines)); !errors.Is(err, over) {
		t.Errorf("got %v, want the cause", err)
	}
	if err := errors.Join(in.Close(), to.Close()); err != nil {
		t.Error(err)
	}
}

func BenchmarkLines(b *testing.B) {
	text := []byte(numbered(0, 200_000))
	for name, file := range map[string][]byte{"plain": text, "gzip": gzipped(b, string(text))} {
		for _, filled := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s, filled %t", name, filled), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					in := NewLineReader(b.Context(), io.NopCloser(bytes.NewReader(file)), 1<<20, filled)
					for l := new(Lines); !l.Last; {
						if err := in.Next(b.Context(), l); err != nil {
							b.Fatal(err)
						}
						for t := l.Text; len(t) > 0; {
							_, t = CutLine(t)
						}
					}
				}
			})
		}
	}
}
