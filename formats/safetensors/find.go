package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
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
	header, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(header) {
		return nil, reject("header: not UTF-8")
	}
	d := decoder{p: header, shaped: make([]uint64, 0, 8)}
	base := lenBytes + int64(len(header))
	data := uint64(size - base)
	var found []entry
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
		wanted, name := is(key), ""
		if wanted {
			name = string(key)
		}
		e, err := d.entry()
		if err != nil {
			return err
		}
		if tensors++; tensors > maxTensors {
			return fmt.Errorf("more than %d tensors", maxTensors)
		}
		n, err := e.numBytes()
		if err != nil {
			return err
		}
		if e.end < e.start || e.end-e.start != n || e.end > data || n == 0 {
			return ErrUnsure // also of an empty one: whether it lies between two others is not seen
		}
		begins, ends = begins+at(e.start), ends+at(e.end)
		if wanted {
			e.name, e.shape = name, slices.Clone(e.shape)
			found = append(found, e)
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
	case begins != ends, len(found) > 1:
		return nil, ErrUnsure
	case len(found) == 0:
		return nil, nil
	}
	return layOutOne(&found[0], base)
}

// layOutOne is the layout of a file as far as one of its tensors goes.
func layOutOne(e *entry, base int64) (*formats.Layout, error) {
	t := formats.Tensor{Name: e.name, DType: e.dtype, Shape: make([]int64, len(e.shape)), Region: 1}
	for k, n := range e.shape {
		t.Shape[k] = int64(n)
	}
	if t.NumBytes() != int64(e.end-e.start) {
		return nil, ErrUnsure
	}
	return &formats.Layout{Format: Name, Tensors: []formats.Tensor{t}, Regions: []formats.Region{
		{Len: base, Kind: formats.Blob},
		{Off: base + int64(e.start), Len: int64(e.end - e.start), Kind: formats.Data},
	}}, nil
}
