// Package quant has quantised numbers as a function of those that they were made from: what of a quantised
// tensor does not follow from its base is a small part of it.
//
// A format has blocks (Format.Block). A block has codes, one for each element, and scales. Parts of a block,
// of 32 elements, or 16 in Q2_K, Q3_K and Q6_K, have scales of their own. Let x be the numbers that the
// blocks were made from. From x alone, Restore predicts a block's scales. What they differ by is in streams.
// From x and the scales it predicts the codes. What they differ by is in streams as well, and mostly nothing
// is. Differ makes the streams. Any blocks come back, whatever x is.
//
// # Arithmetic
//
// All is IEEE 754 in single precision (binary32), each operation rounded by itself to the nearest, ties to
// even. rne is the nearest whole number, the even one of two; rna the nearest, the one of greater magnitude
// of two; trunc cuts off. f16 is rounding to binary16 (package half). clamp(v, a, b) is a where v is less, or
// no number. A part with an infinity or without a number somewhere counts as zeros where scales are
// predicted, and its codes are predicted as 0. Of a part, min and max are its least and greatest number
// (zeros are positive), first is the first one of its greatest magnitude. Integers are little-endian.
//
// # Blocks
//
// Formats, their elements and bytes, and where these are, in order. lo and hi are the low and high half of a
// byte; of a nibble array of 16 bytes byte j has the codes of the elements j (lo) and j+16 (hi).
//
//	Q8_0    32   34  d binary16; 32 codes, signed
//	Q4_0    32   18  d; nibbles
//	Q4_1    32   20  d, m binary16; nibbles
//	Q5_0    32   22  d; 4 bytes, whose bit j is the fifth bit of element j; nibbles
//	Q5_1    32   24  d, m; 4 bytes; nibbles
//	Q2_K   256   84  16 bytes: scale of a part lo, offset hi; 64 of codes, two bits each: of 128 elements in
//	                 32 bytes, byte l has those of l, l+32, l+64 and l+96, the lowest first; d, m
//	Q3_K   256  110  32 bytes: bit s of byte l is the third bit of element 32s+l; 64 as Q2_K; 12: sixteen
//	                 scales of six bits, 32 more than they are; d
//	Q4_K   256  144  d, m; 12: eight scales and offsets of six bits; 128: of 64 elements in 32 bytes, byte l
//	                 has l lo, l+32 hi
//	Q5_K   256  176  d, m; 12; 32: bit s of byte l is the fifth bit of element 32s+l; 128 as Q4_K
//	Q6_K   256  210  128: of 128 elements in 64 bytes, byte l has l lo, l+64 hi; 64: of 128 elements in 32
//	                 bytes, byte l has the upper two bits of l, l+32, l+64 and l+96, the lowest first; 16
//	                 scales, signed; d
//	IQ4_NL  32   18  d; nibbles
//	IQ4_XS 256  136  d; 2 bytes: the upper two bits of eight scales of six bits, 32 more than they are; 4:
//	                 their lower bits, two a byte, lo first; nibbles of each part
//	MXFP4   32   17  e; nibbles
//
// The scales of others lie elsewhere (Scales). They have a code a byte, or, in pairs, a byte for two elements
// that lie beside each other.
//
//	F8_E4M3, F8_E5M2, INT8, UINT8   a code each; of UINT8 128 more than it is
//	INT4, NVFP4, MXFP4 in pairs     pairs, the first lo; of INT4 8 more than they are
//	NF4, FP4                        pairs, the first hi
//	scales                          no codes: the scales of groups themselves, of a type
//	AWQ                             words of eight codes, of outputs that lie beside each other: bits 4k to
//	                                4k+3 have output 0, 2, 4, 6, 1, 3, 5, 7 for k = 0, 1, 2, …
//
// Twelve bytes s of six-bit fields are those of the parts 0 to 3, scales s[j] mod 64, offsets s[j+4] mod 64;
// and of the parts j from 4 on: scales s[j+4] mod 16 + 16 (s[j-4] / 64), offsets s[j+4] / 16 + 16 (s[j] /
// 64). Those of Q3_K: the low four bits of scale j are in s[j mod 8], lo before hi, the two others in s[8 + j
// mod 4] from bit 2(j/4) on.
//
// # Codes
//
// Of an element x, in a part with the scale sc, the offset mn:
//
//	Q4_K, Q5_K, Q2_K  clamp(rne((x + m mn) / (d sc)), 0, 15 or 31 or 3)
//	Q6_K, Q3_K        clamp(rne(x / (d sc)), -32 or -4, 31 or 3), and 32 or 4 more
//	Q8_0              clamp(rna(x id), -128, 127)
//	Q4_0, Q5_0        clamp(trunc(x id + 8.5 or 16.5), 0, 15 or 31)
//	Q4_1, Q5_1        clamp(trunc((x - m') id + 0.5), 0, 15 or 31)
//	IQ4_NL, IQ4_XS    the place in the table of 16 numbers (codes.go) of the one nearest to x * (1/d) or
//	                  x * (1/(d sc)), the greater of two: v - below < above - v is compared
//	MXFP4             the nearest of 0, 1, 2, 3, 4, 6, 8, 12 to |x| 2^(128-e), the lesser of two; 8 more for
//	                  a negative one other than 0
//	FP8               v below, clamped to 448 or 57344 of either sign, rounded to the type, ties to even; 0 of
//	                  what is no number
//	INT8, UINT8, INT4 clamp(rne(v), -128 or -8, 127 or 7); 0 of what is no number
//	NVFP4, MXFP4 in pairs  |v| rounded to 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even code; 8 more for a
//	                  negative v; 0 of 0 and of what is no number
//	NF4, FP4          the one of the 16 numbers of bitsandbytes (tables.go) that is nearest to x (1/s),
//	                  clamped to 1 of either sign, of two as near the lesser; s is at least 1e-38. Of what is
//	                  no number it is that of -1: code 0 of NF4, 11 of FP4. Of FP4 two codes stand for 0: the
//	                  lower one is what is a little less than 0, in variant 1 what is a little more
//	AWQ               clamp(rne(clamp(v, -16, 16)) + zero, 0, 15); rne is 0 of what is no number
//
// id is 1/d', or 0 where d' is 0. Where 1/d or 1/(d sc) would be 1/0 it is 0. d' and m' are, of the variants
// Plain and Fused, what d and m are rounded from (below); of Stored they are d and m, and where d is 0 all
// codes of Q4_0, Q5_0, Q4_1 and Q5_1 are 0. Of Fused, x id + c is rounded once. In Q2_K to Q6_K, where d sc
// is 0 the quantiser's search left codes behind: d sc is then (max - min(min, 0)) / q, m mn is -min(min, 0);
// of Q6_K and Q3_K it is first / -q; and where that is 0, codes are 0. q is in the next table.
//
// v is, by variant, of x and its scale s: 0 x/s; 1 bf16(x/s); 2 x (1/s); 3 bf16(x bf16(1/s)); 4 f16(x/s); 5,
// of whole numbers, x (127/s). bf16 is rounding to bfloat16. Of NVFP4 s is the scale divided by that of the
// scales (Rule.Global).
//
// AWQ has matrices of a row for each input, a column for each output. A group is Tall inputs of one output,
// and has a scale and a zero. These are given (Quantiser.Aside): of each row of groups that elements touch
// all scales, and behind them of each such row all zeros, in words as codes are. Each input i has a factor
// f(i), and each output o a factor g(o). v is r(r(r(x f(i)) / g(o)) / s), where r is nothing in variant 0,
// rounds to binary16 in 1, and to bfloat16 in 2.
//
// # Scales
//
// They are predicted as follows, each clamped to what its bits hold; q and n are of the format, rg = max -
// min(min, 0), lo = -min(min, 0), and d, m are those stored. 1/0 is 0 here.
//
//	Q4_K, Q5_K, Q2_K          d: f16(greatest rg / q / n); m: f16(greatest lo / n);
//	q 15, 31, 3, n 63, 63, 15 sc: rne(rg (1/(d q))), mn: rne(lo (1/m))
//	Q6_K, Q3_K, IQ4_XS        d: f16(first of the parts' firsts of greatest magnitude / (n q));
//	q 32, 4, 127, n 128 32 32 sc: rne(first * -(1/(d q))); where d is 0, of Q6_K and Q3_K the field 0
//	Q8_0                      d' = greatest magnitude / 127
//	Q4_0, Q5_0, IQ4_NL        d' = first / -8, -16, -127
//	Q4_1, Q5_1                d' = (max - min) / 15, 31; m' = min; d = f16(d'), m = f16(m')
//	MXFP4                     e: the exponent field of the greatest magnitude, less 2; 0 if that is less
//	FP8                       the greatest magnitude among the finite ones of x in the group, / 448 or 57344,
//	                          rounded to the type of the scales
//	others that lie elsewhere the same magnitude a, by a Rule
//
// # Numbers
//
// What blocks stand for (Dequantise) is, of a code c in a part with the scale sc, the offset mn:
//
//	Q4_K, Q5_K, Q2_K  (d sc) c - m mn
//	Q6_K, Q3_K        (d sc) (c - 32 or 4)
//	Q8_0, Q4_0, Q5_0  d c, signed, or d (c - 8 or 16)
//	Q4_1, Q5_1        d c + m
//	IQ4_NL, IQ4_XS    d or (d sc) times number c of the table
//	MXFP4             0, 1, 2, 3, 4, 6, 8 or 12 times 2^(e-128); the same from 8 on, negative but for 0
//	FP8               the number of the type times its scale, in single precision
//
// What is no number is 0x7fc00000.
//
// # Streams
//
// A number that differs from the predicted one by r is stored as 2r, or -2r-1 where r is negative.
// Differences of numbers of n bits are modulo 2^n, from -2^(n-1) on. Numbers of binary16 (bfloat16, binary32)
// count in the order of their values, -0 before 0.
//
//	 0     the low four bits of d's, then of m's difference, block by block; two in a byte, lo first
//	 1, 2  the next eight bits of d's, the upper four
//	 3, 4  the same of m's
//	 5     scales, but of Q6_K; e
//	 6-13  offsets: in stream 6 + what the scale of the same part is stored as, at most 7;
//	       scales of Q6_K: in stream 6 + g / 16, where g is the predicted scale p, or -1-p where that is
//	       negative
//	14     a bit for each part, from the lowest of a byte on: whether codes of it are corrected
//	15-22  corrections: codes, in stream 15 + group, of parts that are corrected
//
// Scales that lie elsewhere have their differences, byte by byte, in the streams 0 to 3 (0 and 1 where they
// have 16 bits, 0 where they have 8), the least significant first; those of 8 bits count as they are. Parts
// of such formats have 64 elements, at last fewer. AWQ has the factors of the inputs that its elements touch
// in the streams 0 and 1, those of all outputs in 2 and 3, as such differences of numbers of binary16 from 1:
// the lower byte of each, and the upper one. A stream without a byte is zeros, as many as needed. Every other
// one is exactly as long as needed. Where stream 14 is empty and a later one is not, all parts are corrected.
//
// The group of an element says how sure its code is. Let t be how far the number that was rounded (cut off:
// less a half) is from the one that the code stands for, in steps to the next code there, and f = 1/2 - |t|:
// group 0 is f < 1/64, then < 1/32, 1/16, 1/8, 1/4, 3/8, 6 the rest; 7 where f is -1/128 or less, or no
// number, or there is no next code. Where t is positive r is stored with its sign reversed. So 1 is one step
// to where the number is nearest to another code.
package quant

