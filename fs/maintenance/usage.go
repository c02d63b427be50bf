package maintenance

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

// usage adds up what the files of a store refer to. Like the mark of a sweep it reads every manifest, so its
// cost grows with the store. Nothing is counted while files are saved.
type usage struct {
	passes    *Passes
	stats     control.Stats
	inodes    map[uint64]bool
	manifests map[cas.Hash]bool
	objects   map[cas.Hash]bool
	chunks    map[cas.Hash]bool
	runs      map[string]*runUsage
	order     []*runUsage
}

type runUsage struct {
	control.RunStats
	steps   map[string]bool
	objects map[cas.Hash]bool
	chunks  map[cas.Hash]bool
}

// Stats counts what the store holds and what it costs.
func (p *Passes) Stats(ctx context.Context) (*control.Stats, error) {
	u := &usage{
		passes: p, inodes: map[uint64]bool{}, manifests: map[cas.Hash]bool{}, objects: map[cas.Hash]bool{},
		chunks: map[cas.Hash]bool{}, runs: map[string]*runUsage{},
	}
	if err := p.Names.Walk(ctx, u.file); err != nil {
		return nil, err
	}
	s := &u.stats
	var err error
	if s.SegmentBytes, err = Allocated(p.Folder, tree.SegmentsDir); err != nil {
		return nil, err
	}
	if s.IndexBytes, err = Allocated(p.Folder, tree.IndexFile); err != nil {
		return nil, err
	}
	s.Chunks, s.Manifests = int64(len(u.chunks)), int64(len(u.manifests))
	s.StoredBytes = s.SegmentBytes + s.IndexBytes
	if s.DeadBytes, err = u.dead(); err != nil {
		return nil, err
	}
	if s.StoredBytes > 0 {
		s.Ratio = float64(s.PackedBytes) / float64(s.StoredBytes)
	}
	s.Runs = []control.RunStats{}
	for _, r := range u.order {
		r.Steps = int64(len(r.steps))
		s.Runs = append(s.Runs, r.RunStats)
	}
	return s, nil
}

func (u *usage) file(path string, n *names.Node) error {
	a, err := n.Attr()
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	run := u.run(path)
	if u.inodes[n.Ino()] {
		return nil // another hard link
	}
	u.inodes[n.Ino()] = true
	s := &u.stats
	s.Files++
	s.LogicalBytes += a.Size
	if run != nil {
		run.Files++
		run.LogicalBytes += a.Size
	}
	var st unix.Stat_t
	n.File().Lock()
	rec := n.File().StateLocked().Record
	err = n.Stat(&st)
	n.File().Unlock()
	if err == nil && !rec.Hollow {
		s.LocalBytes += st.Blocks * 512
	}
	if rec.Lost {
		s.Lost++
	}
	if !rec.Packed() {
		s.PlainBytes += a.Size
		return nil
	}
	s.Packed++
	s.PackedBytes += a.Size
	return u.manifest(rec.Manifest, run)
}

func (u *usage) run(path string) *runUsage {
	parts := strings.Split(path, "/")
	if len(parts) < 3 || parts[0] != "runs" {
		return nil
	}
	r := u.runs[parts[1]]
	if r == nil {
		r = &runUsage{steps: map[string]bool{}, objects: map[cas.Hash]bool{}, chunks: map[cas.Hash]bool{}}
		r.Run = parts[1]
		u.runs[parts[1]] = r
		u.order = append(u.order, r)
	}
	if len(parts) > 3 {
		r.steps[parts[2]] = true
	}
	return r
}

func (u *usage) manifest(h cas.Hash, run *runUsage) error {
	m, err := u.passes.Assemble.Manifest(h)
	if err != nil {
		return u.damaged(err)
	}
	if !u.manifests[h] {
		u.manifests[h] = true
		u.stats.Tensors += int64(len(m.Tensors))
	}
	for _, o := range m.Objects {
		if u.objects[o.Digest] && (run == nil || run.objects[o.Digest]) {
			continue
		}
		u.objects[o.Digest] = true
		if run != nil {
			run.objects[o.Digest] = true
		}
		spans, err := o.Spans(u.passes.Store.Get)
		if err != nil {
			return u.damaged(err)
		}
		for _, s := range spans {
			u.chunk(s, run)
		}
	}
	return nil
}

// damaged counts a file whose manifest or lists cannot be read, and goes on with the others.
func (u *usage) damaged(err error) error {
	if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) {
		u.stats.Damaged++
		return nil
	}
	return err
}

func (u *usage) chunk(s manifest.Span, run *runUsage) {
	fresh := !u.chunks[s.Hash]
	if fresh {
		u.chunks[s.Hash] = true
		u.stats.UniqueBytes += int64(s.Len)
	}
	if run != nil && !run.chunks[s.Hash] {
		run.chunks[s.Hash] = true
		run.UniqueBytes += int64(s.Len)
		if fresh {
			run.NewBytes += int64(s.Len)
		}
	}
}

// dead is the bytes of segments that no file needs. It counts the deltas on the way.
func (u *usage) dead() (int64, error) {
	hashes := make([]cas.Hash, 0, len(u.chunks)+len(u.objects)+len(u.manifests))
	for _, set := range []map[cas.Hash]bool{u.chunks, u.objects, u.manifests} {
		for h := range set {
			hashes = append(hashes, h)
		}
	}
	if err := u.passes.Models.Mark(false, func(h cas.Hash) { hashes = append(hashes, h) }); err != nil {
		return 0, err
	}
	locs := make([]cas.Location, len(hashes))
	if err := u.passes.Store.Locate(hashes, locs); err != nil {
		return 0, err
	}
	live := map[cas.Location]bool{}
	var bytes int64
	for _, l := range locs {
		if l.Segment != 0 && !live[l] {
			live[l] = true
			bytes += l.RecordSize()
		}
	}
	st := &u.stats
	for i, l := range locs {
		if !l.Delta {
			continue
		}
		st.Deltas++
		st.DeltaRawBytes += int64(l.Raw)
		st.DeltaBytes += l.RecordSize()
		links, _ := u.passes.Store.Bases(hashes[i], l) // a base that is lost takes no room
		for _, b := range links {
			if b.Loc.Segment != 0 && !live[b.Loc] {
				live[b.Loc] = true
				bytes += b.Loc.RecordSize()
				st.BaseBytes += b.Loc.RecordSize()
			}
		}
	}
	return max(u.stats.SegmentBytes-bytes, 0), nil
}
