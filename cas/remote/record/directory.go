package record

import (
	"fmt"
	"math"
	"sort"

	"ckptfs/cas"
)

// Directory is all of a table but its blocks, which it finds and checks. Its Objects are those that the
// table's entries need.
type Directory struct {
	Table
	dictionary
	Runs   []Run
	Blocks []Block
}

// Run is what a table has of a run.
type Run struct {
	Name    string // "runs/a"
	Block   int    // with its first entry
	Entries int64
	Bytes   int64 // of its files; math.MaxInt64 if it is more
	Newest  int64 // latest mtime of its entries, ns since 1970; 0 when all are tombstones
}

// Block is a range of a table that holds a list of entries.
type Block struct {
	First    string // path of the first
	Off, Len int64  // in the table, in bytes
	Sum      [16]byte
}

func blockSum(p []byte) [16]byte {
	h := cas.Sum(p)
	return [16]byte(h[:16])
}

// appendBlocks appends entries in blocks, and notes these and the runs.
func (d *Directory) appendBlocks(entries []Entry) (p []byte, err error) {
	start, paths, prev := 0, 0, ""
	for i := range entries {
		e := &entries[i]
		n := len(p)
		p = d.appendEntry(p, prev, e)
		if n > start && (len(p)-start > MaxBlock || paths+len(e.Path) > maxBlockPaths) {
			d.endBlock(p[start:n])
			p, start, paths = d.appendEntry(p[:n], "", e), n, 0
		}
		if len(p)-start > MaxEntry {
			return nil, fmt.Errorf("%.200q: entry of %d bytes: %w", e.Path, len(p)-start, cas.ErrTooLarge)
		}
		if start == n {
			d.Blocks = append(d.Blocks, Block{First: e.Path, Off: int64(start)})
		}
		d.count(e)
		paths, prev = paths+len(e.Path), e.Path
	}
	d.endBlock(p[start:])
	return p, nil
}

// endBlock notes the bytes of the last block.
func (d *Directory) endBlock(p []byte) {
	b := &d.Blocks[len(d.Blocks)-1]
	b.Len, b.Sum = int64(len(p)), blockSum(p)
}

// count adds the next entry, which is in the last block, to its run.
func (d *Directory) count(e *Entry) {
	name := RunOf(e.Path)
	if n := len(d.Runs); n == 0 || d.Runs[n-1].Name != name {
		d.Runs = append(d.Runs, Run{Name: name, Block: len(d.Blocks) - 1, Newest: math.MinInt64})
	}
	r := &d.Runs[len(d.Runs)-1]
	r.Entries++
	if e.File != nil {
		r.Bytes += min(e.File.Size, math.MaxInt64-r.Bytes)
	}
	if e.Kind != KindTombstone {
		r.Newest = max(r.Newest, e.MTime)
	}
}

func (d *Directory) append(p []byte) []byte {
	p = num(p, int64(len(d.Runs)))
	for _, r := range d.Runs {
		newest := r.Newest
		if newest == math.MinInt64 {
			newest = 0
		}
		p = num(num(num(str(p, r.Name), int64(r.Block)), r.Entries), r.Bytes)
		p = zz(p, newest)
	}
	p = d.dictionary.append(p)
	p = num(p, int64(len(d.Blocks)))
	for _, b := range d.Blocks {
		p = append(num(str(p, b.First), b.Len), b.Sum[:]...)
	}
	return p
}

