package config

import (
	"crypto/sha256"
	"strings"
)

// weakWords are what people set in the place of a secret, and what is tried first: the beginnings of lists of the most
// frequent passwords, with the words of this trade.
const weakWords = `123456 12345678 123456789 1234567890 111111 000000 123123 654321 abc123 admin admin123
	administrator changeme change-me default demo dragon example foo foobar hello iloveyou letmein master monkey
	my-token mysecret mytoken none null pass passw0rd password password1 password123 qwerty qwerty123 root s3cret
	sample secret secret123 sesame test test123 testing token token123 user weir weir-token welcome xxx YOUR_TOKEN
	your-token`

// exampleSecret is what documents have in the place of a secret.
const exampleSecret = "replace-this-with-the-output-of-openssl-rand-hex-32"

// weakToken says what a hash is of, where that can be guessed.
func weakToken(sum []byte) (string, bool) {
	if none := sha256.Sum256(nil); string(sum) == string(none[:]) {
		return "nothing at all", true
	}
	for word := range strings.FieldsSeq(weakWords) {
		for _, text := range []string{word, strings.ToUpper(word), word + "\n"} {
			if of := sha256.Sum256([]byte(text)); string(sum) == string(of[:]) {
				return "a token that is tried first", true
			}
		}
	}
	return "", false
}
