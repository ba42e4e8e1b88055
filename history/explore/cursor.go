package explore

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

// A cursor is the place of the last row of a page: a number by which rows are ordered, descending, and a key among equals. It is a text
// without meaning to those who pass it on.
const cursorVersion = "1"

func encodeCursor(number int64, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorVersion + ":" + strconv.FormatInt(number, 10) + ":" + key))
}

func decodeCursor(text string) (number int64, key string, err error) {
	bad := &BadFilterError{Field: "cursor", Got: text, Allowed: "next of the page before"}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return 0, "", bad
	}
	parts := strings.SplitN(string(raw), ":", 3)
	if len(parts) != 3 || parts[0] != cursorVersion {
		return 0, "", bad
	}
	if number, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return 0, "", bad
	}
	return number, traffic.Printable(parts[2]), nil
}

// limit is how many rows the page has.
func (p *Page) limit() (int, error) {
	switch {
	case p.Limit == 0:
		return DefaultLimit, nil
	case p.Limit < 0 || p.Limit > MostLimit:
		return 0, &BadFilterError{Field: "limit", Got: fmt.Sprint(p.Limit), Allowed: fmt.Sprintf("1 to %d", MostLimit)}
	}
	return p.Limit, nil
}

// place is where the page begins; nil: at the beginning.
func (p *Page) place() (*history.Place, error) {
	if p.Cursor == "" {
		return nil, nil
	}
	number, key, err := decodeCursor(p.Cursor)
	if err != nil {
		return nil, err
	}
	return &history.Place{At: traffic.Time(number), ID: key}, nil
}

// begin is limit and place.
func (p *Page) begin() (int, *history.Place, error) {
	limit, err := p.limit()
	if err != nil {
		return 0, nil, err
	}
	place, err := p.place()
	return limit, place, err
}