// Open reads the directory of a table of own, from t.Directory to its end. It takes up to 10 bytes of memory
// for each.
func (t Table) Open(own Writer, p []byte) (*Directory, error) {
	if err := t.check(); err != nil {
		return nil, corrupt(err)
	}
	if int64(len(p)) != t.Len-t.Directory || cas.Sum(p) != t.Hash {
		return nil, fmt.Errorf("table %s: directory of %d bytes: %w", t.ID, len(p), cas.ErrCorrupt)
	}
	said := t
	if err := said.readTrailer(p[len(p)-trailerSize:]); err != nil {
		return nil, err
	}
	d, err := openDirectory(own, t, p)
	if err == nil && (said != t || d.Blocks[0].First != t.First) {
		err = fmt.Errorf("table %s: not what its head says: %w", t.ID, cas.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// openDirectory reads a directory and its trailer.
func openDirectory(own Writer, t Table, p []byte) (*Directory, error) {
	dir, trailer := p[:len(p)-trailerSize], p[len(p)-trailerSize:]
	if le.Uint32(trailer[56:]) != crc(dir) {
		return nil, fmt.Errorf("table %s: directory: %w", t.ID, cas.ErrCorrupt)
	}
	r := newReader(dir, "table "+t.ID.String())
	d := &Directory{Table: t}
	d.Runs = many(r, 6, func() Run {
		x := Run{Name: r.String(), Block: int(r.upTo(MaxObject))}
		x.Entries, x.Bytes, x.Newest = r.Num(), r.Num(), r.Zigzag()
		return x
	})
	d.dictionary = *readDictionary(r, own)
	off := int64(0)
	d.Blocks = many(r, 2+len(Block{}.Sum), func() Block {
		b := Block{First: r.String(), Off: off, Len: r.upTo(t.Directory - off)}
		copy(b.Sum[:], r.Take(len(b.Sum)))
		off += b.Len
		return b
	})
	if err := r.End(); err != nil {
		return nil, err
	}
	if off != t.Directory {
		return nil, fmt.Errorf("table %s: blocks of %d bytes, %d: %w", t.ID, off, t.Directory, cas.ErrCorrupt)
	}
	if err := d.check(); err != nil {
		return nil, corrupt(err)
	}
	return d, nil
}

// check holds what a directory can be checked for without its blocks.
func (d *Directory) check() error {
	for i, b := range d.Blocks {
		if err := CheckPath(b.First); err != nil {
			return fmt.Errorf("table %s: block %d: %w", d.ID, i, err)
		}
		if b.Len < 1 || b.Len > MaxEntry || i > 0 && ComparePaths(d.Blocks[i-1].First, b.First) > 0 {
			return fmt.Errorf("table %s: block %d of %d bytes from %.200q", d.ID, i, b.Len, b.First)
		}
	}
	for i, r := range d.Runs {
		if CheckPath(r.Name) != nil || RunOf(r.Name) != r.Name || r.Block >= len(d.Blocks) || r.Entries < 1 ||
			i > 0 && (ComparePaths(d.Runs[i-1].Name, r.Name) >= 0 || d.Runs[i-1].Block > r.Block) {
			return fmt.Errorf("table %s: run %.200q from block %d", d.ID, r.Name, r.Block)
		}
	}
	return nil
}

// Block reads block i.
func (d *Directory) Block(i int, p []byte) ([]Entry, error) {
	b, of := d.Blocks[i], fmt.Sprintf("table %s, block %d", d.ID, i)
	if int64(len(p)) != b.Len || blockSum(p) != b.Sum {
		return nil, fmt.Errorf("%s of %d bytes: %w", of, len(p), cas.ErrCorrupt)
	}
	entries, err := d.decodeEntries(p, of, maxBlockPaths)
	if err != nil {
		return nil, err
	}
	last, end := entries[len(entries)-1].Path, d.Last
	if i+1 < len(d.Blocks) {
		end = d.Blocks[i+1].First
	}
	if entries[0].Path != b.First || ComparePaths(last, end) > 0 || len(p) > MaxBlock && len(entries) > 1 {
		return nil, fmt.Errorf("%s: from %.200q to %.200q: %w", of, entries[0].Path, last, cas.ErrCorrupt)
	}
	return entries, nil
}

// Below is the range of the blocks that may have entries of a path, or of what is below it: from lo on, and
// before hi.
func (d *Directory) Below(path string) (lo, hi int) {
	return d.blocks(path, func(first string) bool { return Below(first, path) })
}

// Find gets the entries of a path, one for each origin, with read, which reads a range of the table.
func (d *Directory) Find(path string, read func(off, n int64) ([]byte, error)) ([]Entry, error) {
	var found []Entry
	lo, hi := d.blocks(path, func(first string) bool { return first == path })
	for i := lo; i < hi; i++ {
		p, err := read(d.Blocks[i].Off, d.Blocks[i].Len)
		if err != nil {
			return nil, err
		}
		entries, err := d.Block(i, p)
		if err != nil {
			return nil, err
		}
		found = append(found, find(entries, path)...)
	}
	return found, nil
}

// blocks is the range of blocks that may have path, or what in says of a block's first path behind it.
func (d *Directory) blocks(path string, in func(first string) bool) (lo, hi int) {
	n := len(d.Blocks)
	lo = sort.Search(n, func(i int) bool { return ComparePaths(d.Blocks[i].First, path) >= 0 })
	hi = lo + sort.Search(n-lo, func(i int) bool { return !in(d.Blocks[lo+i].First) })
	return max(lo-1, 0), hi
}

// find is the part of a list that has a path.
func find(entries []Entry, path string) []Entry {
	n := len(entries)
	lo := sort.Search(n, func(i int) bool { return ComparePaths(entries[i].Path, path) >= 0 })
	hi := lo + sort.Search(n-lo, func(i int) bool { return entries[lo+i].Path != path })
	return entries[lo:hi]
}
