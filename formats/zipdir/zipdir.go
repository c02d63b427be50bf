// Package zipdir reads a zip's directory and says where each entry's bytes lie, or that it is not certain.
//
//	PK\3\4  local header   30 bytes, name, extra fields
//	        bytes          as they are (method 0) or compressed
//	PK\7\8  descriptor     16 or 24 bytes, or absent
//	…
//	PK\1\2  directory      46 bytes, name, extra fields, comment, for each entry
//	PK\6\6, PK\6\7         zip64 end and its locator, or absent
//	PK\5\6  end            22 bytes
//
// archive/zip reads the directory, after the end records have been checked here, since it takes memory by
// their word. These rules hold, or the file is none that this package knows:
//
//  1. The file starts with a local header, and the end record is its last 22 bytes: no comment, nothing
//     after.
//  2. The end records agree with each other, and the directory lies right before them; the file is one disk.
//  3. At most 262,144 records in a directory of at most 64 MiB, exactly as many and as large as stated.
//  4. Each record has a local header at the directory's offset, with the same name and method, and the same
//     size where it gives one. Records neither overlap nor reach into the directory. None is encrypted.
//
// CRCs are never asked for: torch can leave them 0. Dates, flags, extra fields and alignment don't matter. A
// record costs some 400 bytes of memory while Read runs. Nothing is ever decompressed.
package zipdir

import (
	"cmp"
	"fmt"
	"slices"

	"ckptfs/formats"
)

// Bounds on what Read takes from the file.
const (
	maxRecords   = 1 << 18
	maxDirectory = 64 << 20
)

func reject(format string, args ...any) error {
	return fmt.Errorf("zip: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be a zip: p starts with a local header.
func Sniff(p []byte, _ int64) bool {
	return len(p) >= localLen && string(p[:len(localSig)]) == localSig
}

// SortByOffset puts records into the order of their bytes.
func SortByOffset(records []Record) {
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(a.Header, b.Header) })
}
