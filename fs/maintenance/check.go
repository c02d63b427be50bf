package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/damage"
	"ckptfs/cas/store"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

const (
	maxProblems     = 1000 // that a check lists; it only counts the others
	maxNamedTensors = 8    // that it names of one file
)

// Check looks for damage and changes nothing. It works while files are saved and removed.
func (p *Passes) Check(
	ctx context.Context, o control.CheckOptions, report func(control.Progress),
) (*control.Checked, error) {
	c := &check{
		passes: p, o: o, out: &control.Checked{Problems: []control.Problem{}},
		bad: map[[16]byte]damage.Finding{}, unindexed: map[[16]byte]bool{}, unread: map[uint32]bool{},
		lists: map[cas.Hash]*objectState{}, copies: p.Last.copies(), evicted: map[string]bool{},
	}
	began := time.Now()
	total := p.Store.Stats().Bytes
	if c.samples() {
		total = int64(float64(total) * o.Subset)
	}
	if err := c.segments(ctx, total, report); err != nil {
		return nil, err
	}
	segments := len(c.out.Problems)
	err := p.tour(ctx, func(path string, n *names.Node, st *unix.Stat_t) error {
		c.count(func() {
			c.out.Files++
			if report != nil && c.out.Files%64 == 1 {
				done := int(c.out.Files)
				report(control.Progress{Phase: "checking files", DoneFiles: done, Current: path})
			}
		})
		if c.file(path, n, st) {
			return c.local(ctx, path, n)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.out.Problems[segments:], func(a, b control.Problem) int {
		return strings.Compare(a.Path, b.Path)
	})
	c.out.LostFound = CountFiles(p.Folder, tree.LostFound)
	c.out.Seconds = time.Since(began).Seconds()
	c.out.ReadSeconds = c.out.Seconds
	is := &control.LastCheck{At: p.Now(), ReadData: o.ReadData}
	p.Last.checked(p, o.ReadData && !c.samples(), c.evicted, c.out, is)
	return c.out, nil
}

// segments checks the segments, of which it reads total bytes, and the index.
func (c *check) segments(ctx context.Context, total int64, report func(control.Progress)) error {
	opt := store.CheckOptions{
		ReadData: c.o.ReadData, Subset: c.o.Subset, Seed: uint64(c.passes.Now().UnixNano()), Found: c.found,
	}
	if report != nil {
		opt.Progress = func(st store.CheckStats) {
			done := control.Progress{Phase: "checking segments", DoneFiles: st.SegmentsLooked,
				TotalFiles: st.Segments, Current: "segments"}
			if c.o.ReadData {
				done.DoneBytes, done.TotalBytes = st.ReadStored, total
			}
			report(done)
		}
	}
	st, err := c.passes.Store.Check(ctx, opt)
	c.out.Segments, c.out.Records, c.out.Entries = int64(st.Segments), st.Records, st.Entries
	c.out.ReadRecords, c.out.ReadBytes = st.Read, st.ReadStored
	return err
}

// samples reports whether only a part of the data is read.
func (c *check) samples() bool { return c.o.Subset > 0 && c.o.Subset < 1 }

// check is one under way.
type check struct {
	passes *Passes
	o      control.CheckOptions

	// What the store's check found, which ends before files are looked at.
	bad       map[[16]byte]damage.Finding
	unindexed map[[16]byte]bool
	unread    map[uint32]bool // segments that the disk does not read, or not all of

	unreached atomic.Bool // the remote is not reached

	copies map[string]bool // files whose local copies were damaged before

	mu      sync.Mutex
	out     *control.Checked
	lists   map[cas.Hash]*objectState // objects of several chunks
	evicted map[string]bool           // of copies: files that have none now
}

// count changes out.
func (c *check) count(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// objectState is what is wrong with an object; nil err: nothing.
type objectState struct {
	err    error
	repair string
	data   bool // as control.Problem has it
}

// sound is the state of all that has nothing wrong with it.
var sound objectState

// errLost is what a record says; nothing restores the bytes.
var errLost = errors.New("the disk did not take all that was written to it: write it again from nothing, or remove it")

func short(h cas.Hash) [16]byte { return [16]byte(h[:16]) }

func (c *check) problem(p control.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Damaged++
	if p.Data {
		c.out.Data++
	}
	if len(c.out.Problems) < maxProblems {
		c.out.Problems = append(c.out.Problems, p)
	}
}

// found takes a finding of the store's check, which calls it from several goroutines, one at a time.
func (c *check) found(f damage.Finding) {
	switch {
	case f.Problem == damage.NotIndexed:
		c.unindexed[short(f.Hash)] = true
		return
	case f.Problem == damage.BadBase:
		c.bad[short(f.Hash)] = f // a file that needs it is damaged
		return
	case f.Problem.Harmless():
		return
	case f.Problem == damage.BadSum: // no file is damaged by it
	case !f.Hash.IsZero():
		c.bad[short(f.Hash)] = f
		if f.Problem == damage.Unreadable && c.unread[f.Segment] {
			return // the segment was named; so are the files
		}
	case f.Problem == damage.Unreadable:
		c.unread[f.Segment] = true
	}
	c.problem(control.Problem{What: f.String(), Repair: f.Problem.Repair(), Data: f.ByData()})
}

// file checks one file, which was found as it is said, and reports whether its resident or plain bytes are
// worth a look.
func (c *check) file(path string, n *names.Node, found *unix.Stat_t) bool {
	f := n.File()
	tell := func(repair string, err error) {
		c.problem(control.Problem{Path: path, What: err.Error(), Repair: repair})
	}
	f.Lock()
	defer f.Unlock()
	err := f.LoadLocked()
	if err == nil && !f.StateLocked().Packed() {
		err = f.VetLocked()
	}
	is := f.StateLocked()
	if err == nil {
		err = is.Damage
	}
	var st unix.Stat_t
	if err == nil {
		st, err = asFound(n, found)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return false // gone meanwhile
	case errors.Is(err, cas.ErrNewer):
		tell("", err)
		return false
	case err != nil:
		tell("tree", err)
		return false
	case is.Record.Lost:
		tell("", errLost)
	}
	if !is.Packed() {
		c.count(func() { c.out.PlainFiles++ })
		return c.o.ReadData && is.Record.Summed
	}
	c.count(func() { c.out.Packed++ })
	if is.Record.Remote {
		c.remote(path, is.Record.Manifest, st.Size)
		return false
	}
	m, err := c.manifest(is.Record.Manifest)
	if err != nil {
		tell(c.repairOf(is.Record.Manifest), err)
		return false
	}
	if is.Record.Hollow && c.copies[path] {
		c.count(func() { c.evicted[path] = true })
	}
	if st.Size != m.Size {
		tell("tree", fmt.Errorf("it has %d bytes, and its manifest says %d", st.Size, m.Size))
	}
	if is.Record.Hollow && !is.Hydrating {
		if err := c.headerLocked(n, &is.Record, st.Size); err != nil {
			tell("tree", err)
		}
	}
	c.extents(path, m)
	return c.o.ReadData && !is.Record.Hollow && !is.Hydrating
}

// headerLocked looks whether a hollow file would be recognised without its record. A file without a header
// is no problem: its local copy may still be there, when it could not be dropped. File.mu is held.
func (c *check) headerLocked(n *names.Node, rec *tree.Record, size int64) error {
	raw, err := n.File().OpenQuietly()
	if err != nil {
		return err
	}
	defer raw.Close()
	head := make([]byte, tree.HeaderSize)
	if _, err := raw.ReadAt(head, 0); err != nil && err != io.EOF {
		return err
	}
	if !tree.LooksHollow(head, c.passes.Files.ID) {
		return nil
	}
	h, err := tree.DecodeHeader(head)
	if err == nil && (h.Record.Manifest != rec.Manifest || h.Size != size) {
		err = fmt.Errorf("the header in its place is not that of its record: %w", cas.ErrCorrupt)
	}
	return err
}

func (c *check) manifest(h cas.Hash) (*manifest.Manifest, error) {
	raw, err := c.passes.Store.Get(h, nil)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return manifest.Decode(raw)
}

// repairOf is the repair that may restore a record.
func (c *check) repairOf(h cas.Hash) string {
	if c.unindexed[short(h)] {
		return "index"
	}
	if f, ok := c.bad[short(h)]; ok && f.Problem.Repair() == "index" {
		return "index"
	}
	return "tree"
}

// extents looks whether every object of a file can be read, and names the tensors that cannot.
func (c *check) extents(path string, m *manifest.Manifest) {
	states := c.states(m.Objects)
	i := slices.IndexFunc(states, func(st *objectState) bool { return st.err != nil })
	if i < 0 {
		return
	}
	pr := control.Problem{Path: path, What: states[i].err.Error(), Repair: states[i].repair,
		Data: states[i].data}
	var off int64
	var ranges [][2]int64 // from and to, in the file, of bytes that cannot be read
	for _, e := range m.Extents {
		if e.Object >= 0 && states[e.Object].err != nil {
			ranges = append(ranges, [2]int64{off, off + e.Len})
		}
		off += e.Len
	}
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if t.Region < 0 {
			continue
		}
		from := m.Regions[t.Region].Off + t.Offset
		to := from + t.NumBytes()
		k := sort.Search(len(ranges), func(k int) bool { return from < ranges[k][1] })
		if k < len(ranges) && ranges[k][0] < to {
			pr.TensorCount++
			if len(pr.Tensors) < maxNamedTensors {
				pr.Tensors = append(pr.Tensors, t.Name)
			}
		}
	}
	c.problem(pr)
}

// states looks at objects: whether their lists can be read, their chunks are in the index, and none is
// damaged.
func (c *check) states(objects []manifest.Object) []*objectState {
	states := make([]*objectState, len(objects))
	single, at := make([]cas.Hash, 0, len(objects)), make([]int, 0, len(objects))
	for i, o := range objects {
		if o.List {
			states[i] = c.list(o)
		} else {
			single, at = append(single, o.Digest), append(at, i)
		}
	}
	for k, st := range c.chunks(single) {
		states[at[k]] = st
	}
	return states
}

// list looks at an object of several chunks, once.
func (c *check) list(o manifest.Object) *objectState {
	c.mu.Lock()
	st := c.lists[o.Digest]
	c.mu.Unlock()
	if st != nil {
		return st
	}
	st = &sound
	spans, err := o.Spans(c.passes.Store.Get)
	if err != nil {
		st = &objectState{err: fmt.Errorf("chunk list: %w", err), repair: c.repairOf(o.Digest)}
	}
	hashes := make([]cas.Hash, len(spans))
	for i := range spans {
		hashes[i] = spans[i].Hash
	}
	for _, chunk := range c.chunks(hashes) {
		if chunk.err != nil {
			st = chunk
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists[o.Digest] = st
	return st
}

// chunks looks at chunks.
func (c *check) chunks(hashes []cas.Hash) []*objectState {
	states, locs := make([]*objectState, len(hashes)), make([]cas.Location, len(hashes))
	err := c.passes.Store.Locate(hashes, locs)
	for i, h := range hashes {
		if states[i] = c.chunk(h, locs[i]); err != nil {
			states[i] = &objectState{err: err}
		}
	}
	return states
}

// chunk looks at the one that is at loc.
func (c *check) chunk(h cas.Hash, loc cas.Location) *objectState {
	f, bad := c.bad[short(h)]
	switch {
	case loc.Segment == 0:
		return &objectState{err: &cas.ChunkError{Hash: h, Err: cas.ErrNotFound}, repair: c.repairOf(h)}
	case bad && f.Segment == loc.Segment && f.Off == loc.Off:
		return &objectState{&cas.ChunkError{Hash: h, Loc: loc, Err: f.Err}, f.Problem.Repair(), f.ByData()}
	case loc.Delta:
		if byData, err := c.bases(h, loc); err != nil {
			return &objectState{err, c.repairOf(h), byData}
		}
	}
	return &sound
}

// bases looks whether the bases of a delta are there and whole, and whether it knows that by their data.
func (c *check) bases(h cas.Hash, loc cas.Location) (byData bool, err error) {
	links, err := c.passes.Store.Bases(h, loc)
	if err != nil {
		return false, &cas.ChunkError{Hash: h, Loc: loc, Err: err}
	}
	for _, l := range links {
		if f, bad := c.bad[short(l.Hash)]; bad && f.Segment == l.Loc.Segment && f.Off == l.Loc.Off {
			base := &cas.ChunkError{Hash: l.Hash, Loc: l.Loc, Err: f.Err}
			return f.ByData(), &cas.ChunkError{Hash: h, Loc: loc, Err: base}
		}
	}
	return false, nil
}
