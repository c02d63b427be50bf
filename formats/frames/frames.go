// Package frames lays out files that are Zstandard frames one after the other, with other things between
// them: the data files of OCDBT (what Orbax and TensorStore write below d/) and the shards of zarr 3, whose
// arrays are compressed each on its own.
//
//	| frame | frame | frame | … | OCDBT nodes, zarr's JSON, a shard's index |
//
//	frame    28 B5 2F FD, descriptor, window 0–1, dictionary 0–4, content size 0–8
//	         blocks: 3 bytes, little-endian: last (1 bit), type (2), size (21); then the bytes
//	         a checksum of 4 bytes or none
//
// One step's file has the same arrays as another's in another order. A frame is found by the sizes that its
// blocks state, nothing is decompressed, and each frame of at least 4 KiB is a Data region: an array that did
// not change is the same frame, and meets its earlier self whatever lies before it. No tensor is named (the
// names are in OCDBT's nodes, or are the paths of files), so the layout is partial.
//
// # What is recognised
//
// A file whose first frame begins within its first 4,000 bytes, behind nothing or behind JSON or an OCDBT
// node, and which has at least two frames of 4 KiB. Bytes between frames are Blob. Wherever a frame's magic
// number occurs in them the sizes are followed; what they lead out of the file is no frame. Should that be
// chance, a cut is in an odd place, and nothing else. A file that is a single frame (.zst) is better cut by
// content, and is a Blob.
//
// When more than 16 MiB lie between frames the rest is Blob. At most 262,144 frames and 4,194,304 blocks; 16
// bytes each, and a window of 4 KiB, are taken.
package frames

import (
	"bytes"
	"fmt"
	"io"

	"ckptfs/formats"
)

const (
	magic      = "\x28\xb5\x2f\xfd"
	nodeMagic  = "\x0c\xdb\x20\xde"
	smallest   = 4 << 10
	firstFrame = 4000
	maxBetween = 16 << 20
	maxFrames  = 1 << 18
	maxBlocks  = 1 << 22
	maxBlock   = 128 << 10
	window     = 4 << 10
)

// Format is the entry of zstd's frames in the table of formats.
var Format = formats.Format{
	Parser: Parser{},
	Sniff:  Sniff,
	Names: []formats.Name{{
		Name: Parser{}.Name(),
		Note: "compressed parts of arrays: `ckptfs show` of the folder that Orbax wrote lists those",
	}},
}

// Parser is the parser of files of frames.
type Parser struct{}

// Name returns "zstd-frames".
func (Parser) Name() string { return "zstd-frames" }

func reject(format string, args ...any) error {
	return fmt.Errorf("zstd-frames: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be one.
func Sniff(p []byte, _ int64) bool {
	p = p[:min(len(p), firstFrame+len(magic))]
	switch {
	case bytes.HasPrefix(p, []byte(magic)):
		return true
	case bytes.HasPrefix(p, []byte(nodeMagic)), bytes.HasPrefix(p, []byte("{")):
		return bytes.Contains(p, []byte(magic))
	}
	return false
}

// Parse returns the layout of a file of frames.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	head := make([]byte, min(size, firstFrame+int64(len(magic))))
	if err := formats.ReadFull(r, head, 0); err != nil {
		return nil, err
	}
	if !Sniff(head, size) {
		return nil, reject("no frame near the start")
	}
	c := formats.NewCursor(r, size, window)
	var data []formats.Range
	blocks := maxBlocks
	for between := int64(0); between <= maxBetween && len(data) < maxFrames && blocks > 0; {
		gap, err := findMagic(c, maxBetween-between)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		between += gap
		start := c.Offset()
		end, err := frame(c, size, &blocks)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if err == nil {
			if end-start >= smallest {
				data = append(data, formats.Range{Off: start, Len: end - start})
			}
			continue
		}
		// None: go on behind the magic number.
		c = formats.NewCursor(r, size, window)
		c.Pass(start + int64(len(magic)))
		between += int64(len(magic)) + window // what following it may have cost
	}
	if len(data) < 2 {
		return nil, reject("%d frames", len(data))
	}
	l := &formats.Layout{Format: p.Name(), Partial: true}
	if err := l.Cover(size, data); err != nil {
		return nil, reject("%v", err)
	}
	return l, nil
}

// findMagic moves to the next magic number, at most most bytes on; io.EOF when there is none.
func findMagic(c *formats.Cursor, most int64) (moved int64, err error) {
	for moved <= most {
		p, err := c.Peek(len(magic))
		if err != nil {
			return moved, err
		}
		i := bytes.Index(p, []byte(magic))
		n := int64(i)
		if i < 0 {
			n = int64(len(p) - len(magic) + 1)
		}
		c.Pass(n)
		if moved += n; i >= 0 {
			return moved, nil
		}
	}
	return moved, io.EOF
}

// frame passes over the frame at the cursor and returns where it ends; io.EOF when there is no frame. It
// counts blocks down.
func frame(c *formats.Cursor, size int64, blocks *int) (int64, error) {
	p, err := c.Peek(len(magic) + 1)
	if err != nil {
		return 0, err
	}
	descriptor := p[len(magic)]
	const reserved, single, checksum = 1 << 3, 1 << 5, 1 << 2
	if descriptor&reserved != 0 {
		return 0, io.EOF
	}
	head := int64(len(magic)) + 1 + [...]int64{0, 1, 2, 4}[descriptor&3]
	content := [...]int64{0, 2, 4, 8}[descriptor>>6]
	if descriptor&single == 0 {
		head++
	} else if content == 0 {
		content = 1
	}
	c.Pass(head + content)
	for {
		p, err := c.Peek(3)
		if err != nil {
			return 0, err
		}
		if *blocks--; *blocks < 0 {
			return 0, io.EOF
		}
		h := uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16
		n := int64(h >> 3)
		const runLength, reservedType = 1, 3
		switch h >> 1 & 3 {
		case reservedType:
			return 0, io.EOF
		case runLength:
			n = 1
		default:
			if n > maxBlock {
				return 0, io.EOF
			}
		}
		if c.Offset()+3+n > size {
			return 0, io.EOF
		}
		c.Pass(3 + n)
		if h&1 != 0 {
			break
		}
	}
	if descriptor&checksum != 0 {
		if c.Offset()+4 > size {
			return 0, io.EOF
		}
		c.Pass(4)
	}
	return c.Offset(), nil
}
