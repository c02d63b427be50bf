// Package heads is what the heads of a remote say, as they were last read: the entries of every writer, from
// the tails of heads and from the blocks of tables.
//
// Refresh reads the heads that changed. What it read last stays: in memory, and in a Cache for the next
// process. A head that cannot be read now, that is no head of this remote, is gone, or is older than what was
// read, is as it was read last, and Problems says so. Nothing is locked while a request is under way but
// against another Refresh.
package heads

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// Cache keeps the bytes of heads for the next process. What it lost is read again.
type Cache interface {
	// Heads calls f with each head that is kept.
	Heads(f func(w record.Writer, v bucket.Version, p []byte) error) error
	// SetHeads keeps the bytes of heads. The zero Kept is of one that is not there any more.
	SetHeads(map[record.Writer]Kept) error
}

// Kept is the bytes of a head.
type Kept struct {
	Version bucket.Version
	Bytes   []byte
}

// Bounds.
const (
	atOnce        = 16        // requests
	keptDirs      = 256       // directories of tables in memory
	keptBlocks    = 512       // blocks of tables in memory
	largestAnswer = 4 << 20   // bytes of blocks that are read by one request
	readWhole     = 256 << 10 // bytes of a table that is read by one request, since a second takes longer
)

// Heads are the heads of a remote.
type Heads struct {
	bucket bucket.Bucket
	remote record.ID
	cache  Cache

	refresh sync.Mutex // held by Refresh
	hint    bucket.Version

	mu       sync.Mutex
	changes  uint64 // how often heads changed
	heads    map[record.Writer]*head
	problems map[record.Writer]error

	dirs   *lru.Cache[record.ID, *record.Directory]
	blocks *lru.Cache[blockID, []record.Entry]
}

// head is one as it was read last. It never changes.
type head struct {
	version bucket.Version
	*record.Head
}

type blockID struct {
	table record.ID
	block int
}

// forgetful keeps nothing for the next process.
type forgetful struct{}

func (forgetful) Heads(func(record.Writer, bucket.Version, []byte) error) error { return nil }
func (forgetful) SetHeads(map[record.Writer]Kept) error                         { return nil }

// Open knows what the cache has; nil: nothing is kept.
func Open(b bucket.Bucket, remote record.ID, c Cache) (*Heads, error) {
	h := &Heads{bucket: b, remote: remote, cache: c,
		heads: map[record.Writer]*head{}, problems: map[record.Writer]error{}}
	h.dirs, _ = lru.New[record.ID, *record.Directory](keptDirs)
	h.blocks, _ = lru.New[blockID, []record.Entry](keptBlocks)
	if c == nil {
		h.cache = forgetful{}
		return h, nil
	}
	err := c.Heads(func(w record.Writer, v bucket.Version, p []byte) error {
		if got, err := h.decode(w, p); err == nil { // else it is read again
			h.heads[w] = &head{v, got}
		}
		return nil
	})
	return h, err
}

// decode reads a head of this remote.
func (h *Heads) decode(w record.Writer, p []byte) (*record.Head, error) {
	got, err := record.DecodeHead(w, p)
	if err == nil {
		err = got.CheckRemote(w, h.remote)
	}
	return got, err
}

// Poll is Refresh where the hint has changed since the last one. It costs one request otherwise.
func (h *Heads) Poll(ctx context.Context) (changed bool, err error) {
	h.refresh.Lock()
	defer h.refresh.Unlock()
	_, info, err := bucket.Read(ctx, h.bucket, record.HintKey, 1<<10, h.hint)
	switch {
	case errors.Is(err, bucket.ErrUnchanged):
		return false, nil
	case errors.Is(err, bucket.ErrNotFound):
	case err != nil:
		return false, err
	}
	changed, err = h.refreshLocked(ctx)
	if err == nil {
		h.hint = info.Version
	}
	return changed, err
}

// Refresh reads the heads that changed since they were read last, and reports whether there were any.
func (h *Heads) Refresh(ctx context.Context) (changed bool, err error) {
	h.refresh.Lock()
	defer h.refresh.Unlock()
	return h.refreshLocked(ctx)
}

// mostRounds is how often heads are listed at most, where others commit meanwhile.
const mostRounds = 3

// refreshLocked reads heads until all are as one listing had them. One that was read later than another may
// lack the tombstone of what that has still: a collector takes out the entry first, then the tombstone. Where
// there is a commit in each round, that is how it stays.
func (h *Heads) refreshLocked(ctx context.Context) (bool, error) {
	r := &reading{h: h, got: map[record.Writer]*head{}, keep: map[record.Writer]Kept{}}
	for range mostRounds {
		if err := r.round(ctx); err != nil {
			return false, err
		}
		if !r.moved {
			break
		}
	}
	return r.end()
}

