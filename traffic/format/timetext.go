package format

import (
	"github.com/weirhq/weir/traffic"
)

// The years that a time's text can name, 0000 to 9999: no decoder yields a time outside of them.
const (
	minEventTime traffic.Time = -62167219200_000000
	maxEventTime traffic.Time = 253402300799_999999
)

// parseRFC3339 reads RFC 3339 (`2026-11-21T05:06:07.123456Z`, any number of decimals, offset ±hh:mm, a space or a lower
// case t between date and time, leap seconds as the second after). What is finer than a microsecond is dropped. time.Parse
// takes neither the space nor the lower case nor leap seconds, and a third longer (docs/performance.md).
//
// lax also takes what ISO 8601 and loggers have beside it: a comma before the decimals, a space before the offset,
// offsets ±hhmm and ±hh, and no offset at all, which means UTC.
func parseRFC3339(s string, lax bool) (traffic.Time, bool) {
	if len(s) < len("2006-01-02T15:04:05") || s[4] != '-' || s[7] != '-' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	if c := s[10]; c != 'T' && c != 't' && c != ' ' {
		return 0, false
	}
	century, ok1 := twoDigits(s, 0)
	year, ok2 := twoDigits(s, 2)
	month, ok3 := twoDigits(s, 5)
	day, ok4 := twoDigits(s, 8)
	clock, ok5 := clockSeconds(s, 11)
	if !(ok1 && ok2 && ok3 && ok4 && ok5) {
		return 0, false
	}
	days, ok := civilDays(century*100+year, month, day)
	if !ok {
		return 0, false
	}
	micros, s, ok := fraction(s[19:], lax)
	if !ok {
		return 0, false
	}
	offset, ok := parseOffset(s, lax)
	if !ok {
		return 0, false
	}
	t := traffic.Time((days*86400+int64(clock-offset))*1e6 + int64(micros))
	return t, t >= minEventTime && t <= maxEventTime
}

// fraction reads decimals of a second, if there are any, as microseconds.
func fraction(s string, lax bool) (micros int, rest string, ok bool) {
	if s == "" || s[0] != '.' && !(lax && s[0] == ',') {
		return 0, s, true
	}
	n := digitRun(s[1:])
	if n == 0 {
		return 0, s, false
	}
	for i := 1; i <= 6; i++ {
		micros *= 10
		if i <= n {
			micros += int(s[i] - '0')
		}
	}
	return micros, s[1+n:], true
}

// parseOffset reads a zone offset as seconds east of UTC.
func parseOffset(s string, lax bool) (seconds int, ok bool) {
	if s == "Z" || s == "z" {
		return 0, true
	}
	if lax {
		if s == "" {
			return 0, true
		}
		if s[0] == ' ' {
			s = s[1:]
		}
	}
	if len(s) < 3 || s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	hours, ok := twoDigits(s, 1)
	minutes := 0
	switch {
	case !ok || hours > 23:
		return 0, false
	case len(s) == 6 && s[3] == ':':
		minutes, ok = twoDigits(s, 4)
	case len(s) == 5 && lax:
		minutes, ok = twoDigits(s, 3)
	case len(s) == 3 && lax:
	default:
		return 0, false
	}
	if !ok || minutes > 59 {
		return 0, false
	}
	seconds = hours*3600 + minutes*60
	if s[0] == '-' {
		seconds = -seconds
	}
	return seconds, true
}

// parseTimeLocal reads the time of Apache's %t and nginx's $time_local: `17/May/2015:10:05:03 +0000`.
func parseTimeLocal(s string) (traffic.Time, bool) {
	if len(s) != len("02/Jan/2006:15:04:05 -0700") ||
		s[2] != '/' || s[6] != '/' || s[11] != ':' || s[14] != ':' || s[17] != ':' || s[20] != ' ' {
		return 0, false
	}
	day, ok1 := twoDigits(s, 0)
	month, ok2 := monthNumber(s[3:6])
	century, ok3 := twoDigits(s, 7)
	year, ok4 := twoDigits(s, 9)
	clock, ok5 := clockSeconds(s, 12)
	offset, ok6 := parseOffset(s[21:], true)
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) {
		return 0, false
	}
	days, ok := civilDays(century*100+year, month, day)
	t := traffic.Time((days*86400 + int64(clock-offset)) * 1e6)
	return t, ok && t >= minEventTime && t <= maxEventTime
}

// parseEpoch reads a number of seconds since 1970, or of a finer unit, told apart by magnitude: below 1e11 seconds,
// below 1e14 milliseconds, below 1e17 microseconds, else nanoseconds. So seconds reach to the year 5138, and instants in
// a finer unit are read right from March 1973 on. Decimals count; what is finer than a microsecond is dropped.
func parseEpoch(s string) (traffic.Time, bool) {
	d, ok := parseDecimal(s)
	if !ok {
		return 0, false
	}
	whole, _, ok := d.scaled(0)
	if !ok {
		return 0, false
	}
	magnitude := uint64(whole)
	if whole < 0 {
		magnitude = -magnitude
	}
	shift := -3
	switch {
	case magnitude < 1e11:
		shift = 6
	case magnitude < 1e14:
		shift = 3
	case magnitude < 1e17:
		shift = 0
	}
	v, _, ok := d.scaled(shift)
	t := traffic.Time(v)
	return t, ok && t >= minEventTime && t <= maxEventTime
}

// parseAnyTime reads every form that the json and combined formats take.
func parseAnyTime(s string) (traffic.Time, bool) {
	if t, ok := parseRFC3339(s, true); ok {
		return t, true
	}
	if t, ok := parseTimeLocal(s); ok {
		return t, true
	}
	return parseEpoch(s)
}

func twoDigits(s string, i int) (int, bool) {
	tens, ones := s[i]-'0', s[i+1]-'0'
	return int(tens)*10 + int(ones), tens <= 9 && ones <= 9
}

// clockSeconds reads hh:mm:ss at i as the second of the day.
func clockSeconds(s string, i int) (int, bool) {
	h, ok1 := twoDigits(s, i)
	m, ok2 := twoDigits(s, i+3)
	sec, ok3 := twoDigits(s, i+6)
	return h*3600 + m*60 + sec, ok1 && ok2 && ok3 && h <= 23 && m <= 59 && sec <= 60
}

func monthNumber(name string) (int, bool) {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	for i := 0; i < len(names); i += 3 {
		if names[i:i+3] == name {
			return i/3 + 1, true
		}
	}
	return 0, false
}

// civilDays is the number of days from 1970-01-01 to a date of the proleptic Gregorian calendar. The month is 1 to 12 and the
// day one that it has, or it is no date. By arithmetic, in a tenth of the time of time.Date (docs/performance.md): years begin
// with March, so that a leap day is the last of one, and months of 31 and 30 days follow each other as the multiples of 153/5.
func civilDays(year, month, day int) (int64, bool) {
	if month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return 0, false
	}
	if month -= 3; month < 0 {
		year, month = year-1, month+12
	}
	year += 400 // none is negative then
	const daysBefore1970 = 719468 + 146097
	return int64(365*year + year/4 - year/100 + year/400 + (153*month+2)/5 + day - 1 - daysBefore1970), true
}

// daysIn is how many days a month has.
func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}
