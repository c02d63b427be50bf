package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"

	"ckptfs/cas"
)

const (
	shardMagic   = "ckptshrd"
	shardVersion = 1

	itemSize  = 32
	entrySize = 12 // of the directory
	// MaxItems bounds the items of a shard.
	MaxItems = 1 << 20
	// blockItems is how many items a block has; the last may have fewer.
	blockItems = 512
)

// Digest is the first 8 bytes of a hash, as a number: that of an object of a manifest, or of a manifest.
// Hashes of which these are the same are rare, and cost a reader no more than a look at a plan.
type Digest uint64

// DigestOf is the Digest of a hash.
func DigestOf(h cas.Hash) Digest { return Digest(binary.BigEndian.Uint64(h[:])) }

// Item says that the file of a plan has something of this Digest.
type Item struct {
	Digest Digest
	Plan   Ref
}

// Index is what the head of IndexWriter says.
type Index struct {
	// Made is an epoch: it, and all before it, had been decided before the heads were read that the index was
	// made of. What only a later one condemned may be named in the index, and gone.
	Made uint32
	// Seen, ascending by writer: the writer's entries up to the version are in the index.
	Seen []Replaced
	// Shards, ascending by First: each has the items from its First on, up to that of the next.
	Shards []Shard
}

// Shard is what the index's head says of a shard.
type Shard struct {
	ID    ID
	First Digest
	Items int64 // 1 to MaxItems
}

// Find is the shard that has the items of a digest, if any has.
func (x *Index) Find(d Digest) (Shard, bool) {
	n := sort.Search(len(x.Shards), func(i int) bool { return x.Shards[i].First > d })
	if n == 0 {
		return Shard{}, false
	}
	return x.Shards[n-1], true
}

func (x *Index) append(p []byte) []byte {
	p = num(num(p, int64(x.Made)), int64(len(x.Seen)))
	for _, s := range x.Seen {
		p = num(str(p, string(s.Writer)), s.Version)
	}
	p = num(p, int64(len(x.Shards)))
	for _, s := range x.Shards {
		p = num(binary.BigEndian.AppendUint64(append(p, s.ID[:]...), uint64(s.First)), s.Items)
	}
	return p
}

func readIndex(r *reader) (x Index) {
	x.Made = uint32(r.upTo(math.MaxUint32))
	x.Seen = many(r, 2, func() Replaced {
		w := Writer(r.String())
		return Replaced{w, r.Num()}
	})
	x.Shards = many(r, len(ID{})+9, func() Shard {
		s := Shard{ID: r.id()}
		if p := r.Take(8); p != nil {
			s.First = Digest(binary.BigEndian.Uint64(p))
		}
		s.Items = r.Num()
		return s
	})
	return x
}

func (x *Index) isZero() bool { return x.Made == 0 && len(x.Seen) == 0 && len(x.Shards) == 0 }

func (x *Index) check() error {
	for i, s := range x.Seen {
		if err := s.Writer.Check(); err != nil {
			return err
		}
		if s.Version < 1 || i > 0 && s.Writer <= x.Seen[i-1].Writer {
			return fmt.Errorf("seen version %d of %s", s.Version, s.Writer)
		}
	}
	seen := make(map[ID]bool, len(x.Shards))
	for i, s := range x.Shards {
		if s.Items < 1 || s.Items > MaxItems || i > 0 && s.First <= x.Shards[i-1].First || seen[s.ID] {
			return fmt.Errorf("shard %s of %d items", s.ID, s.Items)
		}
		seen[s.ID] = true
	}
	return nil
}

func (s Shard) blocks() int64 { return (s.Items + blockItems - 1) / blockItems }

// Directory is where the directory begins: all from there on is what Open wants.
func (s Shard) Directory() int64 { return s.Items * itemSize }

// Len is how many bytes the shard has.
func (s Shard) Len() int64 { return s.Directory() + s.blocks()*entrySize + trailerSize }

// EncodeShard makes a shard of a remote of items, ascending by digest, each of which is there once.
func EncodeShard(remote ID, items []Item) ([]byte, error) {
	if len(items) == 0 || len(items) > MaxItems {
		return nil, fmt.Errorf("shard of %d items: %w", len(items), cas.ErrTooLarge)
	}
	s := Shard{Items: int64(len(items))}
	p := make([]byte, 0, s.Len())
	for i := range items {
		x := &items[i]
		if err := checkRange(x.Plan.Off, int64(x.Plan.Stored), MaxObject); err != nil {
			return nil, fmt.Errorf("shard: %w", err)
		}
		if i > 0 && x.Digest <= items[i-1].Digest {
			return nil, fmt.Errorf("shard: item %x after %x", x.Digest, items[i-1].Digest)
		}
		p = append(binary.BigEndian.AppendUint64(p, uint64(x.Digest)), x.Plan.Object[:]...)
		p = le.AppendUint32(le.AppendUint32(p, uint32(x.Plan.Off/8)), x.Plan.Stored)
	}
	for block := range slices.Chunk(p, blockItems*itemSize) {
		p = le.AppendUint32(append(p, block[:8]...), crc(block))
	}
	return s.appendTrailer(p, remote), nil
}