// reading is what a Refresh has read.
type reading struct {
	h        *Heads
	mu       sync.Mutex
	got      map[record.Writer]*head // nil: gone
	keep     map[record.Writer]Kept
	problems map[record.Writer]error // of the last round
	moved    bool                    // a head was not as the last round's listing had it
}

// round lists the heads, and reads those that are not as they are known.
func (r *reading) round(ctx context.Context) error {
	listed := map[record.Writer]bucket.Version{}
	for info, err := range r.h.bucket.List(ctx, record.Heads, "") {
		if err != nil {
			return err
		}
		if w, ok := record.ParseHead(info.Key); ok {
			listed[w] = info.Version
		}
	}
	known := r.h.all()
	maps.Copy(known, r.got)
	r.problems, r.moved = map[record.Writer]error{}, false
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	archive := false
	for w, v := range listed {
		old := known[w]
		switch {
		case old != nil && old.version == v:
		case w == record.ArchiveWriter:
			archive = true
		default:
			g.Go(func() error { return r.head(gctx, w, v) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// A fold commits to the archive before it empties the head that it folds: read last, the archive has what
	// such a head had.
	if archive {
		if err := r.head(ctx, record.ArchiveWriter, listed[record.ArchiveWriter]); err != nil {
			return err
		}
	}
	for w := range known {
		if _, ok := listed[w]; !ok {
			r.gone(w)
		}
	}
	return nil
}

// of is the head of a writer as it is known by now.
func (r *reading) of(w record.Writer) *head {
	if got, ok := r.got[w]; ok {
		return got
	}
	return r.h.of(w)
}

// head reads the head of a writer, which was listed with a version. The error is one of the engine's; what is
// wrong with this head alone is a problem.
func (r *reading) head(ctx context.Context, w record.Writer, listed bucket.Version) error {
	p, info, err := bucket.Read(ctx, r.h.bucket, record.HeadKey(w), record.MaxHead, "")
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		r.gone(w)
		return nil
	case errors.Is(err, bucket.ErrTooLarge):
	case err != nil:
		return err
	}
	var got *record.Head
	if err == nil {
		got, err = r.h.decode(w, p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.problems[w] = err
		return nil
	}
	r.moved = r.moved || info.Version != listed
	if old := r.of(w); old != nil && got.Sequence < old.Sequence {
		r.problems[w] = fmt.Errorf("head of %s: commit %d, where commit %d was read before: somebody put an older one in its place, or removed it: %w", w, got.Sequence, old.Sequence, cas.ErrCorrupt)
		return nil // what was read before is what repair makes it from
	}
	r.got[w], r.keep[w] = &head{info.Version, got}, Kept{info.Version, p}
	return nil
}

// gone notes that a head is not there any more.
func (r *reading) gone(w record.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.of(w); old == nil {
		return
	} else if old.Sequence > 0 && !old.Folded && !r.folded(old) {
		r.problems[w] = fmt.Errorf("head of %s: somebody removed it after its commit %d: %w", w, old.Sequence,
			cas.ErrCorrupt)
		return
	}
	r.got[w], r.keep[w] = nil, Kept{}
}

// idle is for how long a writer publishes nothing, at least, before its head is folded.
const idle = 30 * 24 * time.Hour

// folded reports whether a head that is gone may have been folded meanwhile, and been deleted long after
// that.
func (r *reading) folded(old *head) bool {
	archive := r.of(record.ArchiveWriter)
	return archive != nil && time.Unix(0, archive.Time).Sub(time.Unix(0, old.Time)) >= idle
}

// end makes what was read known.
func (r *reading) end() (changed bool, err error) {
	h := r.h
	h.mu.Lock()
	h.problems = r.problems // all: a head that is as it was read is whole, also if it was gone meanwhile
	if len(r.got) > 0 {
		h.changes++
	}
	for w, got := range r.got {
		if got == nil {
			delete(h.heads, w)
		} else {
			h.heads[w] = got
		}
	}
	h.mu.Unlock()
	if len(r.keep) == 0 {
		return false, nil
	}
	return true, h.cache.SetHeads(r.keep)
}

// Note makes a head known that was committed. It reports false, and notes nothing, if others changed the head
// since it was read last: a collector may have taken out of it what hides entries of other heads as they are
// known. Refresh reads all of them then.
func (h *Heads) Note(w record.Writer, version bucket.Version, got *record.Head) (bool, error) {
	if old := h.of(w); old != nil && (got.Stamp != old.Stamp || got.Sequence > old.Sequence+1) {
		return false, nil
	}
	p, err := got.Encode(w)
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	h.heads[w] = &head{version, got}
	h.changes++
	h.mu.Unlock()
	return true, h.cache.SetHeads(map[record.Writer]Kept{w: {version, p}})
}

func (h *Heads) of(w record.Writer) *head {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heads[w]
}

func (h *Heads) all() map[record.Writer]*head {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.heads)
}

// Writers are the writers that have a head, ascending.
func (h *Heads) Writers() []record.Writer { return slices.Sorted(maps.Keys(h.all())) }

// Head is the head of a writer; nil if there is none. It is not to be changed.
func (h *Heads) Head(w record.Writer) *record.Head {
	if got := h.of(w); got != nil {
		return got.Head
	}
	return nil
}

// TookOut reports whether a version that is in no head was taken out of its writer's: it was a tombstone, or
// something had replaced it (package names). A head that is gone, or an older one again, shows nothing.
func (h *Heads) TookOut(r record.Replaced) bool {
	head := h.Head(r.Writer)
	return head != nil && head.Clock >= r.Version && h.Problems()[r.Writer] == nil
}

// Problems are what is wrong with the heads of writers.
func (h *Heads) Problems() map[record.Writer]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.problems)
}

// Changes is a number that is another one once any head has changed.
func (h *Heads) Changes() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changes
}

