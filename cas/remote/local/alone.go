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
type Alone struct {
	*Source
	hints map[cas.Hash]codec.Hint // of what is encoded again
}

var _ objects.Source = (*Alone)(nil)

// BeginAlone makes an Alone, which is to be closed.
func BeginAlone(s *Source) *Alone { return &Alone{Source: s, hints: map[cas.Hash]codec.Hint{}} }

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
		if r.Number > 0 || r.Bases != [2]int32{-1, -1} {
			if r, err = x.alone(r); err != nil {
				return 0, err
			}
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
func (x *Alone) alone(r objects.Record) (objects.Record, error) {
	raw, err := x.store.Get(r.Hash, nil)
	if err != nil {
		return r, &objects.LostError{Hash: r.Hash, Err: err}
	}
	var best []byte
	for i, hint := range hints {
		id, p := codec.Encode(nil, raw, hint)
		if i == 0 || len(p) < len(best) {
			best, r.Codec, x.hints[r.Hash] = p, id, hint
		}
	}
	r.Stored, r.CRC, r.XXH3 = uint32(len(best)), crc32.Checksum(best, castagnoli), cas.SumXXH3(raw)
	r.Number, r.Bases = 0, [2]int32{-1, -1}
	return r, nil
}

// Payload fills p with the payload of a record that Closure listed.
func (x *Alone) Payload(r *segment.Record, p []byte) error {
	hint, again := x.hints[r.Hash]
	if !again {
		return x.Source.Payload(r, p)
	}
	raw, err := x.store.Get(r.Hash, nil)
	if err != nil {
		return err
	}
	id, out := codec.Encode(p[:0], raw, hint)
	if id != r.Codec || len(out) != len(p) || crc32.Checksum(out, castagnoli) != r.CRC {
		return objects.ErrChanged
	}
	copy(p, out)
	return nil
}
