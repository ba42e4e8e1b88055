package config

import (
	"encoding"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
)

// Secret is a text that is never shown: every way of printing it gives the mask.
type Secret string

const secretMask = "********"

var (
	_ encoding.TextMarshaler   = Secret("")
	_ encoding.TextMarshaler   = Duration(0)
	_ encoding.TextUnmarshaler = (*Duration)(nil)
	_ encoding.TextMarshaler   = Size(0)
	_ encoding.TextUnmarshaler = (*Size)(nil)
)

// String is the mask, or nothing where nothing is set.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return secretMask
}

// GoString keeps %#v from showing it.
func (s Secret) GoString() string { return s.String() }

// MarshalText keeps encoders from showing it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Reveal is the text itself, for the one place that connects with it.
func (s Secret) Reveal() string { return string(s) }

// Duration is a duration written with s, m, h or d: 90s, 24h, 7d, 1d12h.
type Duration time.Duration

// String writes s as durations are written everywhere here: 90s is 1m30s, 24h is 1d.
func (s Duration) String() string { return duration.Format(time.Duration(s)) }

// MarshalText writes s as String does.
func (s Duration) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what package duration does.
func (s *Duration) UnmarshalText(b []byte) error {
	d, err := duration.Parse(string(b))
	if err != nil {
		return err
	}
	*s = Duration(d)
	return nil
}

// Size is a number of bytes, written with B, KiB, MiB or GiB: 256MiB.
type Size int64

// String writes the greatest unit that gives a whole number.
func (s Size) String() string {
	for _, u := range sizeUnits() {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText writes s as String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what String writes.
func (s *Size) UnmarshalText(b []byte) error {
	text := string(b)
	for _, u := range sizeUnits() {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err == nil && n >= 0 && n <= math.MaxInt64/u.bytes {
			*s = Size(n * u.bytes)
			return nil
		}
		break
	}
	return fmt.Errorf("got %q; allowed: a number of bytes like 64MiB or 1GiB", text)
}

type sizeUnit struct {
	name  string
	bytes int64
}

func sizeUnits() []sizeUnit {
	return []sizeUnit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// Field is one leaf of the configuration.
type Field struct {
	Path  string // kafka.partitions.keyed
	Value reflect.Value
}

// Env is the name of the field's environment variable.
func (f Field) Env() string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(f.Path, ".", "_"))
}

// Text is the value as --set would take it; secrets are masked.
func (f Field) Text() string {
	switch v := f.Value.Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		return JoinMap(v)
	case fmt.Stringer:
		return v.String()
	}
	if f.Value.Kind() == reflect.Slice {
		parts := make([]string, f.Value.Len())
		for i := range parts {
			parts[i] = fmt.Sprint(f.Value.Index(i).Interface())
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(f.Value.Interface())
}

// JoinMap writes a map as --set takes it: pairs in the order of their names, a=b,c=d.
func JoinMap(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, k+"="+v)
	}
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

// Fields lists the leaves of c in the order of its struct.
func (c *Config) Fields() []Field {
	return appendFields(nil, "", reflect.ValueOf(c).Elem())
}

func appendFields(out []Field, prefix string, v reflect.Value) []Field {
	for i := range v.NumField() {
		name := yamlName(v.Type().Field(i))
		if name == "" {
			continue // not a setting
		}
		path := prefix + name
		if isSection(v.Field(i)) {
			out = appendFields(out, path+".", v.Field(i))
			continue
		}
		out = append(out, Field{Path: path, Value: v.Field(i)})
	}
	return out
}

// isSection reports whether v is a mapping with fields of its own rather than a leaf.
func isSection(v reflect.Value) bool {
	if v.Kind() != reflect.Struct {
		return false
	}
	_, leaf := v.Addr().Interface().(encoding.TextUnmarshaler)
	return !leaf
}

func yamlName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

// setText parses text into the leaf v: lists are separated by commas, maps are name=value pairs.
func setText(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return leafError(v, text, err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("got %q; allowed: true, false", text)
		}
		v.SetBool(text == "true")
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fmt.Errorf("got %q; allowed: a whole number", text)
		}
		v.SetInt(n)
	case reflect.Uint8:
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return fmt.Errorf("got %q; allowed: a whole number from 0 to 255", text)
		}
		v.SetUint(n)
	case reflect.Slice:
		return setList(v, splitList(text))
	case reflect.Map:
		return setPairs(v, splitList(text))
	default:
		return fmt.Errorf("weir cannot set a field of type %s", v.Type())
	}
	return nil
}

// leafError gives a text type's own error, or says what an address range looks like.
func leafError(v reflect.Value, text string, err error) error {
	if v.Type().PkgPath() == "net/netip" {
		return fmt.Errorf("got %q; allowed: an address range like 192.0.2.0/24 or 2001:db8::/32", text)
	}
	return err
}

func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func setList(v reflect.Value, parts []string) error {
	list := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, part := range parts {
		if err := setText(list.Index(i), part); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

func setPairs(v reflect.Value, parts []string) error {
	m := make(map[string]string, len(parts))
	for _, part := range parts {
		name, value, ok := strings.Cut(part, "=")
		if !ok || name == "" {
			return fmt.Errorf("got %q; allowed: pairs like time=ts,user_agent=ua", part)
		}
		m[name] = value
	}
	v.Set(reflect.ValueOf(m))
	return nil
}

// Server is what an error may say of a connection URL: scheme, host and database, never a user or password.
func (s Secret) Server() string {
	u, err := url.Parse(s.Reveal())
	if err != nil || u.Host == "" {
		return "(the configured URL)"
	}
	return u.Scheme + "://" + u.Host + u.Path
}
