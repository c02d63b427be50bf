// Package cache keeps ranges of a remote's objects on the local disk: STORE/cache.
//
//	cache/xx/ID   a sparse file as long as the object ID, xx its first two digits; what was read of the object
//	              lies where it lies in the object, and the rest is a hole
//
// Nothing in it is trusted, and nothing is synced. A reader holds each record against its place and its
// hash (package fetch), so a hole, a write that was cut short, or a file that somebody changed is a record
// that is read from the remote again, and written over. There is no index either: at the start the disk tells
// which parts of a file are no holes.
//
// Objects never change and no name is used twice, so what is here never grows old. It is bounded: the object
// that was used longest ago goes first, as a whole. What a reader has open stays readable for it. It makes
// room, too, where less than a fiftieth of the disk is free: that is for what has no other place.
package cache

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// The default bound is a tenth of the disk, and this at most.
const (
	defaultShare = 10
	defaultMax   = 64 << 30
	// freeShare of the disk is left free.
	freeShare = 50
)

// Options of a Cache.
type Options struct {
	Max int64 // bytes; 0: a tenth of the disk, at most 64 GiB
	// Disk is how many bytes the disk has, and has free; nil: the one that the folder lies on.
	Disk func() (size, free int64, err error)
}

// Cache is a folder of ranges. It is safe for concurrent use.
type Cache struct {
	dir  *disk.Folder
	max  int64
	disk func() (size, free int64, err error)

	mu      sync.Mutex
	objects *simplelru.LRU[record.ID, *object] // used last is last
	leaving map[record.ID]bool                 // their files are being removed
	bytes   int64                              // Σ object.have.bytes()
	stats   Stats
}

// object is what is here of one; under Cache.mu.
type object struct {
	size    int64 // of all of it
	have    spans
	touched bool // its file has the time of its use by this process
}

// Stats counts since Open, but for what is there.
type Stats struct {
	Objects           int
	Bytes, Max        int64 // there
	Hits, HitBytes    int64 // ranges that were read here
	Misses, MissBytes int64 // ranges that were not, or not all of them
}

// Open opens the cache in dir, which is its own alone.
func Open(dir *disk.Folder, o Options) (*Cache, error) {
	if o.Disk == nil {
		o.Disk = dir.Space
	}
	if o.Max == 0 {
		size, _, err := o.Disk()
		if err != nil {
			return nil, err
		}
		o.Max = min(size/defaultShare, defaultMax)
	}
	l, _ := simplelru.NewLRU[record.ID, *object](math.MaxInt, nil) // bounded in bytes
	c := &Cache{dir: dir, max: o.Max, objects: l, leaving: map[record.ID]bool{}, disk: o.Disk}
	if err := c.look(); err != nil {
		return nil, err
	}
	c.trim()
	return c, nil
}

// Max is the bound in bytes.
func (c *Cache) Max() int64 { return c.max }

// Stats is what is there, and what was done so far.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Objects, s.Bytes, s.Max = c.objects.Len(), c.bytes, c.max
	return s
}

func fileOf(id record.ID) string { return id.String()[:2] + "/" + id.String() }

// Has reports whether n bytes of an object at off are here, as far as is known.
func (c *Cache) Has(id record.ID, off, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects.Peek(id)
	return ok && !c.leaving[id] && o.have.has(span{off, off + n})
}

// Free removes objects, those used longest ago first, until so many bytes are gone, and returns how many are.
func (c *Cache) Free(n int64) (freed int64) {
	for freed < n {
		id, bytes, ok := c.oldest()
		if !ok {
			break
		}
		freed += bytes
		c.unlink(id)
	}
	return freed
}

// oldest takes the object out that was used longest ago. Its file is to be unlinked; until then nothing of it
// is read or kept, so that another file of that name is not taken for it.
func (c *Cache) oldest() (id record.ID, bytes int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, _, ok = c.objects.GetOldest()
	if !ok {
		return id, 0, false
	}
	return id, c.takeLocked(id), true
}

// takeLocked takes an object out, and returns how many bytes of it there were.
func (c *Cache) takeLocked(id record.ID) (bytes int64) {
	if o, ok := c.objects.Peek(id); ok {
		bytes = o.have.bytes()
		c.objects.Remove(id)
		c.bytes -= bytes
	}
	c.leaving[id] = true
	return bytes
}

// Stored says that so many bytes of an object are in the local store now: what is here of it goes, unless
// most of that is of something else.
func (c *Cache) Stored(id record.ID, bytes int64) {
	c.mu.Lock()
	o, ok := c.objects.Peek(id)
	most := ok && o.have.bytes() <= 2*bytes
	c.mu.Unlock()
	if most {
		c.drop(id)
	}
}

func (c *Cache) unlink(id record.ID) {
	_ = c.dir.Remove(fileOf(id)) // what stays is found at the next start
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leaving, id)
}

// drop removes what is here of an object, unless somebody does.
func (c *Cache) drop(id record.ID) {
	c.mu.Lock()
	busy := c.leaving[id]
	if !busy {
		c.takeLocked(id)
	}
	c.mu.Unlock()
	if !busy {
		c.unlink(id)
	}
}

// open opens an object's file to read a range that is here; nil: it is not.
func (c *Cache) open(id record.ID, off, n int64) (f *os.File, size int64) {
	c.mu.Lock()
	o, ok := c.objects.Get(id)
	ok = ok && !c.leaving[id] && n > 0 && o.have.has(span{off, off + n})
	touch := false
	if ok {
		size, touch, o.touched = o.size, !o.touched, true
		c.stats.Hits++
		c.stats.HitBytes += n
	} else {
		c.stats.Misses++
		c.stats.MissBytes += max(n, 0)
	}
	c.mu.Unlock()
	if !ok {
		return nil, 0
	}
	f, err := c.dir.Open(fileOf(id), os.O_RDONLY, 0)
	if err != nil {
		c.drop(id)
		return nil, 0
	}
	if touch {
		_ = unix.Futimes(int(f.Fd()), nil) // now; it may be read only
	}
	return f, size
}