import (
	"bytes"
	"fmt"
	"slices"

	"ckptfs/cas"
)

// Quantiser makes blocks of numbers.
type Quantiser struct {
	Format  Format
	Variant uint8
	Scales  Scales // of formats whose scales lie elsewhere
	// Aside are, of AWQ, the scales of the groups that elements touch, group by group, and behind them their
	// zeros.
	Aside []byte

	made *channels // the factors that Differ found
}

func (q *Quantiser) check(n int) error {
	switch {
	case !q.Format.Known():
		return fmt.Errorf("%w: quantised format %d", cas.ErrNewer, q.Format)
	case q.Variant >= shapes[q.Format].variants:
		return fmt.Errorf("%w: variant %d of %v", cas.ErrNewer, q.Variant, q.Format)
	case q.Format.Apart():
		if err := q.Scales.check(n); err != nil {
			return err
		}
		if err := q.Scales.Rule.check(q.Scales.Type); err != nil && q.Format.Ruled() {
			return err
		}
		if q.Format.FP8() && q.Scales.Type > F16 {
			return fmt.Errorf("%w: scales of type %d of %v", cas.ErrNewer, q.Scales.Type, q.Format)
		}
		if q.Format == AWQ {
			if err := q.Scales.checkAWQ(n, q.Aside); err != nil {
				return err
			}
		}
		if q.Format == ScalesOf && !q.Scales.flat(n) {
			return fmt.Errorf("%w: %d numbers are no groups of %d", cas.ErrCorrupt, n, q.Scales.Wide)
		}
	}
	if elems, _ := q.Block(); n%elems != 0 {
		return fmt.Errorf("%w: %d numbers are no whole blocks of %v", cas.ErrCorrupt, n, q.Format)
	}
	return nil
}