// Clock is the highest version that any head may have.
func (h *Heads) Clock() (most int64) {
	for _, one := range h.all() {
		most = max(most, one.Clock)
	}
	return most
}

// Of are what one head says.
type Of struct {
	Writer  record.Writer
	Entries []record.Entry // ascending (Entry.Compare); of a path and an origin one
}

// Lists are the entries, by writer.
func Lists(all []Of) [][]record.Entry {
	lists := make([][]record.Entry, len(all))
	for i := range all {
		lists[i] = all[i].Entries
	}
	return lists
}

// Below reads what all heads say of a path and of what is below it, by writer.
func (h *Heads) Below(ctx context.Context, path string) ([]Of, error) {
	return h.each(ctx, func(ctx context.Context, w record.Writer, of *record.Head) (Of, error) {
		return h.below(ctx, w, of, path)
	})
}

// each asks all heads, and returns what those say that say something, by writer.
func (h *Heads) each(ctx context.Context,
	ask func(ctx context.Context, w record.Writer, of *record.Head) (Of, error)) ([]Of, error) {
	all := h.all()
	writers := slices.Sorted(maps.Keys(all))
	out := make([]Of, len(writers))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, w := range writers {
		g.Go(func() (err error) {
			out[i], err = ask(ctx, w, all[w].Head)
			return err
		})
	}
	err := g.Wait()
	out = slices.DeleteFunc(out, func(o Of) bool { return len(o.Entries) == 0 })
	return out, err
}

// Runs are the runs, and what else lies in a shared folder, that any head has entries of, ascending.
func (h *Heads) Runs(ctx context.Context) ([]string, error) {
	runs := map[string]bool{}
	for w, one := range h.all() {
		err := h.runsOf(ctx, w, one, func(run string) { runs[run] = true })
		if err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Keys(runs), record.ComparePaths), nil
}

