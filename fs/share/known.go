package share

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

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
//	next      to the end: nothing, or content and tips of what the tree was about to get. It has that, unless
//	          a crash came before
//
// What was not there before has zeros as look and content, and no tips.
type known struct {
	look, content sum
	tips          []record.Replaced
	next          *known // without look
}

// bare reports whether nothing is known that the tree had.
func (k *known) bare() bool { return k == nil || k.content == sum{} && len(k.tips) == 0 }

// arrived reports whether the tree has what it was about to get, which is what is known from then on.
func (k *known) arrived(e *record.Entry, look sum) bool {
	if k == nil || k.next == nil || e == nil || contentOf(e) != k.next.content {
		return false
	}
	*k = known{look: look, content: k.next.content, tips: k.next.tips}
	return true
}

// about is what is noted of a name before the tree gets what entries say: nil if that is known already.
func (k *known) about(e *record.Entry, tips []record.Replaced) []byte {
	next := &known{content: contentOf(e), tips: tips}
	if k == nil {
		return (&known{next: next}).encode()
	}
	last := k
	if k.next != nil {
		last = k.next
	}
	if last.content == next.content && slices.Equal(last.tips, tips) {
		return nil
	}
	return (&known{look: k.look, content: k.content, tips: k.tips, next: next}).encode()
}

// revised is what is known of a name, nil: nothing, and what is from then on.
type revised struct{ was, is []byte }

// revise keeps by setting it what is known of names from now on, of those of which that is still known which
// it was made from. The others are returned: a push or a look noted something of them meanwhile.
func (s *Share) revise(names map[string]revised, setting func(map[string][]byte) error) (
	others map[string]bool, err error) {
	s.noting.Lock()
	defer s.noting.Unlock()
	others = map[string]bool{}
	set := make(map[string][]byte, len(names))
	for p, r := range names {
		now, err := s.o.State.Name(p)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(now, r.was) {
			others[p] = true
			continue
		}
		set[p] = r.is
	}
	return others, setting(set)
}

func (k *known) encode() []byte {
	if k == nil {
		return nil
	}
	p := append([]byte("CKN1"), k.look[:]...)
	p = k.append(p)
	if k.next != nil {
		p = k.next.append(p)
	}
	return p
}

func (k *known) append(p []byte) []byte {
	p = binary.AppendUvarint(append(p, k.content[:]...), uint64(len(k.tips)))
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
	k.read(r)
	if len(r.P) > 0 {
		k.next = &known{}
		k.next.read(r)
	}
	return k, r.End()
}

func (k *known) read(r *document.Reader) {
	copy(k.content[:], r.Take(len(k.content)))
	for range r.Count(2) {
		k.tips = append(k.tips, record.Replaced{Writer: record.Writer(r.String()), Version: r.Num()})
	}
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
