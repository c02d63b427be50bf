package codec

import (
	"bytes"
	"errors"
	"fmt"

	"ckptfs/cas"
)

// decodeTo appends n bytes to dst, which fill sets, under the rules of Codec.Decode. what names the codec in
// errors.
func decodeTo(dst []byte, n int, what string, fill func(dst []byte) error) ([]byte, error) {
	d, err := grow(dst, n)
	if err != nil {
		return dst, fmt.Errorf("%s: %w", what, err)
	}
	end := len(d) + n
	if err := fill(d[len(d):end:end]); err != nil {
		return dst, fmt.Errorf("%s: %w: %w", what, err, cas.ErrCorrupt)
	}
	return d[:end], nil
}

// slabs has decode take one slab after the other off stored, which holds rawLen bytes in elements of w bytes:
// each time the n bytes from at on. It returns what is left: the bytes that make no whole element.
func slabs(
	rawLen int, stored []byte, w int, decode func(at, n int, stored []byte) ([]byte, error),
) (tail []byte, err error) {
	at := 0
	for rawLen-at >= w {
		n := min((rawLen-at)/w, slabElems(w)) * w
		if stored, err = decode(at, n, stored); err != nil {
			return nil, err
		}
		at += n
	}
	if len(stored) != rawLen-at {
		return nil, fmt.Errorf("%d bytes at the end, want %d", len(stored), rawLen-at)
	}
	return stored, nil
}

// output is where decoded bytes go: p is set, or, to verify, compared.
type output struct {
	p      []byte
	verify bool
}

var errDiffers = errors.New("differs")

// next is where the n bytes from at on are written; nil where they are compared.
func (o output) next(at, n int) []byte {
	if o.verify {
		return nil
	}
	return o.p[at : at+n]
}

// tail sets or compares the end of p.
func (o output) tail(tail []byte) error {
	end := o.p[len(o.p)-len(tail):]
	if !o.verify {
		copy(end, tail)
	} else if !bytes.Equal(end, tail) {
		return errDiffers
	}
	return nil
}

// joiner makes bytes of planes.
type joiner interface {
	// join makes dst, the bytes from at on, of p.
	join(dst []byte, p *[8][]byte, at int)
	// same reports whether the first n bytes of want are what join makes of p.
	same(want []byte, p *[8][]byte, at int) (n int, ok bool)
}

// put has j make the n bytes from at on of the planes in s.bufs.
func (s *planeState) put(o output, at, n, w int, j joiner) error {
	dst := o.p[at : at+n]
	if !o.verify {
		j.join(dst, &s.bufs, at)
		return nil
	}
	i, ok := j.same(dst, &s.bufs, at)
	if !ok {
		return errDiffers
	}
	for ; i < n; i += len(s.block) { // a block stays in the nearest cache
		want := dst[i:min(i+len(s.block), n)]
		s.blockBufs = from(&s.bufs, w, i/w)
		if j.join(s.block[:len(want)], &s.blockBufs, at+i); !bytes.Equal(s.block[:len(want)], want) {
			return errDiffers
		}
	}
	return nil
}
