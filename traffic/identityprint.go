package traffic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// fingerprintBytes of a SHA-256 tell two identity maps of one installation apart.
const fingerprintBytes = 8

// Fingerprint names m in 16 hex digits: maps that are Equal have the same one, and others do not. Processes that read
// requests by two maps find that out by it.
func (m *IdentityMap) Fingerprint() string {
	text, err := json.Marshal(m)
	if err != nil {
		return "" // an IdentityMap has only texts, numbers and prefixes, which can always be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:fingerprintBytes])
}
