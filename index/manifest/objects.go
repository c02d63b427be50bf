package manifest

import (
	"iter"

	"ckptfs/cas"
	"ckptfs/formats"
)

// Spans lists the chunks of an object. get reads a record by its hash, as Store.Get does.
func (o Object) Spans(get func(h cas.Hash, buf []byte) ([]byte, error)) ([]Span, error) {
	if !o.List {
		return []Span{{Hash: o.Digest, Len: uint32(o.Len)}}, nil
	}
	p, err := get(o.Digest, nil)
	if err != nil {
		return nil, err
	}
	return DecodeList(p)
}

// Located yields the extents in file order, each with the offset in the file at which it begins.
func (m *Manifest) Located() iter.Seq2[int64, Extent] {
	return func(yield func(int64, Extent) bool) {
		var off int64
		for _, x := range m.Extents {
			if !yield(off, x) {
				return
			}
			off += x.Len
		}
	}
}

// WholeObjects are the objects that lie in the file as a whole, by the offset at which they begin.
func (m *Manifest) WholeObjects() map[int64]Object {
	at := make(map[int64]Object, len(m.Extents))
	for off, x := range m.Located() {
		if x.Object >= 0 && x.ObjOff == 0 && x.Len == m.Objects[x.Object].Len {
			at[off] = m.Objects[x.Object]
		}
	}
	return at
}

// Digests is the digest of each tensor's storage; zero for a tensor without bytes, and for one whose storage
// is not exactly one object.
func (m *Manifest) Digests() []cas.Hash {
	at := m.WholeObjects()
	out := make([]cas.Hash, len(m.Tensors))
	for i, t := range m.Tensors {
		if t.Region < 0 {
			continue
		}
		r := m.Regions[t.Region]
		if o := at[r.Off]; o.Len == r.Len {
			out[i] = o.Digest
		}
	}
	return out
}

// Hidden names the data of the file that no tensor lies in: the hash of its objects' digests, in file order.
func (m *Manifest) Hidden() cas.Hash {
	shown := make([]bool, len(m.Regions))
	for i := range m.Tensors {
		if r := m.Tensors[i].Region; r >= 0 {
			shown[r] = true
		}
	}
	var all []byte
	r := 0
	for off, x := range m.Located() {
		for off >= m.Regions[r].Off+m.Regions[r].Len && r+1 < len(m.Regions) {
			r++
		}
		if x.Object >= 0 && m.Regions[r].Kind == formats.Data && !shown[r] {
			all = append(all, m.Objects[x.Object].Digest[:]...)
		}
	}
	return cas.Sum(all)
}

// Lists names the lists of the objects, each once, in their order.
func (m *Manifest) Lists() (lists []cas.Hash) {
	seen := map[cas.Hash]bool{}
	for _, o := range m.Objects {
		if o.List && !seen[o.Digest] {
			seen[o.Digest] = true
			lists = append(lists, o.Digest)
		}
	}
	return lists
}

// Chunks lists the chunks of the objects, each once, in the order in which the objects and their lists first
// name them. get is as for Spans.
func (m *Manifest) Chunks(get func(h cas.Hash, buf []byte) ([]byte, error)) (chunks []Span, err error) {
	seen, read := map[cas.Hash]bool{}, map[cas.Hash]bool{}
	for _, o := range m.Objects {
		if read[o.Digest] {
			continue
		}
		read[o.Digest] = true
		spans, err := o.Spans(get)
		if err != nil {
			return nil, err
		}
		for _, s := range spans {
			if !seen[s.Hash] {
				seen[s.Hash] = true
				chunks = append(chunks, s)
			}
		}
	}
	return chunks, nil
}
