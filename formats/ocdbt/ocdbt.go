// Package ocdbt reads the keys of an OCDBT database, in which TensorStore (and so Orbax) keeps the metadata
// and the chunks of zarr arrays: a manifest, which leads to a B+tree in files below d/.
//
//	manifest.ocdbt   0CDB3A2A, u64 length, version 0, compression | body | u32 CRC-32C
//	    body         16 bytes, kind, two numbers, u8, method, i32 level if that is not 0; files; versions
//	a node           0CDB20DE, u64 length, version 0, compression | body | u32 CRC-32C
//	    body         u8 height; files; n entries, column by column:
//	                 shared with the key before (n-1), rest of the key (n), of an inner node: common to all
//	                 below (n); the rests
//	                 leaf: lengths of the values, kinds (0 in here, 1 elsewhere); of those elsewhere: file,
//	                 offset; the others' bytes
//	                 else: file, offset, length, three counts (n each)
//	files            n; path: shared with the one before (n-1), rest (n), length of the base (n); the rests
//	versions         n; generation, u8 height, file, offset, length, three counts, u64 time (n each)
//
// Numbers are LEB128 varints but where it says otherwise; CRCs and times are little-endian, magic numbers
// big-endian. Compression 0 is none, 1 a Zstandard frame. A child's paths begin with the base of the path
// that led to it. (The specification is that of TensorStore's ocdbt driver; the kind, 0 for a manifest that
// is one file, is newer than it.) The last version is read.
//
// Checksums are verified, paths stay in the database, and what is read is bounded: nodes of 64 MiB, 256 MiB
// of them in all, 65,536 nodes, 1,048,576 keys, 64 MiB of them and of paths. Values are read when the
// caller asks for them, up to 1 MiB each.
package ocdbt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"ckptfs/formats"
)

const (
	manifestMagic = 0x0cdb3a2a
	nodeMagic     = 0x0cdb20de
	headSize      = 4 + 8 + 1 + 1

	maxNode   = 64 << 20
	maxAll    = 256 << 20
	maxNodes  = 1 << 16
	maxKeys   = 1 << 20
	maxKey    = 1 << 16
	maxNames  = 64 << 20
	maxValue  = 1 << 20
	maxHeight = 64
	nowhere   = 1 << 62
)

// Read reads n bytes at off of a file of the database, by its path from the manifest's folder; all of a file
// of at most limit bytes when n is -1.
type Read func(path string, off, n, limit int64) ([]byte, error)

