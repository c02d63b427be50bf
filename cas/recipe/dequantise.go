package recipe

import "ckptfs/cas/quant"

// Dequantise makes numbers of single precision of blocks, or of the codes of N elements and the scales behind
// them.
type Dequantise struct {
	Format quant.Format
	Scales quant.Scales // without Values; of FP8
	N      int          // elements; of FP8
}

func (Dequantise) id() byte { return opDequantise }

func (d Dequantise) append(dst []byte) []byte {
	dst = append(dst, byte(d.Format))
	if d.Format.FP8() {
		dst = putUint(appendScales(dst, &d.Scales), d.N)
	}
	return dst
}

func (r *fields) dequantise() (Op, error) {
	d := Dequantise{Format: quant.Format(r.byte())}
	if r.bad {
		return nil, corrupt("a program that is cut short")
	}
	if !d.Format.Known() || d.Format >= quant.NF4 {
		return nil, newer("quantised format %d", d.Format)
	}
	if d.Format.FP8() {
		r.scales(&d.Scales)
		d.N = r.uint(MaxValue / 4)
	}
	return d, nil
}

func (d Dequantise) run(m *machine) error {
	q := quant.Quantiser{Format: d.Format, Scales: d.Scales}
	if m.isWide() || m.typ != Bytes1 {
		return corrupt("elements of type %d are dequantised", m.typ)
	}
	if err := m.elements(); err != nil {
		return err
	}
	blocks, n := m.value, d.N
	if d.Format.FP8() {
		count, err := q.Scales.Count(n)
		if err != nil {
			return err
		}
		if n > len(blocks) || count != (len(blocks)-n)/q.Scales.Type.Size() ||
			(len(blocks)-n)%q.Scales.Type.Size() != 0 {
			return corrupt("%d elements and %d scales in %d bytes", n, count, len(blocks))
		}
		m.factors = q.Scales.Type.Append(m.factors[:0], blocks[n:])
		q.Scales.Values, blocks = m.factors, blocks[:n]
	} else {
		elems, size := d.Format.Block()
		if n = len(blocks) / size * elems; len(blocks)%size != 0 || n > MaxValue/4 {
			return corrupt("%d bytes are no blocks of %v, or too many", len(blocks), d.Format)
		}
	}
	m.numbers = m.wideRoom(n)
	m.is, m.value = wide, nil
	return q.Dequantise(m.numbers, blocks)
}
