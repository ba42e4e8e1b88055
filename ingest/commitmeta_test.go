package ingest

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

func drawAnnouncement(t *rapid.T) Announcement {
	a := Announcement{
		Generation: rapid.Int64Min(0).Draw(t, "g"), Offset: rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "offset"),
		Version:  rapid.Int64Min(1).Draw(t, "version"),
		Progress: traffic.Time(rapid.Int64().Draw(t, "progress")),
	}
	a.End = a.Offset + rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "length")
	a.Prev = make([]int64, rapid.IntRange(1, 70).Draw(t, "keyed"))
	for q := range a.Prev {
		a.Prev[q] = rapid.Int64Range(detectors.NoOffset, a.Offset-1).Draw(t, "prev")
	}
	return a
}

func sameAnnouncement(a, b *Announcement) bool {
	return a.Generation == b.Generation && a.Offset == b.Offset && a.End == b.End && a.Version == b.Version &&
		a.Progress == b.Progress && slices.Equal(a.Prev, b.Prev)
}

func TestAnnouncementRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAnnouncement(t)
		c := a.Commit()
		got, err := DecodeAnnouncement(c.Metadata)
		if err != nil || c.Offset != a.Offset || !sameAnnouncement(got, &a) {
			t.Fatalf("got %+v, %v; want %+v", got, err, a)
		}
		if n := metadataBound(len(a.Prev)); len(c.Metadata) > n {
			t.Fatalf("%d bytes of metadata, the bound is %d", len(c.Metadata), n)
		}
	})
}

func TestAnnouncementIsShort(t *testing.T) {
	a := Announcement{Generation: 1, Offset: 3_000_000_000, End: 3_000_005_000, Version: 120, Progress: 1_800_000_000_000_000}
	a.Prev = make([]int64, 64)
	for q := range a.Prev {
		a.Prev[q] = a.Offset - 1 - int64(q)
	}
	if n := len(a.Commit().Metadata); n > 130 {
		t.Errorf("a usual announcement to 64 keyed partitions takes %d bytes, want at most 130", n)
	}
}

func TestInitialCommit(t *testing.T) {
	c := InitialCommit(3, 17, 5, 2)
	a, err := DecodeAnnouncement(c.Metadata)
	want := Announcement{Generation: 3, Offset: 17, End: 17, Version: 5, Prev: []int64{-1, -1}, Progress: traffic.BeforeTime}
	if err != nil || c.Offset != 17 || !sameAnnouncement(a, &want) {
		t.Errorf("got %+v at %d, %v; want %+v", a, c.Offset, err, want)
	}
}

// sealed is a body as metadata, with a right checksum.
func sealed(body ...byte) string {
	b := append([]byte{AnnouncementFormat}, body...)
	return base64.RawStdEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, checksum(b)))
}

func TestDecodeAnnouncementRefuses(t *testing.T) {
	good := (&Announcement{Generation: 1, Offset: 10, End: 12, Version: 1, Prev: []int64{9, -1}}).Commit().Metadata
	if good != sealed(1, 10, 2, 1, 0, 2, 1, 0) {
		t.Fatalf("the layout has changed: %q", good)
	}
	flipped := []byte(good)
	flipped[3] ^= 1
	newer := []byte{AnnouncementFormat + 1, 1, 2, 3, 4, 5}
	tests := []struct{ name, metadata, want string }{
		{"empty", "", "at least 5"},
		{"no base64", "not base64!", "not base64"},
		{"padding", good + "=", "not base64"},
		{"a line break", good[:4] + "\n" + good[4:], "line break"},
		{"a flipped bit", string(flipped), "checksum"},
		{"cut", good[:8], "checksum"},
		{"a newer format", base64.RawStdEncoding.EncodeToString(newer), "format 2, this build reads 1"},
		{"too large", strings.Repeat("A", MaxCommitMetadata+4), "allowed: up to 4096"},
		{"ends early", sealed(1, 10, 2, 1), "ends within a number"},
		{"left over", sealed(1, 10, 2, 1, 0, 2, 1, 0, 0), "1 bytes left over"},
		{"a number too long", sealed(0x81, 0, 10, 2, 1, 0, 2, 1, 0), "longer than needed"},
		{"prev before the log", sealed(1, 10, 2, 1, 0, 2, 11, 0), "previous offset 11 before 10"},
		{"more partitions than bytes", sealed(1, 10, 2, 1, 0, 200, 1), "keyed partitions announced"},
		{"a chunk without a version", sealed(1, 10, 2, 0, 0, 2, 1, 0), "no routing version"},
		{"a number above 63 bits", sealed(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), "63 bits"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := DecodeAnnouncement(tt.metadata)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, %v; want an error with %q", a, err, tt.want)
			}
		})
	}
}

func TestCheckMetadata(t *testing.T) {
	for _, n := range []int{1, 64, maxKeyedPartitions()} {
		if err := CheckMetadata(n); err != nil {
			t.Errorf("%d keyed partitions: %v", n, err)
		}
		worst := Announcement{
			Generation: math.MaxInt64, Offset: math.MaxInt64, End: math.MaxInt64, Version: math.MaxInt64,
			Progress: traffic.BeforeTime, Prev: make([]int64, n),
		}
		if got := len(worst.Commit().Metadata); got > MaxCommitMetadata {
			t.Errorf("%d keyed partitions are allowed, and may take %d bytes", n, got)
		}
	}
	for n, want := range map[int]string{0: "at least 1", maxKeyedPartitions() + 1: "Kafka allows 4096"} {
		if err := CheckMetadata(n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d keyed partitions: got %v, want an error with %q", n, err, want)
		}
	}
}

// FuzzDecodeAnnouncement: no text panics, and one that is accepted is the only text of its announcement.
func FuzzDecodeAnnouncement(f *testing.F) {
	f.Add(InitialCommit(1, 0, 0, 4).Metadata)
	f.Add((&Announcement{Generation: 1, Offset: 10, End: 12, Version: 1, Prev: []int64{9, -1}}).Commit().Metadata)
	f.Add(sealed(1, 10, 2, 1, 0, 2, 11, 0))
	f.Add("")
	f.Fuzz(func(t *testing.T, metadata string) {
		a, err := DecodeAnnouncement(metadata)
		if err != nil {
			return
		}
		if again := a.Commit().Metadata; again != metadata {
			t.Errorf("%q and %q say the same", metadata, again)
		}
	})
}

// FuzzDecodeAnnouncementBody fuzzes what the checksum would keep the other target from reaching.
func FuzzDecodeAnnouncementBody(f *testing.F) {
	f.Add([]byte{1, 10, 2, 1, 0, 2, 1, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		metadata := sealed(body...)
		a, err := DecodeAnnouncement(metadata)
		if err != nil {
			return
		}
		if again := a.Commit().Metadata; again != metadata {
			t.Errorf("%x: encoded again it is %q, not %q", body, again, metadata)
		}
		for q, prev := range a.Prev {
			if prev >= a.Offset || prev < detectors.NoOffset {
				t.Errorf("%x: prev[%d] = %d at offset %d", body, q, prev, a.Offset)
			}
		}
	})
}