// appendTrailer appends the trailer to the items and the directory.
func (s Shard) appendTrailer(p []byte, remote ID) []byte {
	b := make([]byte, trailerSize)
	copy(b, shardMagic)
	le.PutUint16(b[8:], shardVersion)
	copy(b[16:], remote[:])
	le.PutUint64(b[32:], uint64(s.Items))
	le.PutUint32(b[56:], crc(p[s.Directory():]))
	le.PutUint32(b[60:], crc(b[:60]))
	return append(p, b...)
}

// DecodeShard reads what EncodeShard wrote and nothing else.
func DecodeShard(remote ID, s Shard, p []byte) ([]Item, error) {
	if int64(len(p)) != s.Len() {
		return nil, s.corrupt("%d bytes, want %d", len(p), s.Len())
	}
	d, err := s.Open(remote, p[s.Directory():])
	if err != nil {
		return nil, err
	}
	items := make([]Item, 0, s.Items)
	for n := range d.first {
		off, size := d.Range(n)
		if items, err = d.read(items, n, p[off:off+size]); err != nil {
			return nil, err
		}
	}
	if items[0].Digest != s.First {
		return nil, s.corrupt("it begins with %x", items[0].Digest)
	}
	again, err := EncodeShard(remote, items)
	if err != nil {
		return nil, corrupt(err)
	}
	return items, checkSame("shard "+s.ID.String(), p, again)
}

func (s Shard) corrupt(format string, args ...any) error {
	return fmt.Errorf("shard %s: %s: %w", s.ID, fmt.Sprintf(format, args...), cas.ErrCorrupt)
}

// ShardDirectory says which block of a shard has which items.
type ShardDirectory struct {
	Shard
	first []Digest // of each block
	sums  []uint32
}

// Open reads the directory of a shard, which is all from Directory on.
func (s Shard) Open(remote ID, p []byte) (*ShardDirectory, error) {
	if s.Items < 1 || s.Items > MaxItems || int64(len(p)) != s.Len()-s.Directory() {
		return nil, s.corrupt("directory of %d bytes", len(p))
	}
	p, b := p[:len(p)-trailerSize], p[len(p)-trailerSize:]
	if string(b[:8]) != shardMagic || le.Uint32(b[60:]) != crc(b[:60]) || le.Uint32(b[56:]) != crc(p) {
		return nil, s.corrupt("trailer")
	}
	if err := checkVersion("shard "+s.ID.String(), b[8:], shardVersion); err != nil {
		return nil, err
	}
	if ID(b[16:32]) != remote || int64(le.Uint64(b[32:])) != s.Items {
		return nil, s.corrupt("of %d items, of remote %s", le.Uint64(b[32:]), ID(b[16:32]))
	}
	d := &ShardDirectory{Shard: s}
	for e := range slices.Chunk(p, entrySize) {
		d.first = append(d.first, Digest(binary.BigEndian.Uint64(e)))
		d.sums = append(d.sums, le.Uint32(e[8:]))
	}
	return d, nil
}

// Block is the number of the block that has a digest, if any has.
func (d *ShardDirectory) Block(x Digest) (n int, ok bool) {
	n = sort.Search(len(d.first), func(i int) bool { return d.first[i] > x })
	return n - 1, n > 0
}

// Range is where a block lies.
func (d *ShardDirectory) Range(n int) (off, size int64) {
	off = int64(n) * blockItems * itemSize
	return off, min(blockItems*itemSize, d.Directory()-off)
}

// Find looks a digest up in the bytes of block n.
func (d *ShardDirectory) Find(n int, p []byte, x Digest) (at Ref, ok bool, err error) {
	items, err := d.read(nil, n, p)
	if err != nil {
		return Ref{}, false, err
	}
	i := sort.Search(len(items), func(i int) bool { return items[i].Digest >= x })
	if i == len(items) || items[i].Digest != x {
		return Ref{}, false, nil
	}
	return items[i].Plan, true, nil
}

// read appends the items of block n, whose bytes p are.
func (d *ShardDirectory) read(items []Item, n int, p []byte) ([]Item, error) {
	if _, size := d.Range(n); int64(len(p)) != size || crc(p) != d.sums[n] {
		return nil, d.corrupt("block %d of %d bytes", n, len(p))
	}
	items = slices.Grow(items, len(p)/itemSize)
	begin := len(items)
	for e := range slices.Chunk(p, itemSize) {
		x := Item{Digest: Digest(binary.BigEndian.Uint64(e)), Plan: Ref{Object: ID(e[8:24]),
			Off: int64(le.Uint32(e[24:])) * 8, Stored: le.Uint32(e[28:])}}
		if err := checkRange(x.Plan.Off, int64(x.Plan.Stored), MaxObject); err != nil {
			return nil, d.corrupt("block %d: %v", n, err)
		}
		if len(items) > begin && items[len(items)-1].Digest >= x.Digest {
			return nil, d.corrupt("block %d: item %x", n, x.Digest)
		}
		items = append(items, x)
	}
	if items[begin].Digest != d.first[n] {
		return nil, d.corrupt("block %d begins with %x", n, items[begin].Digest)
	}
	return items, nil
}
