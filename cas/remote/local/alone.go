package local

import (
	"hash/crc32"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/segment"
)

// Alone is a Source of files whose records are all stored alone: what the store has as differences is encoded
// again. Who reads one file of the remote then fetches nothing but that.
type Alone struct{ *Source }

var _ objects.Source = (*Alone)(nil)

// BeginAlone makes an Alone, which is to be closed.
func BeginAlone(s *Source) *Alone { return &Alone{s} }

// hints are what a record may be encoded as, of whose content nothing is known.
var hints = []codec.Hint{{DType: "BF16", Elem: 2}, {DType: "F32", Elem: 4}, {}}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Closure lists what decoding a file reads, in the order in which it is read.
func (x *Alone) Closure(h cas.Hash) (*objects.Closure, error) {
	all, err := x.Source.Closure(h)
	if err != nil {
		return nil, err
	}
	out := &objects.Closure{Size: all.Size}
	at := map[int32]int32{}
	add := func(i int32) (int32, error) {
		if n, done := at[i]; done {
			return n, nil
		}
		r := all.Records[i]
		if r.Number > 0 || len(r.Bases) > 0 {
			if r.Record, err = x.alone(r.Record, hints...); err != nil {
				return 0, err
			}
			r.Number, r.Bases = 0, nil
		}
		n := int32(len(out.Records))
		at[i] = n
		out.Records = append(out.Records, r)
		return n, nil
	}
	if out.Manifest, err = add(all.Manifest); err != nil {
		return nil, err
	}
	for _, l := range []struct {
		from []int32
		to   *[]int32
	}{{all.Lists, &out.Lists}, {all.Chunks, &out.Chunks}} {
		for _, i := range l.from {
			n, err := add(i)
			if err != nil {
				return nil, err
			}
			*l.to = append(*l.to, n)
		}
	}
	return out, nil
}

// alone is a record as it is stored alone.
func (x *Source) alone(r segment.Record, hints ...codec.Hint) (segment.Record, error) {
	raw, err := x.store.Get(r.Hash, nil)
	if err != nil {
		return r, &objects.LostError{Hash: r.Hash, Err: err}
	}
	var best []byte
	var as codec.Hint
	for i, hint := range hints {
		id, p := codec.Encode(nil, raw, hint)
		if i == 0 || len(p) < len(best) {
			best, r.Codec, as = p, id, hint
		}
	}
	r.Stored, r.CRC, r.XXH3 = uint32(len(best)), crc32.Checksum(best, castagnoli), cas.SumXXH3(raw)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hints[r.Hash] = as
	return r, nil
}

// hint is as what a record is encoded again; false: it is not.
func (x *Source) hint(h cas.Hash) (codec.Hint, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	hint, again := x.hints[h]
	return hint, again
}

// encoded fills p with the payload of a record that alone gave.
func (x *Source) encoded(r *segment.Record, p []byte, hint codec.Hint) error {
	raw, err := x.store.Get(r.Hash, nil)
	if err != nil {
		return err
	}
	id, out := codec.Encode(p[:0:len(p)], raw, hint) // what is behind p is not ours
	if id != r.Codec || len(out) != len(p) || crc32.Checksum(out, castagnoli) != r.CRC {
		return objects.ErrChanged
	}
	copy(p, out)
	return nil
}
