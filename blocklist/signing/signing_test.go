package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func seed(b byte) []byte { return bytes.Repeat([]byte{b}, SeedBytes) }

func signerOf(t testing.TB, b byte, namespace string) *Signer {
	t.Helper()
	s, err := NewSigner(seed(b), namespace)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	text  = `{"rule":"tokens","mode":"block","generation":4}`
	other = `{"rule":"search","mode":"block","generation":4}`
)

// What is signed is signed as the documents say, of which this is written anew.
func TestASignatureIsAsDocumented(t *testing.T) {
	private := ed25519.NewKeyFromSeed(seed(1))
	var message []byte
	for _, part := range []string{"weir mode 1", "weir", text} {
		message = append(binary.BigEndian.AppendUint32(message, uint32(len(part))), part...)
	}
	want := text[:len(text)-1] + `,"sig":"` +
		base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, message)) + `"}`
	s := signerOf(t, 1, "weir")
	if got := s.Sign(text); got != want {
		t.Errorf("signed: %s\nwant    %s", got, want)
	}
	public, _ := private.Public().(ed25519.PublicKey)
	if got, want := s.String(), "ed25519:"+base64.RawURLEncoding.EncodeToString(public); got != want {
		t.Errorf("the key is told as %s, want %s", got, want)
	}
}

func TestForgeries(t *testing.T) {
	s := signerOf(t, 1, "weir")
	trust, err := ParseTrust(s.String(), "weir")
	if err != nil {
		t.Fatal(err)
	}
	good := s.Sign(text)
	unsigned, _, _ := strings.Cut(good, `,"sig"`)
	sum := strings.TrimPrefix(good, unsigned)
	long := strings.Replace(good, sum[8:12], "AAAAAAAA", 1)
	for _, tt := range []struct {
		what, text string
		want       error
	}{
		{"itself", good, nil},
		{"absent", text, ErrUnsigned},
		{"nothing", "", ErrUnsigned},
		{"a signature alone", sum, ErrUnsigned},
		{"another rule's", other[:len(other)-1] + sum, ErrForged},
		{"another namespace's", signerOf(t, 1, "staging").Sign(text), ErrForged},
		{"another key's", signerOf(t, 2, "weir").Sign(text), ErrForged},
		{"another mode", strings.Replace(good, "block", "canary", 1), ErrForged},
		{"another generation", strings.Replace(good, ":4", ":5", 1), ErrForged},
		{"one member more", strings.Replace(good, sum, `,"share":1`+sum, 1), ErrForged},
		{"signed, and then more", good[:len(good)-1] + `,"mode":"block"}`, ErrUnsigned},
		{"twice signed", s.Sign(good), nil}, // whoever can do that can sign: a newer build's members stand there alike
		{"a signature in front of another", good[:len(good)-1] + sum, ErrForged},
		{"a space behind", good + " ", ErrUnsigned},
		{"truncated", good[:len(good)-10] + `"}`, ErrUnsigned},
		{"zeros", text[:len(text)-1] + `,"sig":"` + strings.Repeat("A", 86) + `"}`, ErrForged},
		{"too long", long, ErrUnsigned},
		{"no base64", strings.Replace(good, sum[8:12], "!!!!", 1), ErrForged},
		{"its last bits", good[:len(good)-3] + "_" + `"}`, ErrForged},
	} {
		for range 2 { // what was found once is remembered, what was not is not
			if err := trust.Check("tokens", tt.text); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.what, err, tt.want)
			}
		}
	}
}

func TestKeysThatAreNone(t *testing.T) {
	good := signerOf(t, 1, "weir").String()
	for _, text := range []string{
		"", "ed25519:", good[8:], good + "=", good[:len(good)-1], good + "A", "ed25519:" + strings.Repeat("!", 43),
		strings.ToUpper(good), "rsa:" + good[8:],
	} {
		if _, err := ParseTrust(text, "weir"); err == nil || !strings.Contains(err.Error(), "weir gate trust") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, n := range []int{0, SeedBytes - 1, SeedBytes + 1, 64} {
		if _, err := NewSigner(make([]byte, n), "weir"); err == nil {
			t.Errorf("a seed of %d bytes is taken", n)
		}
	}
}

// FuzzCheck holds that nothing passes that the signer has not written, however near it is.
func FuzzCheck(f *testing.F) {
	s := signerOf(f, 1, "weir")
	good := s.Sign(text)
	for _, seed := range []string{
		"", "{}", text, good, signerOf(f, 2, "weir").Sign(text), good[:len(good)-1], good + good, `{,"sig":"` +
			strings.Repeat("A", 86) + `"}`, strings.Repeat("A", 97),
	} {
		f.Add(seed, 0, byte(1))
	}
	f.Fuzz(func(t *testing.T, wild string, at int, flip byte) {
		signed := s.Sign(wild)
		if len(wild) > 1 && strings.HasSuffix(wild, "}") {
			if err := s.Check("tokens", signed); err != nil {
				t.Fatalf("%q, signed as %q: %v", wild, signed, err)
			}
		}
		if err := s.Check("tokens", wild); err == nil && wild != good {
			t.Fatalf("%q passes", wild)
		}
		changed := []byte(good)
		if i := at % len(changed); i >= 0 && flip != 0 {
			changed[i] ^= flip
			if err := s.Check("tokens", string(changed)); err == nil {
				t.Fatalf("%q passes", changed)
			}
		}
	})
}