// create opens an object's file to write to it; nil: it is not to be kept.
func (c *Cache) create(id record.ID, size int64) *os.File {
	if size > record.MaxObject || size <= 0 {
		return nil
	}
	c.mu.Lock()
	o, ok := c.objects.Peek(id)
	leaving := c.leaving[id]
	c.mu.Unlock()
	if ok && o.size != size { // what was said of it before was wrong, or this is
		c.drop(id)
	}
	if leaving {
		return nil
	}
	name := fileOf(id)
	f, err := c.dir.Open(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = c.dir.MkdirAll(name[:2], 0o700); err == nil {
			f, err = c.dir.Open(name, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return nil
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil
	}
	return f
}

// wrote notes that a range of an object of size bytes is here. false: the object left meanwhile.
func (c *Cache) wrote(id record.ID, size int64, s span) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving[id] {
		return false
	}
	o, ok := c.objects.Get(id)
	if !ok {
		o = &object{size: size, touched: true}
		c.objects.Add(id, o)
	}
	if o.size != size {
		return false
	}
	c.bytes += o.have.add(s)
	return true
}

// trim removes objects until the bounds hold.
func (c *Cache) trim() {
	c.mu.Lock()
	over := c.bytes - c.max
	c.mu.Unlock()
	if size, free, err := c.disk(); err == nil {
		over = max(over, size/freeShare-free)
	}
	c.Free(over)
}

// look finds out what is there, and removes what does not belong there.
func (c *Cache) look() error {
	type found struct {
		id   record.ID
		o    *object
		used int64
	}
	var all []found
	err := c.dir.Walk(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		_, id, ok := record.ParseObject(string(record.ClassData) + "/" + path)
		if !ok {
			return c.dir.Remove(path)
		}
		o, used, err := c.parts(path)
		if err != nil {
			return c.dir.Remove(path)
		}
		all = append(all, found{id, o, used})
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.used, b.used) })
	for _, f := range all {
		c.objects.Add(f.id, f.o)
		c.bytes += f.o.have.bytes()
	}
	return nil
}

// parts finds out which parts of a file are no holes. Of a block at the edge of a hole not all need have been
// written; the rest of it reads as zeros, which are no record.
func (c *Cache) parts(path string) (o *object, used int64, err error) {
	f, err := c.dir.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	o = &object{size: st.Size()}
	for at := int64(0); at < o.size; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		to, err := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return nil, 0, err
		}
		at = to
		o.have.add(span{from, to})
	}
	return o, st.ModTime().UnixNano(), nil
}

// Bucket is b, of which what is here is read here, and what is not is kept.
func (c *Cache) Bucket(b bucket.Bucket) bucket.Bucket { return &cached{Bucket: b, c: c, reads: true} }

// Past is b, of which nothing is read here: what is read of it is written over what was wrong. It is Bucket's
// bucket.Past.
func (c *Cache) Past(b bucket.Bucket) bucket.Bucket { return &cached{Bucket: b, c: c} }

// Past is what is read when something here, or nearer than the engine, was wrong.
func (b *cached) Past() bucket.Bucket { return b.c.Past(bucket.Past(b.Bucket)) }

type cached struct {
	bucket.Bucket
	c     *Cache
	reads bool
}

// Get is as of any bucket, but that what is here has no version.
func (b *cached) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	class, id, ok := record.ParseObject(key)
	if !ok || class != record.ClassData && class != record.ClassMeta || n == 0 {
		return b.Bucket.Get(ctx, key, off, n, unless)
	}
	if b.reads {
		if f, size := b.c.open(id, off, n); f != nil {
			info := bucket.Info{Key: key, Size: size, Cached: true}
			return &here{io.NewSectionReader(f, off, n), f}, info, nil
		}
	}
	body, info, err := b.Bucket.Get(ctx, key, off, n, unless)
	if err != nil {
		return nil, info, err
	}
	return &keeper{ReadCloser: body, c: b.c, id: id, size: info.Size, at: off}, info, nil
}

// here reads a range of a file.
type here struct {
	io.Reader
	io.Closer
}

// keeper writes to the cache what is read of a body.
type keeper struct {
	io.ReadCloser
	c    *Cache
	id   record.ID
	size int64 // of the object
	at   int64
	f    *os.File // nil: nothing was written yet, or nothing is to be any more
	done bool     // nothing is to be any more
}

func (k *keeper) Read(p []byte) (int, error) {
	n, err := k.ReadCloser.Read(p)
	if n > 0 && !k.done {
		k.keep(p[:n])
	}
	k.at += int64(n)
	return n, err
}

// keep writes p; what cannot be written is not here, and no error.
func (k *keeper) keep(p []byte) {
	if k.f == nil {
		k.f = k.c.create(k.id, k.size)
	}
	end := k.at + int64(len(p))
	if k.f == nil || end > k.size {
		k.done = true
		return
	}
	if _, err := k.f.WriteAt(p, k.at); err != nil || !k.c.wrote(k.id, k.size, span{k.at, end}) {
		k.done = true
	}
}

func (k *keeper) Close() error {
	if k.f != nil {
		k.f.Close()
		k.c.trim()
	}
	return k.ReadCloser.Close()
}
