package shown

import (
	"encoding/csv"
	"io"
	"strings"
	"unicode"
)

// CSV writes rows as RFC 4180 has them. No cell of them is a formula.
func CSV(w io.Writer, rows [][]string) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	for _, row := range rows {
		cells := make([]string, len(row))
		for i := range row {
			cells[i] = Cell(row[i])
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// Cell is a text that no spreadsheet takes for a formula: one that would begin so begins with an apostrophe. Spreadsheets pass over blanks
// before the sign, and know it in full width, too; what is invisible may be nothing to them.
func Cell(text string) string {
	begin := strings.TrimLeftFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
	if begin != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(begin)[0]) || text != "" && strings.ContainsRune("\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}
