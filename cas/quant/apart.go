package quant

import "bytes"

// differApart is differ for formats whose scales lie apart.
func (q *Quantiser) differApart(c *coder, blocks []byte, x []float32, k *correction) {
	switch q.Format {
	case ScalesOf:
		q.words(c, blocks, x, k)
		return
	case AWQ:
		q.differAWQ(c, blocks, x, k)
		return
	}
	scales := q.scales(c, x)
	guess, codes := make([]byte, len(x)), blocks
	if q.Format.nibbled() {
		codes = make([]byte, len(x))
		q.Format.unpackPairs(codes, blocks)
	}
	q.predictApart(guess, x, scales)
	q.correctApart(c, k, guess, codes, x, scales)
}

// restoreApart is restore for them.
func (q *Quantiser) restoreApart(c *coder, blocks []byte, x []float32, k *correction) {
	switch q.Format {
	case ScalesOf:
		q.words(c, blocks, x, k)
		return
	case AWQ:
		q.restoreAWQ(c, blocks, x, k)
		return
	}
	scales := q.scales(c, x)
	codes := blocks
	if q.Format.nibbled() {
		codes = make([]byte, len(x))
	}
	q.predictApart(codes, x, scales)
	q.correctApart(c, k, codes, codes, x, scales)
	if q.Format.nibbled() {
		q.Format.packPairs(blocks, codes)
	}
}

// predictApart sets codes, each in a byte, to those that follow from x.
func (q *Quantiser) predictApart(codes []byte, x []float32, scales []float32) {
	q.Scales.runs(len(x), func(from, to, group int) {
		if q.Format.FP8() {
			q.f8(codes[from:to], x[from:to], scales[group])
		} else {
			q.codes(codes[from:to], x[from:to], q.factor(scales[group]))
		}
	})
}

// codes are those of elements that share a factor.
func (q *Quantiser) codes(codes []byte, x []float32, s float32) {
	var some [256]float32
	for len(codes) > 0 {
		n := min(len(some), len(codes))
		v, to := some[:n], codes[:n]
		q.quotients(v, x[:n], s)
		switch q.Format {
		case NF4, FP4:
			tableOf(q.Format, q.Variant).all(to, v)
		case NVFP4, MXFP4Pairs:
			for i, v := range v {
				to[i] = e2m1Even(v)
			}
		default:
			lo, hi, zero := q.Format.whole()
			for i, v := range v {
				if v != v {
					v = 0
				}
				n := int32(bits(clamp(v, lo, hi)+magic)) - magicBits
				to[i] = byte(n + zero)
			}
		}
		codes, x = codes[n:], x[n:]
	}
}

// quotients sets v to what unrounded8 makes of x, or for tables to products.
func (q *Quantiser) quotients(v, x []float32, s float32) {
	x = x[:len(v)]
	switch {
	case q.Format == NF4 || q.Format == FP4 || q.Variant == Times || q.Variant == Times127:
		for i, x := range x {
			v[i] = float32(x * s)
		}
	case q.Variant == Divide:
		for i, x := range x {
			v[i] = x / s
		}
	default:
		for i, x := range x {
			v[i] = q.unrounded8(x, s)
		}
	}
}

// whole are the bounds of formats of whole numbers, and the code of 0.
func (f Format) whole() (lo, hi float32, zero int32) {
	switch f {
	case Int4:
		return -8, 7, 8
	case UInt8:
		return -128, 127, 128
	}
	return -128, 127, 0
}

// factor is what the elements of a group are divided by, or multiplied with.
func (q *Quantiser) factor(s float32) float32 {
	switch q.Format {
	case NF4, FP4:
		const least = 1e-38
		if s < least {
			s = least
		}
		return 1 / s
	case NVFP4:
		s /= q.Scales.Rule.Global
	}
	return q.factor8(s)
}

// nibbled reports whether two codes lie in a byte.
func (f Format) nibbled() bool { return shapes[f].elems == 2 }

// unpackPairs sets codes to those of p, two of each byte.
func (f Format) unpackPairs(codes, p []byte) {
	up := f.highFirst()
	for i, b := range p[:len(codes)/2] {
		codes[2*i], codes[2*i+1] = b>>up&15, b>>(4-up)&15
	}
}

// packPairs sets p to codes.
func (f Format) packPairs(p, codes []byte) {
	up := f.highFirst()
	for i := range p[:len(codes)/2] {
		p[i] = codes[2*i]<<up | codes[2*i+1]<<(4-up)
	}
}

// highFirst is how far the first of two codes is moved up.
func (f Format) highFirst() uint {
	if f == NF4 || f == FP4 {
		return 4
	}
	return 0
}

// correctApart is correct for these formats, of all codes: guess are those predicted.
func (q *Quantiser) correctApart(c *coder, k *correction, guess, codes []byte, x, scales []float32) {
	if c.reads && k.none {
		return
	}
	if k.counts {
		k.codes += differing(guess, codes)
		return
	}
	type stretch struct{ to, group int }
	var runs []stretch
	q.Scales.runs(len(x), func(_, to, group int) { runs = append(runs, stretch{to, group}) })
	shape := &shapes[q.Format]
	for from := 0; from < len(x); from += shape.sub {
		to := min(from+shape.sub, len(x))
		has := !c.reads && !bytes.Equal(guess[from:to], codes[from:to])
		if has {
			k.parts++
		}
		if !k.next(c, has) {
			continue
		}
		for i := from; i < to; i++ {
			for i >= runs[0].to {
				runs = runs[1:]
			}
			s := q.factor(scales[runs[0].group])
			group, up := q.distanceApart(x[i], s, guess[i])
			if codes[i] != guess[i] {
				k.codes++
			}
			codes[i], _ = c.field(codeStream+group, codes[i], guess[i], shape.bits, up)
		}
	}
}

// distanceApart is distance for these formats: of an element and its factor.
func (q *Quantiser) distanceApart(x, s float32, code byte) (group int, up bool) {
	switch q.Format {
	case NF4, FP4:
		t := tableOf(q.Format, q.Variant)
		return tableGroup(float32(x*s), int(t.place[code]), t.values[:])
	case NVFP4, MXFP4Pairs:
		v := q.unrounded8(x, s)
		if code&8 != 0 || v < 0 {
			v = -v
		}
		return tableGroup(2*v, int(code&7), twiceE2M1[:])
	case Int8, Int4, UInt8:
		_, _, zero := q.Format.whole()
		at := int32(code) - zero
		if q.Format == Int8 {
			at = int32(int8(code))
		}
		return groupOf(q.unrounded8(x, s) - float32(at))
	}
	return q.Format.distance8(q.unrounded8(x, s), code)
}

// e2m1Even is the code of the number of four bits that is nearest to v, of two as near that with the even
// code; the sign is that of v, and 0 has the sign of what became 0. It is how many of the bounds between
// magnitudes v's is above.
func e2m1Even(v float32) byte {
	m := bits(v) &^ (1 << 31)
	if m > 0xff<<23 {
		return 0
	}
	const t0, t1, t2, t3 = 0x3e800000, 0x3f3fffff, 0x3fa00000, 0x3fdfffff // 0.25, 0.75-, 1.25, 1.75-
	const t4, t5, t6 = 0x40200000, 0x405fffff, 0x40a00000                 // 2.5, 3.5-, 5
	n := (t0-m)>>31 + (t1-m)>>31 + (t2-m)>>31 + (t3-m)>>31 + (t4-m)>>31 + (t5-m)>>31 + (t6-m)>>31
	return byte(n | bits(v)>>28&8&-((0-m)>>31|m>>31))
}
