package spilled

import (
	"encoding/binary"
	"runtime"

	"ckptfs/cas/disk"
)

// textBlock is what a Text takes at a time: strings lie one behind the other, also over its end.
const textBlock = 4096

// Text has very many strings: the collector sees none. What reads or writes it is called by Guard. It is not
// safe for concurrent use.
type Text struct {
	blocks *Slab[[textBlock]byte]
	last   *[textBlock]byte
	size   int64 // of all that was added
	buf    []byte
}

// NewText makes an empty one, see NewSlab.
func NewText(dir *disk.Folder) *Text { return &Text{blocks: NewSlab[[textBlock]byte](dir)} }

// Add adds a string, and returns the place that Append finds it at.
func (t *Text) Add(s string) (place int64) {
	place = t.size
	t.buf = append(binary.AppendUvarint(t.buf[:0], uint64(len(s))), s...)
	for p := t.buf; len(p) > 0; {
		if t.size%textBlock == 0 {
			t.last = t.blocks.New()
		}
		n := copy(t.last[t.size%textBlock:], p)
		t.size += int64(n)
		p = p[n:]
	}
	return place
}

// Append appends the string at a place to p.
func (t *Text) Append(p []byte, place int64) []byte {
	defer runtime.KeepAlive(t) // what lies in its files is not the collector's
	n := 0
	for shift := 0; ; shift += 7 {
		b := t.blocks.At(int(place / textBlock))[place%textBlock]
		place++
		if n |= int(b&0x7f) << shift; b < 0x80 {
			break
		}
	}
	for n > 0 {
		from := t.blocks.At(int(place / textBlock))[place%textBlock:]
		from = from[:min(n, len(from))]
		p, n, place = append(p, from...), n-len(from), place+int64(len(from))
	}
	return p
}

// Memory is how many bytes it takes in memory.
func (t *Text) Memory() int64 { return t.blocks.Memory() }
