package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"unicode/utf8"

	"ckptfs/formats"
)

// ErrUnsure: Find cannot tell, and Parse can.
var ErrUnsure = errors.New("safetensors: a header that has to be parsed")

// HeaderSize is the length in bytes of the header that the size bytes of r begin with, if they are a
// safetensors file; else 0.
func HeaderSize(r io.ReaderAt, size int64) int64 {
	var b [lenBytes]byte
	if size < lenBytes || formats.ReadFull(r, b[:], 0) != nil {
		return 0
	}
	if n := binary.LittleEndian.Uint64(b[:]); n <= MaxHeader && int64(n) <= size-lenBytes {
		return int64(n)
	}
	return 0
}

// Find returns the tensor whose name is accepts as the only one of a layout, which has the regions before it
// and of it, or nil. It takes no memory but for the header's bytes, and reads the whole header as strictly as
// Parse does: what Parse refuses it refuses with ErrNotFormat or ErrUnsure. ErrUnsure also when a name occurs
// twice.
func Find(r io.ReaderAt, size int64, is func(name []byte) bool) (*formats.Layout, error) {
	header, err := readHeader(r, size, MaxHeader)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(header) {
		return nil, reject("header: not UTF-8")
	}
	d := decoder{p: header}
	base := lenBytes + int64(len(header))
	data := uint64(size - base)
	found := table{dims: []int64{}}
	tensors := 0
	// The tensors lie one behind the other if what begins somewhere, and the end, is what ends somewhere, and
	// the beginning. Sums of hashes tell, which no file can forge without the seed.
	seed := maphash.MakeSeed()
	at := func(x uint64) uint64 { return maphash.Comparable(seed, x) }
	begins, ends := at(data), at(0)
	metadata := false
	err = d.object(func(key []byte) error {
		if string(key) == metadataKey {
			if metadata {
				return errors.New("duplicate field " + metadataKey)
			}
			metadata = true
			return d.metadata()
		}
		wanted, name := is(key), d.keep(key)
		e, err := d.entry()
		if err != nil {
			return err
		}
		if tensors++; tensors > maxTensors {
			return fmt.Errorf("more than %d tensors", maxTensors)
		}
		n, err := numBytes(e.shape, dtypes[e.dtype])
		if err != nil {
			return err
		}
		if e.end < e.start || e.end-e.start != n || e.end > data || n == 0 {
			return ErrUnsure // also of an empty one: whether it lies between two others is not seen
		}
		begins, ends = begins+at(e.start), ends+at(e.end)
		if wanted {
			found.add(name, &e)
		}
		return nil
	})
	switch d.space(); {
	case errors.Is(err, ErrUnsure):
		return nil, err
	case err != nil:
		return nil, reject("header: %v", err)
	case d.pos != len(d.p):
		return nil, reject("header: trailing characters")
	case begins != ends, len(found.rows) > 1:
		return nil, ErrUnsure
	case len(found.rows) == 0:
		return nil, nil
	}
	return layOutOne(&found, base)
}

// layOutOne is the layout of a file as far as the one tensor of t goes.
func layOutOne(t *table, base int64) (*formats.Layout, error) {
	r := &t.rows[0]
	x := formats.Tensor{Name: t.name(r), DType: dtypes[r.dtype], Shape: t.shape(r), Region: 1}
	if x.NumBytes() != int64(r.end-r.start) {
		return nil, ErrUnsure
	}
	return &formats.Layout{Format: Name, Tensors: []formats.Tensor{x}, Regions: []formats.Region{
		{Len: base, Kind: formats.Blob},
		{Off: base + int64(r.start), Len: int64(r.end - r.start), Kind: formats.Data},
	}}, nil
}
