package lineage

import (
	"encoding/binary"
	"fmt"
	"math"

	"ckptfs/cas"
	"ckptfs/cas/document"
)

const (
	magicModel  = "CKN1"
	magicOwners = "CKO1"

	flagRetired = 8
)

// Encode is the record of m.
func (m *Model) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	flags := byte(m.How)
	if m.RetiredAt != 0 {
		flags |= flagRetired
	}
	p := append([]byte(magicModel), flags)
	back := func(seq uint64) { p = binary.AppendUvarint(p, m.Seq-seq) }
	if m.Parent == 0 {
		p = append(p, 0)
	} else {
		back(m.Parent)
	}
	p = binary.AppendUvarint(p, uint64(len(m.MergedFrom)))
	for _, s := range m.MergedFrom {
		back(s)
	}
	if m.RetiredAt != 0 {
		p = binary.LittleEndian.AppendUint64(p, uint64(m.RetiredAt))
	}
	p = binary.AppendUvarint(p, uint64(len(m.Owned)))
	last := uint64(0)
	for _, s := range m.Owned {
		p = binary.AppendUvarint(p, s.Owner-last)
		p = binary.AppendUvarint(p, uint64(s.Tensors))
		p = binary.AppendUvarint(p, uint64(s.Bytes))
		last = s.Owner
	}
	return p, nil
}

// DecodeModel reads what Encode wrote for the model of a number, and nothing else. The error wraps
// cas.ErrCorrupt, or cas.ErrNewer for a later version. It takes at most 16 bytes of memory for each of p.
func DecodeModel(seq uint64, p []byte) (Model, error) {
	d := document.Reader{P: p, Of: "lineage"}
	m := Model{Seq: seq}
	d.Magic(magicModel)
	flags := d.Byte()
	m.How = How(flags & 7)
	if flags > 15 || seq > math.MaxInt64 {
		d.Fail("flags %#x", flags)
	}
	back := func() uint64 {
		n := uint64(d.Num())
		if n >= seq {
			d.Fail("model %d before %d", n, seq)
			return 0
		}
		return seq - n
	}
	if p := back(); p != seq {
		m.Parent = p
	}
	if n := d.Count(1); n > 0 {
		m.MergedFrom = make([]uint64, n)
		for i := range m.MergedFrom {
			m.MergedFrom[i] = back()
		}
	}
	if flags&flagRetired != 0 {
		if q := d.Take(8); q != nil {
			m.RetiredAt = int64(binary.LittleEndian.Uint64(q))
		}
		if m.RetiredAt == 0 {
			d.Fail("retired at 0")
		}
	}
	if n := d.Count(3); n > 0 {
		m.Owned = make([]Share, n)
		last := uint64(0)
		for i := range m.Owned {
			last += uint64(d.Num())
			m.Owned[i] = Share{last, d.Num(), d.Num()}
		}
	}
	if err := d.End(); err != nil {
		return Model{}, err
	}
	if err := m.check(); err != nil {
		return Model{}, fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	return m, nil
}

// EncodeOwners is the record of the owners of a model's tensors.
func EncodeOwners(seq uint64, owners []uint64) []byte {
	var runs []byte
	n := uint64(0)
	for i := 0; i < len(owners); {
		j := i + 1
		for j < len(owners) && owners[j] == owners[i] {
			j++
		}
		runs = binary.AppendUvarint(runs, uint64(j-i))
		runs = binary.AppendUvarint(runs, seq-owners[i])
		n++
		i = j
	}
	return append(binary.AppendUvarint([]byte(magicOwners), n), runs...)
}

// DecodeOwners reads what EncodeOwners wrote for a model with that many tensors, and nothing else. Errors are
// as DecodeModel's. It takes 8 bytes of memory for each tensor, and none before the record is seen to be of
// so many.
func DecodeOwners(seq uint64, tensors int, p []byte) ([]uint64, error) {
	d := document.Reader{P: p, Of: "lineage"}
	d.Magic(magicOwners)
	n := d.Count(2)
	body := d.P
	sum, last := uint64(0), seq+1
	run := func() (uint64, uint64) {
		count, back := uint64(d.Num()), uint64(d.Num())
		if count == 0 || count > uint64(tensors) || back >= seq {
			d.Fail("run of %d, owner %d before %d", count, back, seq)
			return 0, 0
		}
		return count, seq - back
	}
	for range n {
		count, owner := run()
		if owner == last {
			d.Fail("two runs of owner %d", owner)
		}
		sum += count
		if last = owner; sum > uint64(tensors) {
			break
		}
	}
	if sum != uint64(tensors) {
		d.Fail("%d tensors, want %d", sum, tensors)
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	out := make([]uint64, 0, tensors)
	d.P = body
	for range n {
		count, owner := run()
		for range count {
			out = append(out, owner)
		}
	}
	return out, nil
}
