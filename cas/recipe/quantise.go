package recipe

import (
	"math"
	"slices"

	"ckptfs/cas/quant"
)

// Quantise makes blocks of numbers of single precision. It is the last op.
type Quantise struct {
	// Quantiser is how. Its Scales' values stand behind a program that is to be encoded: 4 bytes each, little
	// endian. Where none do, but of FP8, they follow.
	Quantiser quant.Quantiser
	Head      int // bytes ahead of the first whole block
}

// quantiser is a machine's memory for that.
type quantiser struct {
	scales   []byte // what stands behind the program
	literals []byte
	of       quant.Streams
	slab     [quant.Slab]float32 // numbers, a few at a time
	blocks   []byte
}

func (Quantise) id() byte { return opQuantise }

func (o Quantise) append(dst []byte) []byte {
	q := &o.Quantiser
	dst = putUint(append(dst, byte(q.Format), q.Variant), o.Head)
	if q.Format.Apart() {
		dst = appendScales(dst, &q.Scales)
	}
	if q.Format.Ruled() {
		r := &q.Scales.Rule
		dst = le.AppendUint32(append(dst, byte(r.Kind)), math.Float32bits(r.Levels))
		dst = le.AppendUint32(dst, math.Float32bits(r.Global))
	}
	return dst
}

func appendScales(dst []byte, s *quant.Scales) []byte {
	dst = append(dst, byte(s.Type))
	for _, v := range []int{s.Rows, s.Cols, s.Tall, s.Wide, s.At} {
		dst = putUint(dst, v)
	}
	return dst
}

func (r *fields) scales(s *quant.Scales) {
	s.Type = quant.Type(r.byte())
	for _, to := range []*int{&s.Rows, &s.Cols, &s.Tall, &s.Wide, &s.At} {
		*to = r.uint(maxField)
	}
}

func (r *fields) quantise() (Op, error) {
	o := Quantise{Quantiser: quant.Quantiser{Format: quant.Format(r.byte()), Variant: r.byte()}}
	q := &o.Quantiser
	if o.Head = r.uint(MaxValue); r.bad {
		return nil, corrupt("a program that is cut short")
	}
	if !q.Format.Known() || int(q.Variant) >= q.Format.Variants() {
		return nil, newer("variant %d of quantised format %d", q.Variant, q.Format)
	}
	if q.Format.Apart() {
		r.scales(&q.Scales)
	}
	if q.Format.Ruled() {
		q.Scales.Rule = quant.Rule{Kind: quant.RuleKind(r.byte()), Levels: r.float(), Global: r.float()}
	}
	if r.bad {
		return nil, corrupt("a program that is cut short")
	}
	if _, size := q.Block(); o.Head >= max(size, 1) {
		return nil, corrupt("%d bytes ahead of blocks of %d", o.Head, size)
	}
	return o, nil
}

func (o Quantise) run(m *machine) error {
	q := o.Quantiser
	q.Aside = m.aside
	elems, size := q.Block()
	n := len(m.numbers)
	if m.is == widening {
		n = m.count
	}
	if !m.isWide() || elems == 0 || n%elems != 0 {
		return corrupt("%d numbers are no blocks of %v", n, q.Format)
	}
	total := n / elems * size
	tail := m.rawLen - o.Head - total
	if tail < 0 || tail >= size {
		return corrupt("%d bytes of %v in a chunk of %d", total, q.Format, m.rawLen)
	}
	if m.encodes || q.Format.Apart() {
		if err := m.widened(); err != nil {
			return err
		}
	}
	if m.encodes {
		return m.differ(&q, o.Head, total)
	}
	var err error
	if m.literals, err = m.read(m.literals, o.Head+tail); err != nil {
		return err
	}
	if len(m.literals) != o.Head+tail {
		return corrupt("%d bytes around the blocks, want %d", len(m.literals), o.Head+tail)
	}
	left := q.Bound(n)
	for i := range m.of {
		if m.of[i], err = m.read(m.of[i], left); err != nil {
			return err
		}
		left -= len(m.of[i])
	}
	out := m.blocks[:0]
	if m.last {
		out = slices.Grow(m.dst, m.rawLen)
	}
	out = append(out, m.literals[:o.Head]...)
	if m.is == widening {
		out, err = q.RestoreFrom(out, &m.of, n, m.slab[:], m.nextNumbers)
	} else {
		out, err = q.Restore(out, &m.of, m.numbers)
	}
	if err != nil {
		return err
	}
	out = append(out, m.literals[o.Head:]...)
	if m.numbers, m.typ = nil, Bytes1; m.last {
		m.is, m.dst = appended, out
	} else {
		m.is, m.value, m.blocks = narrower, out, out
	}
	return nil
}

// differ writes what a chunk has that does not follow.
func (m *machine) differ(q *quant.Quantiser, head, total int) error {
	if q.Format.Apart() && (q.Format.FP8() || len(m.scales) > 0) {
		q.Scales.Values = q.Scales.Values[:0]
		for p := m.scales; len(p) >= 4; p = p[4:] {
			q.Scales.Values = append(q.Scales.Values, math.Float32frombits(le.Uint32(p)))
		}
		if want := len(q.Scales.Groups(len(m.numbers))); len(q.Scales.Values) != want {
			return corrupt("%d scales, want %d", len(q.Scales.Values), want)
		}
	}
	m.literals = append(append(m.literals[:0], m.want[:head]...), m.want[head+total:]...)
	m.write(m.literals)
	if err := q.Differ(&m.of, m.want[head:head+total], m.numbers); err != nil {
		return err
	}
	for _, p := range m.of {
		m.write(p)
	}
	m.is, m.numbers = narrower, nil
	return nil
}
