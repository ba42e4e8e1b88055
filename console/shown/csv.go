package shown

import (
	"bufio"
	"io"
	"strings"
	"unicode"
)

// CSV writes rows as RFC 4180 has them. No cell of them is a formula, breaks a line or moves a terminal's cursor.
func CSV(w io.Writer, rows [][]string) error {
	out := bufio.NewWriter(w) // keeps its first error
	for _, row := range rows {
		_, _ = out.WriteString(Row(row) + "\r\n")
	}
	return out.Flush()
}

// Row is one row of CSV, without the end of its line.
func Row(cells []string) string {
	var out strings.Builder
	for i, cell := range cells {
		if i > 0 {
			out.WriteByte(',')
		}
		if cell = Cell(cell); strings.ContainsAny(cell, separators) || strings.HasPrefix(cell, " ") ||
			len(cells) == 1 && cell == "" {
			cell = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
		}
		out.WriteString(cell)
	}
	return out.String()
}

// separators are what spreadsheets part cells by, each by its language and settings: a cell that has one is quoted.
const separators = ",;|\t\""

// Cell is a text on one line that no spreadsheet takes for a formula: one that would begin so begins with an
// apostrophe. Spreadsheets pass over blanks before the sign, and know it in full width, too; what is invisible, which
// is written out, may be nothing to them.
func Cell(text string) string {
	begin := strings.TrimLeftFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
	text = visible(text, len(text))
	if begin != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(begin)[0]) {
		return "'" + text
	}
	return text
}
