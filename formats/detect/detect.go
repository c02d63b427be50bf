// Package detect finds the layout of a file of any format.
//
// The parsers are asked in turn; the first that is certain has the file, and a file that no parser knows is
// one Blob. Whatever the bytes are there is a layout, so a writer never sees an error because of what it
// wrote.
package detect

import (
	"errors"
	"fmt"
	"io"

	"ckptfs/formats"
)

// maxDepth is how deep archives in archives are followed.
const maxDepth = 3

// parsers returns each known format's parser once, in the order in which they are asked. depth is how many
// archives the bytes lie in, and memory what a parser may take; 0: no bound but its own.
func parsers(depth int, memory int64) []formats.Parser {
	var all []formats.Parser
	for _, f := range table {
		switch p := f.Parser.(type) {
		case nil:
		case formats.Bounded:
			all = append(all, p.Bound(memory))
		case formats.Archive:
			if depth < maxDepth {
				within := parsers(depth+1, memory)
				all = append(all, p.Within(func(r io.ReaderAt, size int64) (*formats.Layout, error) {
					return detect(within, r, size)
				}))
			}
		default:
			all = append(all, p)
		}
	}
	return all
}

// Detector finds layouts in so much memory as it is given.
type Detector struct {
	parsers []formats.Parser
	memory  int64
}

// New returns a Detector whose parsers take no more memory for a file than so many bytes; 0: no more than is
// their own bound.
func New(memory int64) *Detector { return &Detector{parsers(0, memory), memory} }

// Room reports whether a header of n bytes may be read at once, and something be made of it.
func (d *Detector) Room(n int64) bool { return d.memory == 0 || n <= d.memory/2 }

var top = New(0)

// Detect is Detector.Detect without a bound.
func Detect(r io.ReaderAt, size int64) (*formats.Layout, error) { return top.Detect(r, size) }

// Detect returns the layout of the size bytes of r, which passes Check. Its errors are r's alone.
func (d *Detector) Detect(r io.ReaderAt, size int64) (*formats.Layout, error) {
	return detect(d.parsers, r, size)
}

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

// parse runs one parser. A panic and a layout that fails Check are faults of the parser; its word is then not
// taken.
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

// Presume looks at the first and the last bytes of a file. as tells the layout that it has if most of it
// stood in an earlier file of a format that was one Blob: a model that has grown is long, and to parse it
// takes as long as to hash it. as is nil, or returns nil, where that cannot be said, and where parsing takes
// no time.
func Presume(r io.ReaderAt, size int64) (as func(format string) *formats.Layout, err error) {
	for _, f := range table {
		if f.Presume == nil {
			continue
		}
		if as, err = f.Presume(r, size); as != nil || err != nil {
			return as, err
		}
	}
	return nil, nil
}

// SniffLen is how long a prefix Sniff makes use of.
const SniffLen = 4096

// Sniff reports whether a file of size bytes that starts with prefix may be of a known format. It is quick
// and errs towards yes: a file that it says no to is none.
func Sniff(prefix []byte, size int64) bool {
	for _, f := range table {
		if f.Sniff != nil && f.Sniff(prefix, size) {
			return true
		}
	}
	return false
}
