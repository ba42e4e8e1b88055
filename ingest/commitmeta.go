package ingest

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// AnnouncementFormat is the format of the commit metadata that this build writes. It reads AnnouncementFormat and the
// one before it.
const AnnouncementFormat = 1

// MaxCommitMetadata is how many bytes of metadata Kafka takes with a commit, unless the broker's
// offset.metadata.max.bytes says otherwise.
const MaxCommitMetadata = 4096

// Announcement is what a router's commit of one source partition says: where routing stands, and the chunk that
// follows. A successor routes that chunk first, into the same records, whatever it would have chosen itself.
type Announcement struct {
	Generation int64 // which life of the requests topic
	Offset     int64 // every event before it is acknowledged by every keyed partition
	End        int64 // the announced chunk is [Offset, End); equal to Offset it announces nothing
	Version    int64 // routing version of the announced chunk; 0 only before the stream's first version
	// Prev is, per keyed partition, the last offset before Offset that was sent there, or detectors.NoOffset.
	Prev []int64
	// Progress is the greatest event time before Offset, traffic.BeforeTime when there is none.
	Progress traffic.Time
}

// errMetadata is wrapped by every error of DecodeAnnouncement.
var errMetadata = errors.New("commit metadata")

// InitialCommit is the first commit of a source partition, as `weir migrate` writes it: nothing is routed yet, nothing
// is announced, and a router may begin at offset.
func InitialCommit(generation, offset, version int64, keyedPartitions int) Commit {
	a := Announcement{
		Generation: generation, Offset: offset, End: offset, Version: version,
		Prev: noneSent(keyedPartitions), Progress: traffic.BeforeTime,
	}
	return a.Commit()
}

// noneSent is the Prev of an announcement before which nothing was sent.
func noneSent(keyedPartitions int) []int64 {
	prev := make([]int64, keyedPartitions)
	for q := range prev {
		prev[q] = detectors.NoOffset
	}
	return prev
}

// Commit is a with its encoding as metadata.
func (a *Announcement) Commit() Commit {
	return Commit{Offset: a.Offset, Metadata: a.encode()}
}

// The layout, format 1, before base64. Numbers are unsigned varints in their shortest form (± marks zigzag):
//
//	byte format, g, offset, end-offset, version, ±progress, keyed partitions, offset-prev (0: none) for each of them,
//	CRC-32C of all that, big-endian
//
// The distances make it short in the usual case, when every keyed partition had an event lately.
func (a *Announcement) encode() string {
	b := make([]byte, 0, 64+4*len(a.Prev))
	b = append(b, AnnouncementFormat)
	b = binary.AppendUvarint(b, uint64(a.Generation))
	b = binary.AppendUvarint(b, uint64(a.Offset))
	b = binary.AppendUvarint(b, uint64(a.End-a.Offset))
	b = binary.AppendUvarint(b, uint64(a.Version))
	b = binary.AppendVarint(b, int64(a.Progress))
	b = binary.AppendUvarint(b, uint64(len(a.Prev)))
	for _, prev := range a.Prev {
		back := uint64(0)
		if prev >= 0 {
			back = uint64(a.Offset - prev)
		}
		b = binary.AppendUvarint(b, back)
	}
	b = binary.BigEndian.AppendUint32(b, checksum(b))
	return base64.RawStdEncoding.EncodeToString(b)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// DecodeAnnouncement reads what Announcement.Commit wrote. It accepts nothing else: no other text stands for the same
// announcement. It does not compare the metadata with the commit's own offset; judging a commit is the router's part.
func DecodeAnnouncement(metadata string) (*Announcement, error) {
	if len(metadata) > MaxCommitMetadata {
		return nil, fmt.Errorf("%w: %d bytes, allowed: up to %d", errMetadata, len(metadata), MaxCommitMetadata)
	}
	if strings.ContainsAny(metadata, "\r\n") { // which the decoder would skip
		return nil, fmt.Errorf("%w: has a line break", errMetadata)
	}
	b, err := base64.RawStdEncoding.Strict().DecodeString(metadata)
	if err != nil {
		return nil, fmt.Errorf("%w: is not base64: %w", errMetadata, err)
	}
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: %d bytes, at least 5 are needed", errMetadata, len(b))
	}
	if b[0] != AnnouncementFormat {
		return nil, fmt.Errorf("%w: format %d, this build reads %d", errMetadata, b[0], AnnouncementFormat)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if checksum(body) != sum {
		return nil, fmt.Errorf("%w: checksum does not match", errMetadata)
	}
	r := metadataReader{b: body[1:]}
	a := &Announcement{Generation: r.count(), Offset: r.count()}
	a.End = a.Offset + r.count()
	a.Version = r.count()
	a.Progress = traffic.Time(r.signed())
	a.Prev = r.prevs(a.Offset)
	if r.err == nil && len(r.b) != 0 {
		r.fail("%d bytes left over", len(r.b))
	}
	if r.err == nil && a.End < a.Offset {
		r.fail("the announced end does not fit 63 bits")
	}
	if r.err == nil && a.End > a.Offset && a.Version == 0 {
		r.fail("a chunk is announced under no routing version")
	}
	if r.err != nil {
		return nil, r.err
	}
	return a, nil
}

// metadataReader takes the bytes apart. The first error stays.
type metadataReader struct {
	b   []byte
	err error
}

func (r *metadataReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %w", errMetadata, fmt.Errorf(format, args...))
	}
	r.b = nil
}

func (r *metadataReader) unsigned() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("ends within a number")
		return 0
	}
	if n > 1 && r.b[n-1] == 0 {
		r.fail("a number is longer than needed")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *metadataReader) count() int64 {
	v := r.unsigned()
	if v > math.MaxInt64 {
		r.fail("number %d does not fit 63 bits", v)
		return 0
	}
	return int64(v)
}

func (r *metadataReader) signed() int64 {
	v := r.unsigned()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *metadataReader) prevs(offset int64) []int64 {
	n := r.count()
	if n > int64(len(r.b)) {
		r.fail("%d keyed partitions announced, %d bytes left", n, len(r.b))
		return nil
	}
	prev := noneSent(int(n))
	for q := range prev {
		back := r.count()
		if back > offset {
			r.fail("keyed partition %d: a previous offset %d before %d", q, back, offset)
			return nil
		}
		if back > 0 {
			prev[q] = offset - back
		}
	}
	return prev
}

// CheckMetadata refuses a number of keyed partitions for which an announcement could grow beyond what Kafka takes with
// a commit. A stage asks at its start, so that no commit is refused for its size later.
func CheckMetadata(keyedPartitions int) error {
	if keyedPartitions < 1 {
		return fmt.Errorf("keyed partitions: got %d, at least 1 is needed", keyedPartitions)
	}
	if n := metadataBound(keyedPartitions); n > MaxCommitMetadata {
		return fmt.Errorf("keyed partitions: got %d, whose commit metadata may take %d bytes; Kafka allows %d, "+
			"which is enough for %d", keyedPartitions, n, MaxCommitMetadata, maxKeyedPartitions())
	}
	return nil
}

// metadataBound is the length of the longest encoding: 63-bit numbers take 9 bytes, the signed time 10, the count of
// partitions at most 5.
func metadataBound(keyedPartitions int) int {
	return base64.RawStdEncoding.EncodedLen(1 + 9*4 + 10 + 5 + 9*keyedPartitions + 4)
}

func maxKeyedPartitions() int {
	n := 1
	for metadataBound(n+1) <= MaxCommitMetadata {
		n++
	}
	return n
}
