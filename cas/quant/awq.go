package quant

import (
	"bytes"
	"fmt"
	"math"

	"ckptfs/cas"
	"ckptfs/cas/half"
)

// The variants of AWQ: what products and quotients are rounded to.
const (
	Single   = 0 // nothing
	HalfF16  = 1 // binary16
	HalfBF16 = 2 // bfloat16
)

// lanes is how many codes a word of AWQ has.
const lanes = 8

// laneOf is which nibble of a word has the code of an output, of eight that lie beside each other.
var laneOf = [lanes]uint{0, 4, 1, 5, 2, 6, 3, 7}

// unpackLanes sets codes to those of words, in the order of outputs.
func unpackLanes(codes, words []byte) {
	for ; len(codes) >= lanes; codes, words = codes[lanes:], words[4:] {
		w := le.Uint32(words)
		for o, lane := range laneOf {
			codes[o] = byte(w>>(4*lane)) & 15
		}
	}
}

// packLanes sets words to codes.
func packLanes(words, codes []byte) {
	for ; len(codes) >= lanes; codes, words = codes[lanes:], words[4:] {
		c := (*[lanes]byte)(codes)
		// Two bytes of a word have outputs 0 and 2, 4 and 6; the others 1 and 3, 5 and 7.
		le.PutUint32(words, uint32(c[0])|uint32(c[2])<<4|uint32(c[4])<<8|uint32(c[6])<<12|
			uint32(c[1])<<16|uint32(c[3])<<20|uint32(c[5])<<24|uint32(c[7])<<28)
	}
}

// inputs are the first of the inputs that n elements touch, and how many they are.
func (g *Scales) inputs(n int) (first, count int) {
	first = g.At / g.Cols
	return first, (g.At+n-1)/g.Cols - first + 1
}

// AsideOf is from which group on n elements of AWQ touch groups, how many, and how many bytes the scales and
// the zeros of a group have.
func (g *Scales) AsideOf(n int) (first, count, scales, zeros int) {
	input, inputs := g.inputs(n)
	first = input / g.Tall
	return first, (input+inputs-1)/g.Tall - first + 1, g.Cols * g.Type.size(), g.Cols / 2
}

// checkAWQ is check, of n elements; aside is Quantiser.Aside.
func (g *Scales) checkAWQ(n int, aside []byte) error {
	if g.Type > F16 {
		return fmt.Errorf("%w: scales of type %d of %v", cas.ErrNewer, g.Type, AWQ)
	}
	if g.Tall == 0 || g.Wide != 1 || g.Cols%lanes != 0 || g.At%lanes != 0 {
		return fmt.Errorf("%w: %d by %d outputs in groups of %d by %d", cas.ErrCorrupt, g.Rows, g.Cols, g.Tall,
			g.Wide)
	}
	if n == 0 {
		return nil
	}
	if _, count, scales, zeros := g.AsideOf(n); len(aside) != count*(scales+zeros) {
		return fmt.Errorf("%w: %d bytes of scales and zeros, want %d", cas.ErrCorrupt, len(aside),
			count*(scales+zeros))
	}
	return nil
}

// boundAWQ is Quantiser.Bound.
func (g *Scales) boundAWQ(n int) int {
	if n == 0 {
		return 0
	}
	_, inputs := g.inputs(n)
	return 2*(inputs+g.Cols) + n + n/shapes[AWQ].sub + 1
}

// channels are the factors of AWQ.
type channels struct {
	inputs  []float32 // what the numbers of an input are multiplied by
	outputs []float32 // what those of an output are divided by then; nil: by nothing
}

// one is what factors differ from.
const one = 0x3c00 // in binary16

// channels takes the factors, or, where c reads, makes them.
func (q *Quantiser) channels(c *coder, n int, made *channels) channels {
	_, inputs := q.Scales.inputs(n)
	all := func(stream, n int, made []float32) []float32 {
		to := make([]float32, n)
		for i := range to {
			var v uint32 = one
			if made != nil {
				v = uint32(f16(made[i]))
			}
			to[i] = half.FromF16(uint16(c.word(stream, v, one, 2)))
		}
		return to
	}
	if made == nil {
		made = &channels{}
	}
	ch := channels{inputs: all(factorStream, inputs, made.inputs)}
	const outputs = factorStream + 2
	if made.outputs != nil || c.reads && len(c.s[outputs])+len(c.s[outputs+1]) > 0 {
		ch.outputs = all(outputs, q.Scales.Cols, made.outputs)
	}
	return ch
}

// A row is elements of one input, one behind the other: which elements, whose input and outputs, and the
// scales and the zeros of these.
type row struct {
	from, to      int
	input, output int // counted from the first input that is touched
	scales        []float32
	zeros         []byte
	of            *side
}

// side are the scales and zeros of a row of groups.
type side struct {
	scales  []float32
	zeros   []byte
	inverse []float32 // while factors are looked for: 1 / what scales are, or their products with factors
}

// rows calls f with the rows of n elements.
func (q *Quantiser) rows(n int, f func(r *row)) {
	if n == 0 {
		return
	}
	g := &q.Scales
	first, count, size, _ := g.AsideOf(n)
	input, _ := g.inputs(n)
	var of *side
	group := -1
	for from := 0; from < n; {
		at := g.At + from
		r := row{from: from, input: at/g.Cols - input, output: at % g.Cols}
		r.to = min(n, from+g.Cols-r.output)
		if k := at/g.Cols/g.Tall - first; k != group {
			group = k
			of = &side{scales: make([]float32, 0, g.Cols), zeros: make([]byte, g.Cols)}
			of.scales = g.Type.Append(of.scales, q.Aside[k*size:(k+1)*size])
			unpackLanes(of.zeros, q.Aside[count*size+k*g.Cols/2:])
		}
		m := r.output + r.to - from
		r.of, r.scales, r.zeros = of, of.scales[r.output:m], of.zeros[r.output:m]
		f(&r)
		from = r.to
	}
}

