package quant

import "bytes"

// A correction is of codes. Where it is sparse a bit of maskStream for each part says whether it has codes
// that are corrected; else all have.
type correction struct {
	sparse bool
	none   bool // nothing is corrected
	counts bool // nothing is written: codes is all that is wanted
	at     int  // the next part
	parts  int  // how many have any that is corrected
	codes  int  // how many codes are
}

// correctionOf is what streams have.
func correctionOf(s *Streams) correction {
	k := correction{sparse: len(s[maskStream]) > 0, none: true}
	for _, p := range s[maskStream:] {
		k.none = k.none && len(p) == 0
	}
	return k
}

// done reports whether the mask is as long as so many parts need, and ends in zeros.
func (k *correction) done(c *coder, parts int) bool {
	mask := c.s[maskStream]
	c.at[maskStream] = len(mask)
	return len(mask) == 0 || len(mask) == (parts+7)/8 && (parts%8 == 0 || mask[parts/8]>>(parts%8) == 0)
}

// next reports whether the next part has any: where it is written, has says so.
func (k *correction) next(c *coder, has bool) bool {
	at := k.at
	k.at++
	switch {
	case !k.sparse:
		return true
	case c.reads:
		mask := c.s[maskStream]
		if at/8 >= len(mask) {
			c.wrong = true
			return false
		}
		return mask[at/8]>>(at%8)&1 != 0
	}
	if at%8 == 0 {
		c.s[maskStream] = append(c.s[maskStream], 0)
	}
	if has {
		c.s[maskStream][at/8] |= 1 << (at % 8)
	}
	return has
}

// correct takes the codes of block i of a slab, which p predicts: those of block, or where c reads those
// that it makes of p, which it changes.
func (q *Quantiser) correct(c *coder, k *correction, p, block []byte, x []float32, f *factors, i int) {
	shape := &shapes[q.Format]
	parts := shape.elems / shape.sub
	if !c.reads && k.sparse && bytes.Equal(p, block) {
		for range parts {
			k.next(c, false)
		}
		return
	}
	var predicted, codes [256]byte
	q.Format.unpack(predicted[:shape.elems], p)
	if codes = predicted; !c.reads {
		q.Format.unpack(codes[:shape.elems], block)
	}
	any := false
	for j := range parts {
		from, to := j*shape.sub, (j+1)*shape.sub
		has := !bytes.Equal(predicted[from:to], codes[from:to])
		if has {
			k.parts++
		}
		if !k.next(c, has) {
			continue
		}
		if k.counts {
			k.codes += differing(predicted[from:to], codes[from:to])
			continue
		}
		any = true
		a, b := f.a[i*parts+j], f.b[i*parts+j]
		for l := from; l < to; l++ {
			group, up := q.distance(q.unrounded(x[l], a, b), predicted[l])
			if codes[l] != predicted[l] {
				k.codes++
			}
			codes[l], _ = c.field(codeStream+group, codes[l], predicted[l], shape.bits, up)
		}
	}
	if any && c.reads {
		q.Format.pack(block, codes[:shape.elems])
	}
}

// differing is how many bytes of a and b are not the same.
func differing(a, b []byte) (n int) {
	b = b[:len(a)]
	for i, v := range a {
		if v != b[i] {
			n++
		}
	}
	return n
}

// distance is the group of a code: how far what it was rounded from is from where the next code begins; and
// whether that is the one above.
func (q *Quantiser) distance(v float32, code byte) (group int, up bool) {
	switch q.Format {
	case Q4_K, Q5_K, Q2_K, Q6_K, Q3_K:
		lo, _ := q.Format.bounds()
		return groupOf(v - (float32(code) + lo))
	case Q8_0:
		return groupOf(v - float32(int8(code)))
	case IQ4_NL, IQ4_XS:
		return tableGroup(v, int(code), table[:])
	case MXFP4:
		if code&8 != 0 || code == 0 && v < 0 {
			v = -v
		}
		return tableGroup(v, int(code&7), twiceE2M1[:])
	}
	return groupOf(v - 0.5 - float32(code))
}

// tableGroup is groupOf for a number in a table of rising ones.
func tableGroup(v float32, i int, table []float32) (group int, up bool) {
	switch d := v - table[i]; {
	case d > 0 && i+1 < len(table):
		return groupOf(d / (table[i+1] - table[i]))
	case d < 0 && i > 0:
		return groupOf(d / (table[i] - table[i-1]))
	}
	return lastGroup, false
}

const lastGroup = codeGroups - 1

// groupOf is the group of what is off by d, in steps between codes.
func groupOf(d float32) (group int, up bool) {
	up = d > 0
	if !up {
		d = -d
	}
	switch d = 0.5 - d; {
	case !(d > -1.0/128): // also what is none
		return lastGroup, up
	case d < 1.0/64:
		return 0, up
	case d < 1.0/32:
		return 1, up
	case d < 1.0/16:
		return 2, up
	case d < 1.0/8:
		return 3, up
	case d < 1.0/4:
		return 4, up
	case d < 3.0/8:
		return 5, up
	}
	return 6, up
}
