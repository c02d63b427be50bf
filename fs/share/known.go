package share

import (
	"encoding/binary"
	"fmt"
	"math"

	"ckptfs/cas"
	"ckptfs/cas/document"
	"ckptfs/cas/remote/record"
)

// sum is the first 16 bytes of a BLAKE3.
type sum [16]byte

// known is what this store and the remote have in common of a name:
//
//	"CKN1"
//	look      16 bytes: of what the tree showed
//	content   16 bytes: of what the remote has
//	tips      number n, then n times: string writer, number version: the entries that the tree shows
type known struct {
	look, content sum
	tips          []record.Replaced
}

func (k *known) encode() []byte {
	p := append(append([]byte("CKN1"), k.look[:]...), k.content[:]...)
	p = binary.AppendUvarint(p, uint64(len(k.tips)))
	for _, t := range k.tips {
		p = append(binary.AppendUvarint(p, uint64(len(t.Writer))), t.Writer...)
		p = binary.AppendUvarint(p, uint64(t.Version))
	}
	return p
}

func decodeKnown(path string, p []byte) (*known, error) {
	r := &document.Reader{P: p, Of: fmt.Sprintf("what is known of %.200q", path)}
	k := &known{}
	r.Magic("CKN1")
	copy(k.look[:], r.Take(len(k.look)))
	copy(k.content[:], r.Take(len(k.content)))
	for range r.Count(2) {
		k.tips = append(k.tips, record.Replaced{Writer: record.Writer(r.String()), Version: r.Num()})
	}
	return k, r.End()
}

// contentOf is the sum of all that an entry says but whose it is and what it replaces. The time of a folder
// or a link is none of it: on each machine it is when a name came into the one, and when the other was made.
func contentOf(e *record.Entry) sum {
	mtime := e.MTime
	if e.Kind != record.KindFile {
		mtime = 0
	}
	p := fmt.Appendf(nil, "%d %o %d %q", e.Kind, e.Mode, mtime, e.Link)
	if f := e.File; f != nil {
		p = fmt.Appendf(p, " file %d %q %x", f.Size, f.Inline, f.Manifest)
	}
	for _, a := range e.Attrs {
		p = fmt.Appendf(p, " attr %q %q", a.Name, a.Value)
	}
	for _, m := range e.Metrics {
		p = fmt.Appendf(p, " metric %q %x", m.Name, math.Float64bits(m.Value))
	}
	return sumOf(p)
}

func sumOf(p []byte) sum {
	h := cas.Sum(p)
	return sum(h[:16])
}