// Block is how many elements a block has, and in how many bytes; 0, 0 where that is not known.
func (q *Quantiser) Block() (elems, bytes int) {
	if q.Format != ScalesOf {
		return q.Format.Block()
	}
	if q.Scales.Type >= types || q.Scales.Wide < 1 || q.Scales.Wide > maxSide {
		return 0, 0
	}
	return q.Scales.Wide, q.Scales.Type.size()
}

// Bound is the most bytes that the streams of n elements have, all together; 0 if there are none for so many.
func (q *Quantiser) Bound(n int) int {
	if q.check(n) != nil {
		return 0
	}
	s := &shapes[q.Format]
	if q.Format == AWQ {
		return q.Scales.boundAWQ(n)
	}
	if q.Format.Apart() {
		return 4*q.Scales.count(n) + n + n/s.sub + 1
	}
	return n/s.elems*(5+2*s.elems/s.sub) + n + n/s.sub + 1
}

// fits is the error of blocks that are not those of n elements, or of scales that are not.
func (q *Quantiser) fits(blocks []byte, n int) error {
	if elems, size := q.Block(); len(blocks) != n/elems*size {
		return fmt.Errorf("%w: %d bytes for %d numbers of %v", cas.ErrCorrupt, len(blocks), n, q.Format)
	}
	if q.Format == ScalesOf || q.Format == AWQ || q.Format.Ruled() && q.Scales.Values == nil {
		return nil
	}
	if q.Format.Apart() && len(q.Scales.Values) != q.Scales.count(n) {
		return fmt.Errorf("%w: %d scales for %d groups", cas.ErrCorrupt, len(q.Scales.Values), q.Scales.count(n))
	}
	return nil
}

