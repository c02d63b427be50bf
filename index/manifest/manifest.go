// Package manifest is the document of one file: which objects its bytes come from (Extents), what they mean
// (Regions, Tensors), and the two byte formats that hold it, the manifest and the chunk list. Both are
// records in segments, named by the BLAKE3 of the bytes below.
//
// An object is up to MaxObject bytes of content with a digest of its own. An object of one chunk has that
// chunk's hash as digest; an object of several has the hash of its list. The same tensor has the same digest
// in every file.
//
//	file      | header | fc.bias | pad | fc.weight          |
//	extents   | obj 0  | obj 1   |  -1 | obj 2              |    object -1: zeros, nothing is stored
//	                                    | list: chunk, chunk |
//
// # Manifest, version 1
//
// A number is an unsigned LEB128 varint of the fewest bytes, at most 2^63-1. "zz" is a zigzag-coded signed
// number. A string is its length in bytes and the bytes. There is one encoding of a manifest: a reader
// refuses every other.
//
//	"CKM1"                        magic and version
//	flags                         number: bit 0: the regions are written out; bit 1: the layout is partial;
//	                              the others are 0
//	format                        string: the name of the layout's parser
//	size                          number: bytes of the file
//	objects                       number n, then n times
//	    digest                    32 bytes
//	    length and kind           number: length << 1 | 1 when the digest names a list
//	extents                       number n, then n times, in file order without gaps up to size
//	    op                        1 byte: region | source << 2
//	    the source's operands
//	regions                       only with flag bit 0: number n, then n times
//	    length, kind              number, 1 byte (0 blob, 1 data, 2 pad)
//	tensors                       number n; when n > 0:
//	    types                     number k, then k strings: the element types in the order of first use
//	    n times
//	        name                  number: bytes shared with the tensor before (as many as there are),
//	                              string: the rest
//	        type and strides      number: index into types << 2 | stride mode
//	        shape                 number of dimensions, then one number each
//	        region                zz: the region's number less that of the tensor before (the first: less 0);
//	                              -1 is none
//	        offset                number: bytes from the region's start
//	        strides               stride mode 2 only: one zz a dimension
//
// The region bits of an op say what starts at the extent: 0 a blob, 1 a data, 2 a pad region, 3 no region
// (the one before goes on). Regions that do not begin and end where extents do are written out instead (flag
// bit 0); then every op has 3.
//
// The source bits, of which the first that fits is written:
//
//	0  zeros: length
//	1  the whole of the object numbered one above the highest used so far: no operands
//	2  object, length: from where the last extent of that object ended (0 at first)
//	3  object, offset, length
//
// Stride modes: 0 no strides, row-major; 1 strides that are those of a row-major tensor, stride[i] being the
// product of max(d, 1) over the later dimensions; 2 written out.
//
// # Chunk list, version 1
//
//	"CKL1"
//	form                          1 byte
//	form 0, the grid: every chunk but the last has 262,144 bytes (cas.ChunkSize), the last at most that
//	    last                      number: bytes of the last chunk
//	    hashes                    32 bytes each, to the end
//	form 1, otherwise
//	    n                         number of chunks
//	    lengths                   n numbers
//	    hashes                    n times 32 bytes
package manifest

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/formats"
)

// MaxObject bounds the bytes of one object. Longer regions are several objects.
const MaxObject = 8 << 30

// maxNames bounds the bytes of all tensor names together, since prefix compression could inflate them without
// end.
const maxNames = 64 << 20

// Object is a run of content with a digest.
type Object struct {
	Digest cas.Hash
	Len    int64 // bytes, 1 to MaxObject
	List   bool  // Digest names a list of chunks (EncodeList), else one chunk
}

// Extent maps the next Len bytes of the file onto an object.
type Extent struct {
	Len    int64
	Object int32 // index into Manifest.Objects; -1: zeros
	ObjOff int64 // bytes from the object's start
}

// Manifest describes one file.
type Manifest struct {
	Format  string // the layout's parser
	Size    int64  // bytes
	Objects []Object
	Extents []Extent // in file order; gapless; cover [0, Size)
	Regions []formats.Region
	Tensors []formats.Tensor
	Partial bool // formats.Layout.Partial
}

// Layout is the manifest's regions and tensors as the parser gave them.
func (m *Manifest) Layout() *formats.Layout {
	return &formats.Layout{Format: m.Format, Regions: m.Regions, Tensors: m.Tensors, Partial: m.Partial}
}

// Check returns an error unless the extents cover the file, lie in their objects, and the layout is sound.
func (m *Manifest) Check() error {
	if m.Size < 0 {
		return fmt.Errorf("manifest: size %d", m.Size)
	}
	for i, o := range m.Objects {
		if o.Len <= 0 || o.Len > MaxObject || !o.List && o.Len > cas.MaxChunk {
			return fmt.Errorf("manifest: object %d of %d bytes", i, o.Len)
		}
	}
	left := m.Size
	for i, e := range m.Extents {
		switch {
		case e.Len <= 0 || e.Len > left:
			return fmt.Errorf("manifest: extent %d of %d bytes at %d of %d", i, e.Len, m.Size-left, m.Size)
		case e.Object == -1 && e.ObjOff != 0:
			return fmt.Errorf("manifest: extent %d of zeros has an offset", i)
		case e.Object < -1 || int(e.Object) >= len(m.Objects):
			return fmt.Errorf("manifest: extent %d names object %d of %d", i, e.Object, len(m.Objects))
		case e.Object >= 0 && (e.ObjOff < 0 || e.ObjOff > m.Objects[e.Object].Len-e.Len):
			return fmt.Errorf("manifest: extent %d lies outside object %d", i, e.Object)
		}
		left -= e.Len
	}
	if left != 0 {
		return fmt.Errorf("manifest: extents cover %d of %d bytes", m.Size-left, m.Size)
	}
	names := 0
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if t.Stride != nil && len(t.Stride) != len(t.Shape) {
			return fmt.Errorf("manifest: tensor %q: %d strides for %d dimensions", t.Name, len(t.Stride),
				len(t.Shape))
		}
		if t.Offset < 0 || t.Region < -1 {
			return fmt.Errorf("manifest: tensor %q: offset %d in region %d", t.Name, t.Offset, t.Region)
		}
		if names += len(t.Name); names > maxNames {
			return fmt.Errorf("manifest: tensor names: %w", cas.ErrTooLarge)
		}
	}
	return m.Layout().Check(m.Size)
}

// regionsImplied reports whether every region begins and ends where an extent does.
func (m *Manifest) regionsImplied() bool {
	var end, bound int64 // ends of the extents and the regions walked so far
	r := 0
	for _, e := range m.Extents {
		if bound == end {
			if r == len(m.Regions) {
				return false
			}
			bound += m.Regions[r].Len
			r++
		}
		if end += e.Len; end > bound {
			return false
		}
	}
	return end == bound && r == len(m.Regions)
}

// rowMajor reports whether stride is what stride mode 1 stands for.
func rowMajor(shape, stride []int64) bool {
	want := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if stride[i] != want {
			return false
		}
		want *= max(shape[i], 1)
	}
	return true
}
