package oracle

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/dchest/siphash"
)

// Dimension says which keyed partition, of n, owns the windows of one value of a key's first field. It is computed from
// the published rule: SipHash-2-4 under the first 16 bytes of SHA-256("weir/target/1" NUL secret), of a byte 1, the
// field's name, a NUL and the value.
func Dimension(secret []byte, field, value string, n int) int {
	sum := sha256.Sum256(append([]byte("weir/target/1\x00"), secret...))
	message := append([]byte{1}, field+"\x00"+value...)
	h := siphash.Hash(binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16]), message)
	return int(h % uint64(n))
}
