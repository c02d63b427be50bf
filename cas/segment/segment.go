// Package segment is the format of the files that hold everything packed: append-only files of checksummed
// records.
//
// A segment is called NNNNNNNN.seg after its number, decimal, at least 8 digits; number 0 is never used.
// Integers are little-endian. Checksums are CRC-32C (Castagnoli). Bytes shown as 0 are written as zeros and
// not looked at, so that a later version can use them where it need not keep this one from reading.
//
//	0                  64
//	├── file header ───┼── record ──┼── record ──┼ … ┼── footer ──┼── trailer ──┤
//	                   every record, the footer and the trailer start at a multiple of 8
//
// File header, 64 bytes:
//
//	 0  8  magic "ckptseg\n"
//	 8  2  version: 9
//	10  2  0
//	12  4  segment number
//	16 16  store id
//	32 28  0
//	60  4  CRC of bytes 0 to 59; it and the version keep their places in all versions
//
// Record, 80 bytes and the payload:
//
//	 0  4  magic "ckr\n"
//	 4  1  kind (cas.Kind); a kind that a reader does not know it passes over
//	 5  1  codec (package codec)
//	 6  2  0
//	 8  4  raw length R: of the payload once decoded, at most cas.MaxChunk
//	12  4  stored length S: of the payload as it lies here, at most cas.MaxChunk
//	16 32  hash: BLAKE3-256 of the raw payload
//	48 16  XXH3-128 of the raw payload, most significant byte first
//	64  8  offset of this record in the segment
//	72  4  CRC of the payload as stored
//	76  4  CRC of bytes 0 to 75, followed by the store id and the segment number (16 + 4 bytes)
//	80  S  payload
//	       0 to 7 zeros, up to a multiple of 8
//
// The offset, and the store's id and segment number in the checksum, tie a record to its place. What looks
// like a record inside a payload (of a segment saved as a file, say), or in blocks that the disk used before,
// is none.
//
// The XXH3 lies beside the hash because a reader that has just decoded a payload compares it in a tenth of
// the time (cas.XXH3 has what it is good for, package store when it is compared instead of the hash).
//
// # Deltas
//
// A record whose codec needs a base (codec.NeedsBase) holds the difference of its content from that of
// another record, by whatever location the index has of it. Its payload is
//
//	 0 32  hash of the base
//	32  1  number i: 1 to 7
//	33     what the codec made
//
// A record that needs none has number 0, and is the key of those that lead back to it. Number i is written
// against number i & (i-1), i with its lowest set bit cleared, which is among what number i-1 leads back to
// (Fenwick, 1994). So a writer that knows the version before can find the base, and no record is written that
// leads back by more than 3 steps:
//
//	0 ← 1    0 ← 2 ← 3    0 ← 4 ← 5    4 ← 6 ← 7
//
// What is only like another record, and no version of it, is given the highest number that is written against
// that one: 4, 6 and 7 are three models, each made of the one before (After).
//
// A base may have been stored again since, with another number. A reader insists that this is less than i: so
// there are no circles and no long chains, whatever a damaged or hostile store says. It also insists that
// neither the record nor any of its bases is longer than MaxBased, 2^20 bytes, once decoded, so that it knows
// what memory it takes.
//
// A record that is rounded (codec.Rounded) has the numbers of its base in half the bytes. So of chunks of one
// length it has two bases, one behind the other. Its number is 8, whatever theirs are, so that no delta is
// written against it. It leads back by one step more:
//
//	 0 32  hash of the base
//	32  1  number: 8
//	33  1  how many bases: 1, or 2
//	34 32  hash of the second, if there are two
//	       what the codec made
//
// A record that is of low rank (codec.LowRank) is a delta, with the numbers and the base of one. Besides, it
// names the record of the columns' factor, which all chunks of its tensor have in common:
//
//	 0 32  hash of the base
//	32  1  number i: 1 to 7
//	33 32  hash of the columns
//	65     what the codec made
//
// The columns are written with number 0, ahead of what needs them. But a chunk of some file may have their
// hash as well, so that they were stored, or are stored again, as a delta. So the rule for bases holds for
// them: their number is less than i, and a reader insists on that. A record needs both its base and its
// columns.
//
// A record that is a recipe (codec.Recipe) is computed from others by a program. It has 1 to 40 bases, which
// lie one behind the other as the program has them. A base is named once, so that where its content is needed
// in several places it is read once:
//
//	 0 32  hash of the first base
//	32  1  number: 9
//	33  1  n, how many bases: 1 to 40
//	34     hashes of the others, 32 (n-1) bytes, in the order of first use
//	       what package recipe made
//
// Its number is 9, whatever theirs are, and nothing is written against it. So its bases may be of every other
// kind, and a reader insists on that by the rule for all: their numbers are less than 9. A reader also
// insists that the contents of all bases are no longer than MaxRecipe, 10 MiB, together. A writer sees to
// it that a recipe leads to no more than 40 records, each counted once (package delta).
//
// A program that does not know a codec does not know either whether it needs a base, and its sweep would take
// the base away. So a codec with a base comes with a new version, which keeps earlier programs out. Version 8
// is version 9 without recipes, and is read as such.
//
// # Footer
//
// A segment that takes no more records is sealed with a footer, so that the index can be rebuilt without
// reading the payloads. The footer has one entry of 56 bytes for each record that was written in full, by
// ascending offset:
//
//	 0 32  hash
//	32  8  offset of the record
//	40  4  stored length
//	44  4  raw length
//	48  1  kind
//	49  1  codec
//	50  6  0
//
// Trailer, the last 160 bytes of the file:
//
//	  0  8  magic "ckptend\n"
//	  8  2  version: 9
//	 10  2  0
//	 12  4  segment number
//	 16 16  store id
//	 32  8  offset of the footer
//	 40  8  number of entries N, at most 2^18; the footer has 56 N bytes and ends where the trailer starts
//	 48 24  chunks: how many, their raw bytes, their stored bytes (8 each)
//	 72 24  lists: likewise
//	 96 24  manifests: likewise
//	120 24  records of other kinds: likewise
//	144  8  when it was sealed, in seconds since 1970: every record is older; 0: not known
//	152  4  CRC of the footer
//	156  4  CRC of bytes 0 to 155
//
// # Writing
//
// Writers reserve a range, write it without a lock and report back (Writer). So a crash can leave a range
// that was never written, or written in part, with whole records after it. A write that failed leaves such a
// range, too, in a segment that goes on, and so does a record that was taken back before it was synced and
// indexed: its bytes become a hole first. Such ranges hold no valid record, and no footer has them. A file
// whose trailer or footer is missing or damaged is scanned (Scanner), with every payload checked, and may be
// sealed then. Bytes that a crash left stay where they are, in front of the footer: recovery neither
// overwrites nor truncates.
//
// # Records that go
//
// Single records of a sealed segment can be dropped. First a footer without them, with the time of the one
// before, is appended behind the trailer and synced. Only then do their bytes, and those of the footer
// before, become holes, which read as zeros. If the new footer is damaged later, a scan finds the same
// records.
package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"ckptfs/cas"
)

