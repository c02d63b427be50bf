// Package detect finds the layout of a file of any format.
//
// The parsers are asked in turn; the first that is certain has the file, and a file that no parser knows is one Blob.
// Whatever the bytes are there is a layout, so a writer never sees an error because of what it wrote.
package detect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/formats/torchzip"
)

// parsers has each known format once, in the order in which they are asked.
var parsers = []formats.Parser{
	safetensors.Parser{},
	torchzip.Parser{},
}

// Detect returns the layout of the size bytes of r, which passes Check. Its errors are r's alone.
func Detect(r io.ReaderAt, size int64) (*formats.Layout, error) { return detect(parsers, r, size) }

func detect(parsers []formats.Parser, r io.ReaderAt, size int64) (*formats.Layout, error) {
	for _, p := range parsers {
		l, err := parse(p, r, size)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, formats.ErrNotFormat) {
			return nil, err
		}
	}
	return formats.BlobLayout(size), nil
}

// parse runs one parser. A panic and a layout that fails Check are faults of the parser; its word is then not taken.
func parse(p formats.Parser, r io.ReaderAt, size int64) (l *formats.Layout, err error) {
	defer func() {
		if v := recover(); v != nil {
			l, err = nil, fmt.Errorf("%s: %w: panic: %v", p.Name(), formats.ErrNotFormat, v)
		}
	}()
	if l, err = p.Parse(r, size); err != nil {
		return nil, err
	}
	if err := l.Check(size); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", p.Name(), formats.ErrNotFormat, err)
	}
	return l, nil
}

// SniffLen is how long a prefix Sniff makes use of.
const SniffLen = 4096

// Sniff reports whether a file of size bytes that starts with prefix may be of a known format. It is quick and errs
// towards yes: a file that it says no to is none.
func Sniff(prefix []byte, size int64) bool {
	return sniffSafetensors(prefix, size) || sniffZip(prefix)
}

func sniffSafetensors(p []byte, size int64) bool {
	if len(p) < 8 || size < 8 {
		return false
	}
	n := binary.LittleEndian.Uint64(p)
	return n <= safetensors.MaxHeader && int64(n) <= size-8 && safetensors.StartsObject(p[8:])
}

// sniffZip looks at the name in the local header that p starts with. Torch names its records <stem>/data.pkl and so on;
// a zip of plain files has no folder.
func sniffZip(p []byte) bool {
	const sig, nameLen, header = "PK\x03\x04", 26, 30
	if len(p) < header || string(p[:4]) != sig {
		return false
	}
	end := header + int(binary.LittleEndian.Uint16(p[nameLen:]))
	return end > len(p) || bytes.IndexByte(p[header:end], '/') >= 0
}
