package pack

import (
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// crowd tells how the data of a layout is cut. An object costs some 150 bytes in the store, and until the
// file is packed some 2,000 bytes of memory; and a manifest, which is one record, holds some 300,000 digests.
// In a file of very many short tensors these are joined, as small blobs are: they are found again by content,
// and not by tensor. Of still more, the names alone are too long for a manifest; such a file is a blob. It is
// told before anything is packed: a chunk for each tensor, and a manifest that does not fit, would have been
// for nothing.
type crowd int

const (
	apart    crowd = iota // each data region has objects of its own
	together              // those under smallBlob have them together
	tooMany
)

// maxShort is how many data regions under smallBlob have objects of their own.
const maxShort = 1 << 16

// What a manifest says, at most, of a region that is an object of its own, of one that lies in an object with
// others, and of all that is no region.
const (
	ownRegion    = 32 + 5 + 1 + 6
	joinedRegion = 1 + 4 + 3
	manifestHead = 1 << 10
)

// crowded tells which it is.
func (p *Packer) crowded(l *formats.Layout) crowd {
	all, short := len(l.Regions), 0
	for _, r := range l.Regions {
		if r.Len < smallBlob && r.Kind == formats.Data {
			short++
		}
	}
	if short <= maxShort && all*ownRegion <= p.record/4 { // then only names as long could be too much
		return apart
	}
	left := p.record - manifestHead - manifest.TensorsSize(l.Tensors)
	switch {
	case short <= maxShort && all*ownRegion <= left:
		return apart
	case (all-short)*ownRegion+short*joinedRegion <= left:
		return together
	}
	return tooMany
}

// Keeps reports whether a manifest of this layout can be written, as far as that is told by the number of
// tensors.
func (p *Packer) Keeps(l *formats.Layout) bool { return p.crowded(l) != tooMany }
