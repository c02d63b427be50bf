package rans

import (
	"math/bits"

	"ckptfs/cas/simd"
)

// steps decodes steps of all states into dst, and returns the rest of dst.
func (d *Decoder) steps(dst []byte) ([]byte, error) {
	lanes := len(d.x)
	n := len(dst) / lanes
	if n == 0 || lanes == LeastLanes || !simd.Has(simd.NEON) {
		return dst, nil
	}
	kernel := decode16NEON
	switch lanes {
	case ManyLanes:
		kernel = decode64NEON
	case SomeLanes:
		kernel = decode32NEON
	}
	least := 2 * lanes // words that a step takes at most, in bytes
	rest := dst[n*lanes:]
	if len(d.words) >= least {
		left, used := kernel(&dst[0], n, &d.table[0], &d.x[0], &d.words[0], len(d.words), &expand[0])
		d.words = d.words[used:]
		dst, n = dst[(n-left)*lanes:], left
	}
	if n > 0 { // with zeros behind the words, of which it must take none
		clear(d.tail[copy(d.tail[:], d.words):])
		_, used := kernel(&dst[0], n, &d.table[0], &d.x[0], &d.tail[0], len(d.words)+least, &expand[0])
		if used > len(d.words) {
			return nil, errEnds
		}
		d.words = d.words[used:]
	}
	return rest, nil
}

// beyond is how many bytes ahead of what it puts a kernel may write. The states take them afterwards.
const beyond = 8

// steps puts steps of all states.
func (e *Encoder) steps(src []byte) {
	n := len(src) / len(e.x)
	if n == 0 || len(e.x) == LeastLanes || !simd.Has(simd.NEON) {
		e.stepsPortable(src)
		return
	}
	_ = e.buf[:e.at][2*len(src)+beyond-1] // the kernels check nothing
	kernel := encode16NEON
	switch len(e.x) {
	case ManyLanes:
		kernel = encode64NEON
	case SomeLanes:
		kernel = encode32NEON
	}
	e.at -= kernel(&e.buf[e.at-1], &src[len(src)-1], n, &e.codes[0], &e.x[0], &compress[0])
}

// expand has for each mask of four lanes what TBL needs to bring the next words to the lanes that are set,
// and zeros elsewhere. compress brings the words of those lanes to the end of 8 bytes.
var expand, compress = func() (expand [16 * 16]byte, compress [16 * 8]byte) {
	for i := range expand {
		expand[i] = 0x80
	}
	for mask := range 16 {
		k, to := byte(0), 8-2*bits.OnesCount(uint(mask))
		for i := range 4 {
			if mask>>i&1 != 0 {
				expand[16*mask+4*i], expand[16*mask+4*i+1] = 2*k, 2*k+1
				compress[8*mask+to], compress[8*mask+to+1] = byte(4*i), byte(4*i+1)
				k, to = k+1, to+2
			}
		}
	}
	return expand, compress
}()

// decode16NEON decodes so many steps of 16 bytes each, or fewer: it begins none when of the n bytes at words
// less than 32 are left, which is what a step reads and uses at most.
//
//go:noescape
func decode16NEON(dst *byte, steps int, t, x *uint32, words *byte, n int, expand *byte) (left, used int)

// encode16NEON codes steps times 16 bytes, of which the last is at src, and puts words up to the byte at
// last, so many bytes. It writes up to 8 bytes ahead of what it puts.
//
//go:noescape
func encode16NEON(last, src *byte, steps int, codes *uint64, x *uint32, compress *byte) (put int)

// decode32NEON decodes so many steps of 32 bytes each, or fewer: it begins none when of the n bytes at words
// less than 64 are left, which is what a step reads and uses at most.
//
//go:noescape
func decode32NEON(dst *byte, steps int, t, x *uint32, words *byte, n int, expand *byte) (left, used int)

// encode32NEON codes steps times 32 bytes, of which the last is at src, and puts words up to the byte at
// last, so many bytes. It writes up to 8 bytes ahead of what it puts.
//
//go:noescape
func encode32NEON(last, src *byte, steps int, codes *uint64, x *uint32, compress *byte) (put int)

// decode64NEON decodes so many steps of 64 bytes each, or fewer: it begins none when of the n bytes at words
// less than 128 are left, which is what a step reads and uses at most.
//
//go:noescape
func decode64NEON(dst *byte, steps int, t, x *uint32, words *byte, n int, expand *byte) (left, used int)

// encode64NEON codes steps times 64 bytes, of which the last is at src, and puts words up to the byte at
// last, so many bytes. It writes up to 8 bytes ahead of what it puts.
//
//go:noescape
func encode64NEON(last, src *byte, steps int, codes *uint64, x *uint32, compress *byte) (put int)
