// Package codec turns the bytes of a chunk into the bytes that are stored, and back.
//
// Each stored record names its codec by one byte. The numbers are part of the store's format: what a number
// decodes to never changes, and a better encoding gets a new number.
//
//	0  raw      the bytes themselves
//	1  zstd     one Zstandard frame (RFC 8878): single segment, content size stated, no checksum or dictionary
//	2  planes   the bytes of numbers by significance, each kind coded by itself: see planesCodec
//	3  patch    text and structure, with a base as dictionary: see Patch
//	4  delta    the difference of numbers from a base: see Delta
//	5  rounded  numbers of half precision that are those of a base, rounded: see Rounded
//	6  low rank the difference of numbers from what a base and two factors predict: see LowRank
//	7  recipe   what a program makes of the numbers of other records: see package recipe
//
// To decode codecs 3 to 7 other records are needed, which the record names (package segment). They are no
// Codec, but have functions of their own.
package codec

import (
	"bytes"
	"fmt"
	"sync"

	"ckptfs/cas"
)

// Hint says what is known of the bytes. It may steer an encoder; decoders never need it.
type Hint struct {
	DType string // as in formats.DType; empty when unknown
	Elem  int    // bytes per element; 0 when unknown
}

// Codec is one encoding.
type Codec interface {
	ID() byte
	// Decode appends to dst the rawLen bytes that stored holds. It writes nothing past len(dst)+rawLen, takes
	// no more memory than that, and checks what sizes stored states before it takes any. Errors wrap
	// cas.ErrCorrupt, and cas.ErrTooLarge when rawLen is past cas.MaxChunk.
	Decode(dst, stored []byte, rawLen int) ([]byte, error)
}

// The numbers of the codecs that need no base.
const (
	Raw    byte = 0
	Zstd   byte = 1
	Planes byte = 2
)

var names = [...]string{Raw: "raw", Zstd: "zstd", Planes: "planes", Patch: "patch", Delta: "delta",
	Rounded: "rounded", LowRank: "low rank", Recipe: "recipe"}

// Recipe is the number of what package recipe makes.
const Recipe byte = 7

// Count is how many codecs there are: their numbers are below it.
const Count = uint8(len(names))

// Name is a codec's name, "" for one that there is not.
func Name(id byte) string {
	if id >= Count {
		return ""
	}
	return names[id]
}

// ByID finds a codec that needs no base. An unknown number is that of a newer version: cas.ErrNewer.
func ByID(id byte) (Codec, error) {
	switch id {
	case Raw:
		return rawCodec{}, nil
	case Zstd:
		return zstdCodec{}, nil
	case Planes:
		return planesCodec{}, nil
	}
	return nil, fmt.Errorf("codec %d: %w", id, cas.ErrNewer)
}

// Encode appends raw to dst in the encoding that suits it, and returns that encoding's number. An encoding is
// taken only when it saves 1/32 of the bytes at least: less would cost every reader time and gain next to
// nothing. What was encoded has been decoded again and compared.
func Encode(dst, raw []byte, h Hint) (id byte, out []byte) {
	if len(raw) < minLen {
		return Raw, append(dst, raw...)
	}
	if w, kind := numbers(h); kind != notNumbers {
		return encodeNumbers(dst, raw, h, w, kind)
	}
	if !looksRandom(raw) {
		out = zstdCodec{}.Encode(dst, raw, h)
		if pays(len(out)-len(dst), len(raw)) && verify(zstdCodec{}, out[len(dst):], raw) {
			return Zstd, out
		}
		dst = out[:len(dst)] // keeps what Encode may have grown
	}
	return Raw, append(dst, raw...)
}

// pays reports whether storing n bytes instead of raw ones is worth a reader's time.
func pays(n, raw int) bool { return n <= raw-raw/32 }

// Decode undoes Encode: it appends the rawLen bytes that stored holds under codec id to dst.
func Decode(dst []byte, id byte, stored []byte, rawLen int) ([]byte, error) {
	c, err := ByID(id)
	if err != nil {
		return dst, err
	}
	return c.Decode(dst, stored, rawLen)
}

// minLen is the length below which nothing is gained that the record's header does not outweigh.
const minLen = 64

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// verify decodes and compares. The encoder has had bugs that lose data (klauspost/compress issues 875 and
// 922), and once the raw copy of a file is gone the encoding is all there is.
func verify(c Codec, stored, raw []byte) bool {
	p := scratch.Get().(*[]byte)
	defer scratch.Put(p)
	got, err := c.Decode((*p)[:0], stored, len(raw))
	if err != nil {
		return false
	}
	*p = got
	return bytes.Equal(got, raw)
}

// grow returns dst with room for exactly n more bytes, and checks n.
func grow(dst []byte, n int) ([]byte, error) {
	if n < 0 || n > cas.MaxChunk {
		return dst, fmt.Errorf("%d bytes: %w", n, cas.ErrTooLarge)
	}
	if cap(dst)-len(dst) < n {
		d := make([]byte, len(dst), len(dst)+n)
		copy(d, dst)
		dst = d
	}
	return dst, nil
}