const (
	// Version of the format that this package writes.
	Version = 9
	// Oldest is the earliest version that it reads: 9 is 8 with recipes.
	Oldest = 8
	// FileHeaderSize is the length of the file header; the first record lies behind it.
	FileHeaderSize = 64
	// RecordHeaderSize is the length of a record's header.
	RecordHeaderSize = 80

	entrySize   = 56
	trailerSize = 160
	align       = 8
)

var (
	fileMagic    = [8]byte{'c', 'k', 'p', 't', 's', 'e', 'g', '\n'}
	recordMagic  = [4]byte{'c', 'k', 'r', '\n'}
	trailerMagic = [8]byte{'c', 'k', 'p', 't', 'e', 'n', 'd', '\n'}
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	le           = binary.LittleEndian
)

// ID says which segment of which store.
type ID struct {
	Store  [16]byte
	Number uint32
}

// Name is the name of a segment's file.
func Name(number uint32) string { return fmt.Sprintf("%08d.seg", number) }

// ParseName undoes Name. ok is false for every other name, and for the last number: there is one after each.
func ParseName(name string) (number uint32, ok bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, ".seg"), 10, 32)
	if err != nil || n == 0 || n == math.MaxUint32 || Name(uint32(n)) != name {
		return 0, false
	}
	return uint32(n), true
}

// Path is the path of a segment's file in dir.
func Path(dir string, number uint32) string { return filepath.Join(dir, Name(number)) }

// Size is the room that a record takes whose payload is stored bytes long.
func Size(stored int) int64 { return roundUp(RecordHeaderSize + int64(stored)) }

// End is where a record ends.
func End(l cas.Location) int64 { return l.Off + Size(int(l.Stored)) }

func roundUp(n int64) int64 { return (n + align - 1) &^ (align - 1) }

func crc(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// appendFileHeader appends the file header.
func appendFileHeader(dst []byte, id ID) []byte {
	n := len(dst)
	dst = append(dst, make([]byte, FileHeaderSize)...)
	p := dst[n:]
	copy(p, fileMagic[:])
	le.PutUint16(p[8:], Version)
	le.PutUint32(p[12:], id.Number)
	copy(p[16:], id.Store[:])
	le.PutUint32(p[60:], crc(p[:60]))
	return dst
}

// checkFileHeader reads a file header; the file must be what id says it is.
func checkFileHeader(p []byte, id ID) error {
	if len(p) < FileHeaderSize || [8]byte(p[:8]) != fileMagic || le.Uint32(p[60:]) != crc(p[:60]) {
		return fmt.Errorf("file header: %w", cas.ErrCorrupt)
	}
	if err := checkVersion(le.Uint16(p[8:])); err != nil {
		return fmt.Errorf("file header: %w", err)
	}
	return checkID(p[12:32], id)
}

// checkVersion returns cas.ErrNewer for later versions of the format and ErrOlder for earlier ones.
func checkVersion(v uint16) error {
	switch {
	case v > Version:
		return fmt.Errorf("segment version %d: %w", v, cas.ErrNewer)
	case v < Oldest:
		return fmt.Errorf("segment version %d: %w", v, ErrOlder)
	}
	return nil
}

// checkID compares 4 bytes of number and 16 of store id.
func checkID(p []byte, id ID) error {
	if [16]byte(p[4:20]) != id.Store {
		return fmt.Errorf("of store %x, not of %x: %w", p[4:20], id.Store, ErrForeign)
	}
	if n := le.Uint32(p); n != id.Number {
		return fmt.Errorf("is segment %d: %w", n, ErrForeign)
	}
	return nil
}