// asF16 rounds to binary16.
func asF16(x float32) float32 {
	const sign = 1 << 31
	m := bits(x) &^ sign
	switch {
	case m >= 0x477ff000: // half way to 65536 or more, or no number
		if m <= 0xff<<23 {
			m = 0xff << 23
		}
	case m < 0x38800000: // 2^-14: counted in steps of 2^-24
		m = bits((math.Float32frombits(m) + 0.5) - 0.5)
	default:
		m = (m + 0xfff + m>>13&1) &^ 0x1fff
	}
	return math.Float32frombits(bits(x)&sign | m)
}

// unroundedAWQ is what the code of a number is rounded from, less its zero: s is its input's factor, t its
// output's, a its scale.
func unroundedAWQ(variant uint8, x, s, t, a float32) float32 {
	switch variant {
	case HalfF16:
		return asF16(asF16(asF16(float32(x*s))/t) / a)
	case HalfBF16:
		return toBF16(toBF16(toBF16(float32(x*s))/t) / a)
	}
	return float32(x*s) / t / a
}

// wholeAWQ is the code of a number that was not rounded. Of numbers that are too large or too small the bits
// are so, too.
func wholeAWQ(v float32, zero byte) byte {
	if v != v {
		v = 0
	}
	n := int64(int32(bits(v+magic))) - magicBits + int64(zero)
	return byte(min(max(n, 0), 15))
}

// normalF16 is asF16 but for numbers that are too small or too large for it, of which ok is false.
func normalF16(x float32) (_ float32, ok bool) {
	const least, over = 0x38800000, 0x477ff000
	u := bits(x)
	return math.Float32frombits((u + 0xfff + u>>13&1) &^ 0x1fff), u<<1>>1-least < over-least
}

// predictPortable sets codes to those that follow from the numbers of a row; t are the factors of outputs,
// nil: 1.
func (r *row) predictPortable(variant uint8, codes []byte, x []float32, s float32, t []float32) {
	x, a, z := x[:len(codes)], r.scales[:len(codes)], r.zeros[:len(codes)]
	switch {
	case t == nil && variant == HalfF16:
		for i, x := range x {
			y, ok := normalF16(float32(x * s))
			if !ok {
				y = asF16(float32(x * s))
			}
			y /= a[i]
			v, ok := normalF16(y)
			if !ok {
				v = asF16(y)
			}
			codes[i] = wholeAWQ(v, z[i])
		}
	case t == nil:
		for i, x := range x {
			codes[i] = wholeAWQ(unroundedAWQ(variant, x, s, 1, a[i]), z[i])
		}
	default:
		t = t[r.output:][:len(codes)]
		for i, x := range x {
			codes[i] = wholeAWQ(unroundedAWQ(variant, x, s, t[i], a[i]), z[i])
		}
	}
}

// predictAWQ sets codes to those that follow.
func (q *Quantiser) predictAWQ(codes []byte, x []float32, ch *channels) {
	q.rows(len(x), func(r *row) {
		r.predict(q.Variant, codes[r.from:r.to], x[r.from:r.to], ch.inputs[r.input], ch.outputs)
	})
}

// differAWQ is differ. The factors are looked for once for all coders.
func (q *Quantiser) differAWQ(c *coder, blocks []byte, x []float32, k *correction) {
	if len(x) == 0 {
		return
	}
	codes, guess := make([]byte, len(x)), make([]byte, len(x))
	unpackLanes(codes, blocks)
	if q.made == nil {
		q.made = q.fit(codes, x)
	}
	ch := q.channels(c, len(x), q.made)
	q.predictAWQ(guess, x, &ch)
	if k.counts {
		k.codes += differing(guess, codes)
		return
	}
	q.correctAWQ(c, k, guess, codes, x, &ch)
}

// restoreAWQ is restore.
func (q *Quantiser) restoreAWQ(c *coder, blocks []byte, x []float32, k *correction) {
	if len(x) == 0 {
		return
	}
	ch := q.channels(c, len(x), nil)
	codes := make([]byte, len(x))
	q.predictAWQ(codes, x, &ch)
	if !k.none {
		q.correctAWQ(c, k, codes, codes, x, &ch)
	}
	packLanes(blocks, codes)
}

// correctAWQ is correctApart: guess are the codes that follow.
func (q *Quantiser) correctAWQ(c *coder, k *correction, guess, codes []byte, x []float32, ch *channels) {
	sub := shapes[q.Format].sub
	next, has := 0, false // the first element of the next part, and whether this one is corrected
	q.rows(len(x), func(r *row) {
		for i := r.from; i < r.to; i++ {
			if i == next {
				next = min(i+sub, len(x))
				is := !c.reads && !bytes.Equal(guess[i:next], codes[i:next])
				if is {
					k.parts++
				}
				has = k.next(c, is)
			}
			if !has {
				continue
			}
			o, t := i-r.from, float32(1)
			if ch.outputs != nil {
				t = ch.outputs[r.output+o]
			}
			v := unroundedAWQ(q.Variant, x[i], ch.inputs[r.input], t, r.scales[o])
			group, up := groupOf(v - float32(int32(guess[i])-int32(r.zeros[o])))
			if codes[i] != guess[i] {
				k.codes++
			}
			codes[i], _ = c.field(codeStream+group, codes[i], guess[i], 4, up)
		}
	})
}