// Differ sets s to what blocks differ by from what follows from x, of as many elements. It uses the memory of
// s again.
func (q *Quantiser) Differ(s *Streams, blocks []byte, x []float32) error {
	if err := q.check(len(x)); err != nil {
		return err
	}
	if err := q.fits(blocks, len(x)); err != nil {
		return err
	}
	q.made = nil
	sparse := correction{sparse: true}
	q.differ(s, blocks, x, &sparse)
	if parts := (len(x) + shapes[q.Format].sub - 1) / shapes[q.Format].sub; sparse.parts > parts/denseShare {
		q.differ(s, blocks, x, &correction{})
	}
	for i, p := range s {
		if len(bytes.TrimLeft(p, "\x00")) == 0 {
			s[i] = p[:0]
		}
	}
	return nil
}

// denseShare: if more than one in so many parts has a code that is corrected, which ones is not stored.
const denseShare = 8

func (q *Quantiser) differ(s *Streams, blocks []byte, x []float32, k *correction) {
	for i, p := range s {
		s[i] = p[:0]
	}
	c := coder{s: s}
	if q.Format.Apart() {
		q.differApart(&c, blocks, x, k)
		return
	}
	var guess [Slab * 34 / 32]byte
	var e extremes
	var f factors
	shape := &shapes[q.Format]
	for len(x) > 0 {
		n := min(Slab, len(x))
		size := n / shape.elems * shape.bytes
		p := guess[:size]
		copy(p, blocks)
		extremesOf(&e, x[:n], shape.sub)
		for i := range n / shape.elems {
			p := p[i*shape.bytes : (i+1)*shape.bytes]
			q.fields(&c, p, &e, &f, i, x[i*shape.elems:(i+1)*shape.elems])
		}
		q.predict(p, x[:n], &f)
		for i := range n / shape.elems {
			from, to := i*shape.bytes, (i+1)*shape.bytes
			q.correct(&c, k, p[from:to], blocks[from:to], x[i*shape.elems:(i+1)*shape.elems], &f, i)
		}
		x, blocks = x[n:], blocks[size:]
	}
}

