package safetensors

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"ckptfs/formats"
)

// Pair is one string of a file's metadata.
type Pair struct{ Key, Value string }

// maxPairs bounds how many strings metadata may have that are kept.
const maxPairs = 1 << 16

// Metadata is what __metadata__ of the size bytes of r says, in the order of the header. nil: the header has
// none. A key that occurs twice is there twice. What Parse refuses may be accepted here.
func Metadata(r io.ReaderAt, size int64) ([]Pair, error) {
	header, err := readHeader(r, size, MaxHeader)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(header) {
		return nil, reject("header: not UTF-8")
	}
	var out []Pair
	d := decoder{p: header}
	err = d.object(func(key []byte) error {
		if string(key) != metadataKey || d.peek() == 'n' {
			return d.skip()
		}
		out = []Pair{}
		return d.object(func(key []byte) error {
			k := string(key)
			v, err := d.string()
			if err == nil && len(out) == maxPairs {
				err = errors.New("too many strings of metadata")
			}
			out = append(out, Pair{k, string(v)})
			return err
		})
	})
	if err != nil {
		return nil, reject("header: %v", err)
	}
	return out, nil
}

// SortSaved orders entries as the crate's serialize does, and with it save_file of all bindings: by type, the
// ones that come last in the specification first, then by name.
func SortSaved(entries []Entry) { slices.SortFunc(entries, CompareSaved) }

// CompareSaved is the order of SortSaved.
func CompareSaved(a, b Entry) int {
	return cmp.Or(cmp.Compare(rank(b.DType), rank(a.DType)), strings.Compare(a.Name, b.Name))
}

func rank(d formats.DType) int { return slices.Index(dtypes, d) }

// AppendSaved is AppendHeader for entries in any order, and for metadata in its order. nil: no metadata;
// what is empty but not nil is written as an empty object, as the crate writes it. Names must be distinct.
func AppendSaved(dst []byte, entries []Entry, metadata []Pair) ([]byte, error) {
	return appendHeader(dst, entries, metadata)
}