func reject(format string, args ...any) error {
	return fmt.Errorf("ocdbt: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Value is the value of a key: bytes of a file, or of the node that has the key.
type Value struct {
	Path     string // of the file; "": it is in the node
	Off, Len int64
	Inline   []byte

	w *walker
}

// Read reads the value, of at most 1 MiB.
func (v *Value) Read() ([]byte, error) {
	if v.Path == "" {
		return v.Inline, nil
	}
	if v.Len > maxValue {
		return nil, reject("value of %d bytes", v.Len)
	}
	return v.w.read(v.Path, v.Off, v.Len, maxValue)
}

// Each calls each with every key and its value, in order. The errors are read's and each's, or wrap
// formats.ErrNotFormat.
func Each(read Read, each func(key string, v *Value) error) error {
	p, err := read("manifest.ocdbt", 0, -1, maxNode)
	if err != nil {
		return err
	}
	w := &walker{read: read, each: each, left: maxAll, names: maxNames}
	b, err := w.body(p, manifestMagic)
	if err != nil {
		return err
	}
	b.take(16)
	if kind := b.num(); kind != 0 {
		return reject("manifest of kind %d", kind)
	}
	b.num()
	b.num()
	b.take(1)
	if b.num() != 0 {
		b.take(4)
	}
	files := b.files("")
	n := b.count(16)
	b.column(n) // generations
	heights := b.take(n)
	ids, offs, lens := b.column(n), b.column(n), b.column(n)
	if b.bad {
		return reject("a damaged manifest")
	}
	if n == 0 || lens[n-1] == 0 {
		return nil // nothing was written
	}
	return w.node(ref{files, ids[n-1], offs[n-1], lens[n-1]}, "", int(heights[n-1]))
}

type walker struct {
	read        Read
	each        func(key string, v *Value) error
	nodes, keys int
	left        int64 // bytes of bodies
	names       int64 // bytes of keys and paths
}

// file is one of a table of files.
type file struct{ base, path string }

// ref is where something lies.
type ref struct {
	files        []file
	id, off, len int64
}

func (r *ref) file() (file, error) {
	if r.id >= int64(len(r.files)) {
		return file{}, reject("file %d of %d", r.id, len(r.files))
	}
	f := r.files[r.id]
	if path.IsAbs(f.path) || path.Clean(f.path) != f.path || strings.HasPrefix(f.path, "..") ||
		strings.Contains(f.path, "\x00") {
		return file{}, reject("path %.64q", f.path)
	}
	return f, nil
}

// body checks what a manifest or a node is wrapped in, and returns what is in it.
func (w *walker) body(p []byte, magic uint32) (*reader, error) {
	if len(p) < headSize+4 || binary.BigEndian.Uint32(p) != magic ||
		binary.LittleEndian.Uint64(p[4:]) != uint64(len(p)) || p[12] != 0 || p[13] > 1 {
		return nil, reject("no %08x of %d bytes", magic, len(p))
	}
	end := len(p) - 4
	if crc32.Checksum(p[:end], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(p[end:]) {
		return nil, reject("checksum of %08x", magic)
	}
	out := p[headSize:end]
	if p[13] == 1 {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxNode))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		if out, err = d.DecodeAll(out, nil); err != nil {
			return nil, reject("%v", err)
		}
	}
	if w.left -= int64(len(out)); w.left < 0 {
		return nil, reject("more than %d bytes of nodes", maxAll)
	}
	return &reader{p: out, names: &w.names}, nil
}

// node walks the node at a place, whose keys begin with prefix.
func (w *walker) node(at ref, prefix string, height int) error {
	if w.nodes++; w.nodes > maxNodes || height > maxHeight {
		return reject("more than %d nodes, or %d levels", maxNodes, maxHeight)
	}
	f, err := at.file()
	if err != nil {
		return err
	}
	if at.len > maxNode {
		return reject("node of %d bytes", at.len)
	}
	p, err := w.read(f.path, at.off, at.len, maxNode)
	if err != nil {
		return err
	}
	b, err := w.body(p, nodeMagic)
	if err != nil {
		return err
	}
	if h := int(b.byte()); h != height {
		return reject("node of height %d, want %d", h, height)
	}
	files := b.files(f.base)
	n := b.count(2)
	if w.keys += n; w.keys > maxKeys {
		return reject("more than %d keys", maxKeys)
	}
	shared, rest := b.column(max(n-1, 0)), b.column(n)
	var common []int64
	if height > 0 {
		common = b.column(n)
	}
	keys := b.prefixed(shared, rest, maxKey)
	if b.bad {
		return reject("a damaged node")
	}
	if height == 0 {
		return w.leaf(b, files, prefix, keys)
	}
	ids, offs, lens := b.column(n), b.column(n), b.column(n)
	for range 3 {
		b.column(n)
	}
	if b.bad || len(b.p) > 0 {
		return reject("a damaged node")
	}
	for i, key := range keys {
		if common[i] > int64(len(key)) || len(prefix)+len(key) > maxKey {
			return reject("a key of %d bytes", len(prefix)+len(key))
		}
		if err := w.node(ref{files, ids[i], offs[i], lens[i]}, prefix+key[:common[i]], height-1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) leaf(b *reader, files []file, prefix string, keys []string) error {
	n := len(keys)
	lens, kinds := b.column(n), b.column(n)
	far := 0
	for _, k := range kinds {
		if k > 1 {
			return reject("a value of kind %d", k)
		}
		far += int(k)
	}
	ids, offs := b.column(far), b.column(far)
	if b.bad {
		return reject("a damaged node")
	}
	far = 0
	for i, key := range keys {
		v := &Value{w: w}
		if kinds[i] == 0 {
			v.Inline = b.take(int(min(lens[i], int64(len(b.p))+1)))
		} else {
			at := ref{files, ids[far], offs[far], lens[i]}
			f, err := at.file()
			if err != nil {
				return err
			}
			v.Path, v.Off, v.Len = f.path, at.off, at.len
			far++
		}
		if b.bad {
			return reject("a damaged node")
		}
		if err := w.each(prefix+key, v); err != nil {
			return err
		}
	}
	if len(b.p) > 0 {
		return reject("a damaged node")
	}
	return nil
}

// reader eats p. After the first error it is bad, and all reads return zero values.
type reader struct {
	p     []byte
	bad   bool
	names *int64 // bytes of strings that may still be made
}

func (b *reader) take(n int) []byte {
	if n > len(b.p) {
		b.bad, b.p = true, nil
		return nil
	}
	q := b.p[:n]
	b.p = b.p[n:]
	return q
}

func (b *reader) byte() byte {
	if q := b.take(1); q != nil {
		return q[0]
	}
	return 0
}

// num reads a number; those past the end of all files, as an empty tree has for its place, are one.
func (b *reader) num() int64 {
	v, n := binary.Uvarint(b.p)
	if n <= 0 {
		b.bad, b.p = true, nil
		return 0
	}
	b.p = b.p[n:]
	return int64(min(v, nowhere))
}

// count reads how many items of at least size bytes follow.
func (b *reader) count(size int) int {
	n := b.num()
	if n > int64(len(b.p)/size) {
		b.bad, b.p = true, nil
		return 0
	}
	return int(n)
}

// column reads n numbers.
func (b *reader) column(n int) []int64 {
	if n > len(b.p) {
		b.bad, b.p = true, nil
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = b.num()
	}
	return out
}

// prefixed reads strings that share their beginnings, of at most so many bytes each.
func (b *reader) prefixed(shared, rest []int64, most int64) []string {
	out := make([]string, 0, len(rest))
	last := ""
	for i, n := range rest {
		k := int64(0)
		if i > 0 {
			k = shared[i-1]
		}
		if k > int64(len(last)) || n > most-k {
			b.bad, b.p = true, nil
			return nil
		}
		if *b.names -= k + n; *b.names < 0 {
			b.bad, b.p = true, nil
			return nil
		}
		last = last[:k] + string(b.take(int(n)))
		out = append(out, last)
	}
	return out
}

// files reads a table of files, whose paths begin with before.
func (b *reader) files(before string) []file {
	n := b.count(2)
	shared, rest := b.column(max(n-1, 0)), b.column(n)
	bases := b.column(n)
	paths := b.prefixed(shared, rest, 1<<10)
	out := make([]file, 0, n)
	for i, p := range paths {
		if bases[i] > int64(len(p)) || len(before) > 1<<12 {
			b.bad, b.p = true, nil
			return nil
		}
		out = append(out, file{before + p[:bases[i]], before + p})
	}
	return out
}