// Restore appends the blocks that x and s stand for to dst. Streams that do not fit are cas.ErrCorrupt.
func (q *Quantiser) Restore(dst []byte, s *Streams, x []float32) ([]byte, error) {
	if q.Format.Apart() {
		return q.restored(dst, s, len(x), func(c *coder, blocks []byte, k *correction) error {
			q.restoreApart(c, blocks, x, k)
			return nil
		})
	}
	at := 0
	return q.RestoreFrom(dst, s, len(x), nil, func([]float32) ([]float32, error) {
		some := x[at:min(at+Slab, len(x))]
		at += len(some)
		return some, nil
	})
}

// RestoreFrom is Restore of n numbers that next gives, in order, as many at a time as slab has or, at last,
// are left; slab is what next may put them in. Of formats whose scales lie elsewhere it is not.
func (q *Quantiser) RestoreFrom(dst []byte, s *Streams, n int, slab []float32,
	next func(slab []float32) ([]float32, error)) ([]byte, error) {
	return q.restored(dst, s, n, func(c *coder, blocks []byte, k *correction) error {
		return q.restore(c, blocks, n, slab, next, k)
	})
}

// restored appends the blocks of n numbers that restore makes of streams.
func (q *Quantiser) restored(dst []byte, s *Streams, n int,
	restore func(c *coder, blocks []byte, k *correction) error) ([]byte, error) {
	if err := q.check(n); err != nil {
		return dst, err
	}
	shape := &shapes[q.Format]
	elems, size := q.Block()
	was, total := len(dst), n/elems*size
	out := slices.Grow(dst, total)[:was+total]
	c := coder{s: s, reads: true}
	k := correctionOf(s)
	if err := restore(&c, out[was:], &k); err != nil {
		return dst, err
	}
	if !k.done(&c, (n+shape.sub-1)/shape.sub) || !c.done() {
		return dst, fmt.Errorf("%w: streams of %v do not fit %d numbers", cas.ErrCorrupt, q.Format, n)
	}
	return out, nil
}

func (q *Quantiser) restore(c *coder, blocks []byte, n int, slab []float32,
	next func([]float32) ([]float32, error), k *correction) error {
	var e extremes
	var f factors
	shape := &shapes[q.Format]
	for at := 0; at < n; {
		x, err := next(slab[:min(len(slab), n-at)])
		if err != nil {
			return err
		}
		size := len(x) / shape.elems * shape.bytes
		extremesOf(&e, x, shape.sub)
		whole := (q.Format == Q4_K || q.Format == Q5_K) && q.restoreRanges(c, blocks, &e, &f, len(x)/256)
		for i := 0; i < len(x)/shape.elems && !whole; i++ {
			p := blocks[i*shape.bytes : (i+1)*shape.bytes]
			q.fields(c, p, &e, &f, i, x[i*shape.elems:(i+1)*shape.elems])
		}
		q.predict(blocks, x, &f)
		for i := 0; i < len(x)/shape.elems && !k.none; i++ {
			p := blocks[i*shape.bytes : (i+1)*shape.bytes]
			q.correct(c, k, p, p, x[i*shape.elems:(i+1)*shape.elems], &f, i)
		}
		at, blocks = at+len(x), blocks[size:]
	}
	return nil
}
