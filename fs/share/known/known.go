// Package known is what a store and its remote have in common of a name, as fs/share keeps it.
//
// # Kills
//
// The tree and what is known of it change in two steps. What a kill between them leaves, and what mends it:
//
//	a pull, a look     next is noted before the tree changes. The tree has what it had, or what it was about
//	                   to get: Shown tells. It has some attributes of either: the next look gives it the
//	                   others, since no program changed it meanwhile (share.Changing notes before, and ends
//	                   next). A step whose small file the pull still held open is not torn by that.
//	a replaced name    .ckptfs-pull- has what was there; left.go tells whose it is before a program may change
//	                   the name, and before the folder is removed
//	a late note        what a look noted may be late: it is made durable before a program changes the name
//	a program removes  the note of the removal comes first; next is settled before, so that it is published
//	others removed     .ckptfs-aside- has it until it is gone; what is known of it then says nothing
//	a push             Begun is noted before the commit: what is removed after it is removed for others. What
//	                   was known of other names stays: the tree is what the remote has, as the next look
//	                   sees. That look comes within the push, and may replace a file that the push looks at:
//	                   what has not its name any more, or is known otherwise since, is not published
//	a cut of removals  a removal that was published is looked at once more, and the name is not known
//
// TestKilledAnywhere of fs/volume kills before each change of a file in all of these.
package known

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/document"
	"ckptfs/cas/remote/record"
)

// Sum is the first 16 bytes of a BLAKE3.
type Sum [16]byte

// Name is what this store and the remote have in common of a name:
//
//	"CKN1"
//	look      16 bytes: of what the tree showed
//	content   16 bytes: of what the remote has
//	tips      number n, then n times: string writer, number version: the entries that the tree shows
//	next      to the end: nothing, or content and tips of what the tree was about to get. It has that, unless
//	          a crash came before
//
// What was not there before has zeros as look and content, and no tips. What is published for the first time
// has zeros, and version 0 of this store as its tip.
type Name struct {
	Look, Content Sum
	Tips          []record.Replaced
	Next          *Name // without look
}

// Begun is what is known of a name while a writer publishes it for the first time: the remote may have it.
func Begun(w record.Writer) *Name { return &Name{Tips: []record.Replaced{{Writer: w}}} }

// Bare reports whether nothing is known that the tree had.
func (k *Name) Bare() bool { return k == nil || k.Content == Sum{} && len(k.Tips) == 0 }

// Arrived reports whether the tree has what it was about to get, which is what is known from then on.
func (k *Name) Arrived(e *record.Entry, look Sum) bool {
	if k == nil || k.Next == nil || e == nil || ContentOf(e) != k.Next.Content {
		return false
	}
	*k = Name{Look: look, Content: k.Next.Content, Tips: k.Next.Tips}
	return true
}

// Shown reports whether an entry of the tree is what is known, or what the tree was about to get. It has that
// look from then on.
func (k *Name) Shown(e *record.Entry, look Sum) bool {
	if k == nil || e == nil || ContentOf(e) != k.Content {
		return k.Arrived(e, look)
	}
	k.Look = look
	return true
}

// About is what is noted of a name before the tree gets what entries say: nil if that is known already.
func (k *Name) About(e *record.Entry, tips []record.Replaced) []byte {
	next := &Name{Content: ContentOf(e), Tips: tips}
	if k == nil {
		return (&Name{Next: next}).Encode()
	}
	last := k
	if k.Next != nil {
		last = k.Next
	}
	if last.Content == next.Content && slices.Equal(last.Tips, tips) {
		return nil
	}
	return (&Name{Look: k.Look, Content: k.Content, Tips: k.Tips, Next: next}).Encode()
}

// Encode makes the bytes; nil of nil.
func (k *Name) Encode() []byte {
	if k == nil {
		return nil
	}
	p := append([]byte("CKN1"), k.Look[:]...)
	p = k.append(p)
	if k.Next != nil {
		p = k.Next.append(p)
	}
	return p
}

func (k *Name) append(p []byte) []byte {
	p = binary.AppendUvarint(append(p, k.Content[:]...), uint64(len(k.Tips)))
	for _, t := range k.Tips {
		p = append(binary.AppendUvarint(p, uint64(len(t.Writer))), t.Writer...)
		p = binary.AppendUvarint(p, uint64(t.Version))
	}
	return p
}

// Decode reads what Encode made. path is for errors.
func Decode(path string, p []byte) (*Name, error) {
	r := &document.Reader{P: p, Of: fmt.Sprintf("what is known of %.200q", path)}
	k := &Name{}
	r.Magic("CKN1")
	copy(k.Look[:], r.Take(len(k.Look)))
	k.read(r)
	if len(r.P) > 0 {
		k.Next = &Name{}
		k.Next.read(r)
	}
	return k, r.End()
}

func (k *Name) read(r *document.Reader) {
	copy(k.Content[:], r.Take(len(k.Content)))
	for range r.Count(2) {
		k.Tips = append(k.Tips, record.Replaced{Writer: record.Writer(r.String()), Version: r.Num()})
	}
}

// ContentOf is the sum of all that an entry says but whose it is and what it replaces. The time of a folder
// or a link is none of it: on each machine it is when a name came into the one, and when the other was made.
func ContentOf(e *record.Entry) Sum {
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
	return SumOf(p)
}

// SumOf is the Sum of bytes.
func SumOf(p []byte) Sum {
	h := cas.Sum(p)
	return Sum(h[:16])
}