// Contended are those of the Runs whose names may have several versions: more than one writer has entries of
// them, or the archive, which has those of many.
func (h *Heads) Contended(ctx context.Context) ([]string, error) {
	last := map[string]record.Writer{}
	contended := map[string]bool{}
	for w, one := range h.all() {
		err := h.runsOf(ctx, w, one, func(run string) {
			before, is := last[run]
			if last[run] = w; is && before != w || w == record.ArchiveWriter {
				contended[run] = true
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Keys(contended), record.ComparePaths), nil
}

// runsOf calls f with the runs that one head has entries of, with some more than once.
func (h *Heads) runsOf(ctx context.Context, w record.Writer, one *head, f func(run string)) error {
	for i := range one.Tail {
		f(record.RunOf(one.Tail[i].Path))
	}
	for _, t := range one.Tables {
		d, err := h.directory(ctx, w, t)
		if err != nil {
			return fmt.Errorf("head of %s: %w", w, err)
		}
		for _, run := range d.Runs {
			f(run.Name)
		}
	}
	return nil
}

// below is Below of one head.
func (h *Heads) below(ctx context.Context, w record.Writer, of *record.Head, path string) (Of, error) {
	o := merging{Of: Of{Writer: w}, wanted: func(p string) bool { return record.Below(p, path) }}
	o.add(of.Tail)
	for _, t := range of.Tables { // newest first
		entries, err := h.inTable(ctx, w, t, path)
		if err != nil {
			return o.Of, fmt.Errorf("head of %s: %w", w, err)
		}
		o.add(entries)
	}
	return o.end(), nil
}

// merging is what one head says, where what comes first wins.
type merging struct {
	Of
	wanted func(path string) bool
	seen   map[identity]bool
}

type identity struct {
	path   string
	origin record.Writer
}

func (m *merging) add(entries []record.Entry) {
	if m.seen == nil {
		m.seen = map[identity]bool{}
	}
	for i := range entries {
		e := &entries[i]
		if k := (identity{e.Path, e.Origin}); !m.seen[k] && m.wanted(e.Path) {
			m.seen[k] = true
			m.Entries = append(m.Entries, *e)
		}
	}
}

func (m *merging) end() Of {
	slices.SortFunc(m.Entries, func(a, b record.Entry) int { return a.Compare(&b, m.Writer) })
	return m.Of
}

// inTable reads the blocks of a table that may have entries of a path or below it.
func (h *Heads) inTable(ctx context.Context, w record.Writer, t record.Table, path string) (
	all []record.Entry, err error) {
	d, err := h.directory(ctx, w, t)
	if err != nil {
		return nil, err
	}
	lo, hi := d.Below(path)
	return h.inBlocks(ctx, d, lo, hi)
}

// inBlocks reads blocks of a table, from lo on and before hi.
func (h *Heads) inBlocks(ctx context.Context, d *record.Directory, lo, hi int) (
	all []record.Entry, err error) {
	for lo < hi {
		if got, ok := h.blocks.Get(blockID{d.ID, lo}); ok {
			all, lo = append(all, got...), lo+1
			continue
		}
		n, end := d.Blocks[lo].Len, lo+1
		for end < hi && n+d.Blocks[end].Len <= largestAnswer && !h.blocks.Contains(blockID{d.ID, end}) {
			n, end = n+d.Blocks[end].Len, end+1
		}
		got, err := h.blocksOf(ctx, d.Table, d, lo, end)
		if err != nil {
			return nil, err
		}
		all, lo = append(all, got...), end
	}
	return all, nil
}

// blocksOf reads the blocks [lo, hi) of a table.
func (h *Heads) blocksOf(ctx context.Context, t record.Table, d *record.Directory, lo, hi int) (
	all []record.Entry, err error) {
	var n int64
	for _, b := range d.Blocks[lo:hi] {
		n += b.Len
	}
	err = h.read(ctx, t, d.Blocks[lo].Off, n, func(p []byte) (err error) {
		all, err = h.keepBlocks(d, p, lo, hi)
		return err
	})
	return all, err
}

// directory reads the directory of a table, and of a short table all blocks with it.
func (h *Heads) directory(ctx context.Context, w record.Writer, t record.Table) (
	d *record.Directory, err error) {
	if d, ok := h.dirs.Get(t.ID); ok && d.Table == t {
		return d, nil
	}
	off := t.Directory
	if t.Len <= readWhole {
		off = 0
	}
	err = h.read(ctx, t, off, t.Len-off, func(p []byte) (err error) {
		if d, err = t.Open(w, p[t.Directory-off:]); err == nil && off == 0 {
			_, _ = h.keepBlocks(d, p, 0, len(d.Blocks)) // who reads a damaged one meets it
		}
		return err
	})
	if err == nil {
		h.dirs.Add(t.ID, d)
	}
	return d, err
}

// keepBlocks decodes the blocks [lo, hi) of a table, with which p begins.
func (h *Heads) keepBlocks(d *record.Directory, p []byte, lo, hi int) (all []record.Entry, err error) {
	for i := lo; i < hi; i++ {
		n := d.Blocks[i].Len
		got, err := d.Block(i, p[:n])
		if err != nil {
			return nil, err
		}
		p = p[n:]
		h.blocks.Add(blockID{d.ID, i}, got)
		all = append(all, got...)
	}
	return all, nil
}

// read reads a range of a table, and once more, past every cache, if that or use finds it wrong.
func (h *Heads) read(ctx context.Context, t record.Table, off, n int64, use func(p []byte) error) error {
	err := readOf(ctx, h.bucket, t, off, n, use)
	if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNewer) {
		return readOf(ctx, bucket.Past(h.bucket), t, off, n, use)
	}
	return err
}

func readOf(ctx context.Context, b bucket.Bucket, t record.Table, off, n int64,
	use func(p []byte) error) error {
	key := record.ClassTable.Key(t.ID)
	r, info, err := b.Get(ctx, key, off, n, "")
	if err != nil {
		return err
	}
	defer r.Close()
	if info.Size != t.Len {
		return fmt.Errorf("%s: %d bytes, and its head says %d: %w", key, info.Size, t.Len, cas.ErrCorrupt)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return use(p)
}
