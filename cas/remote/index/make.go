package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/index/manifest"
)

// making is one round of Make.
type making struct {
	b       bucket.Bucket
	o       Options
	discard bool // nothing that the index has is kept

	head    *record.Head
	version bucket.Version
	stamp   uint32
	next    record.Index
	made    Made

	keepAll bool                         // some heads could not be read: no item is known to be of no file
	live    map[record.Ref]bool          // plans of all files
	fresh   []*record.Entry              // files that are not in the index, in the order of their versions
	items   map[record.Digest]record.Ref // of these
}

func (m *making) round(ctx context.Context) (Made, error) {
	for _, step := range []func(context.Context) error{m.open, m.epochs, m.files, m.read, m.merge, m.commit} {
		if err := step(ctx); err != nil {
			return m.made, err
		}
	}
	return m.made, nil
}

// open reads the head. One is made, if there is none, before anything else is read.
func (m *making) open(ctx context.Context) (err error) {
	m.head, m.version, err = readHead(ctx, m.b, m.o.Remote, "")
	if errors.Is(err, bucket.ErrNotFound) {
		key := record.HeadKey(record.IndexWriter)
		_, err = m.b.Put(ctx, key, bucket.Bytes(nil), bucket.Cond{Absent: true})
		if err != nil && !unsettled(err) {
			return err
		}
		m.head, m.version, err = readHead(ctx, m.b, m.o.Remote, "")
	}
	return err
}

func unsettled(err error) bool {
	return errors.Is(err, bucket.ErrDoubt) || errors.Is(err, bucket.ErrPrecondition) ||
		errors.Is(err, bucket.ErrConflict)
}

// epochs sets the stamp, and up to which epoch all are decided: all are but the newest.
func (m *making) epochs(ctx context.Context) error {
	p, _, err := bucket.Read(ctx, m.b, record.StateKey, record.MaxState, "")
	if errors.Is(err, bucket.ErrNotFound) && m.head.Stamp == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := record.DecodeState(p)
	if err != nil {
		return err
	}
	if s.Remote != m.o.Remote || s.Epoch < m.head.Stamp {
		return fmt.Errorf("%s is of epoch %d of remote %s, and the index of epoch %d: %w", record.StateKey, s.Epoch,
			s.Remote, m.head.Stamp, cas.ErrCorrupt)
	}
	m.stamp, m.next.Made = s.Epoch, s.Epoch
	if s.Epoch == 0 {
		return nil
	}
	if p, _, err = bucket.Read(ctx, m.b, record.EpochKey(s.Epoch), record.MaxObject, ""); err != nil {
		return err
	}
	e, err := record.DecodeEpoch(s.Epoch, p)
	if err == nil && !e.Deleted {
		m.next.Made--
	}
	return err
}

// files finds out which files there are, and which of them are not in the index.
func (m *making) files(ctx context.Context) error {
	h, err := heads.Open(m.b, m.o.Remote, nil)
	if err != nil {
		return err
	}
	if _, err := h.Refresh(ctx); err != nil {
		return err
	}
	m.keepAll = len(h.Problems()) > 0
	m.live = map[record.Ref]bool{}
	seen := map[record.Writer]int64{}
	if !m.discard {
		for _, s := range m.head.Index.Seen {
			seen[s.Writer] = s.Version
		}
	}
	next := maps.Clone(seen)
	for _, root := range record.Roots() {
		all, err := h.Below(ctx, root)
		if err != nil {
			return err
		}
		for _, held := range names.Paths(heads.Lists(all)...) {
			for _, e := range names.Merge(held).Tips {
				next[e.Origin] = max(next[e.Origin], e.Version)
				m.file(e, seen[e.Origin])
			}
		}
	}
	slices.SortStableFunc(m.fresh, func(a, b *record.Entry) int { return cmp.Compare(a.Version, b.Version) })
	for _, w := range slices.Sorted(maps.Keys(next)) {
		m.next.Seen = append(m.next.Seen, record.Replaced{Writer: w, Version: next[w]})
	}
	return nil
}

// file notes a tip, of whose writer all up to a version is in the index.
func (m *making) file(e *record.Entry, seen int64) {
	if e.File == nil || e.File.Manifest.IsZero() {
		return
	}
	m.made.Files++
	m.live[e.File.Plan] = true
	if e.Version > seen {
		m.fresh = append(m.fresh, e)
	}
}

// What is in memory at once: so many bytes of plans, which take up to 20 times as much once decoded, and of
// manifests. One that is longer is alone.
const (
	planBytes     = 4 << 20
	manifestBytes = 64 << 20
)

// portions cuts a list into parts of so many bytes.
func portions[T any](all []T, most int64, size func(T) int64) (parts [][]T) {
	for len(all) > 0 {
		n, sum := 1, size(all[0])
		for n < len(all) && sum+size(all[n]) <= most {
			sum += size(all[n])
			n++
		}
		parts, all = append(parts, all[:n]), all[n:]
	}
	return parts
}

// read makes the items of files that are not in the index.
func (m *making) read(ctx context.Context) error {
	m.made.Added = len(m.fresh)
	m.items = map[record.Digest]record.Ref{}
	r := &fetch.Reader{Bucket: m.b}
	n := int64(0)
	for _, some := range portions(m.fresh, planBytes, func(e *record.Entry) int64 {
		return int64(e.File.Plan.Stored)
	}) {
		if m.o.Say != nil {
			m.o.Say("reading manifests", n)
		}
		n += int64(len(some))
		files, err := m.plans(ctx, r, some)
		if err != nil {
			return err
		}
		for _, part := range portions(files, manifestBytes, func(f planned) int64 {
			return int64(f.plan.Record.Raw)
		}) {
			if err := m.manifests(ctx, r, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// planned is a file whose plan was read.
type planned struct {
	plan *record.Plan
	at   record.Ref
}

// plans reads those of files.
func (m *making) plans(ctx context.Context, r *fetch.Reader, some []*record.Entry) (
	files []planned, err error) {
	refs := make([]record.Ref, len(some))
	for i, e := range some {
		refs[i] = e.File.Plan
	}
	plans, err := r.Plans(ctx, refs)
	for i, p := range plans {
		if p != nil && p.Manifest == some[i].File.Manifest {
			files = append(files, planned{p, refs[i]})
		}
	}
	m.made.Unread += len(some) - len(files)
	return files, err
}

// manifests makes the items of files.
func (m *making) manifests(ctx context.Context, r *fetch.Reader, files []planned) error {
	plans := make([]*record.Plan, len(files))
	for i := range files {
		plans[i] = files[i].plan
	}
	contents, err := r.Manifests(ctx, plans)
	if err != nil {
		return err
	}
	for i, p := range contents {
		doc, err := manifest.Decode(p)
		if err != nil {
			m.made.Unread++
			continue
		}
		m.add(plans[i].Manifest, doc, files[i].at)
	}
	return nil
}

// add makes the items of a file. The last file that has something is its item.
func (m *making) add(h cas.Hash, doc *manifest.Manifest, plan record.Ref) {
	m.items[record.DigestOf(h)] = plan
	for _, o := range doc.Objects {
		if o.Len >= MinObject {
			m.items[record.DigestOf(o.Digest)] = plan
		}
	}
}

// commit makes the head name the shards.
func (m *making) commit(ctx context.Context) error {
	m.made.Shards = len(m.next.Shards)
	for _, s := range m.next.Shards {
		m.made.Items += s.Items
	}
	was := &m.head.Index
	if m.head.Sequence > 0 && was.Made == m.next.Made && slices.Equal(was.Seen, m.next.Seen) &&
		slices.Equal(was.Shards, m.next.Shards) {
		return nil
	}
	next := &record.Head{Remote: m.o.Remote, Instance: m.head.Instance, Sequence: m.head.Sequence + 1,
		Stamp: m.stamp, Time: m.o.Now().UnixNano(), Index: m.next}
	if err := next.DrawCommit(m.o.Random); err != nil {
		return err
	}
	p, err := next.Encode(record.IndexWriter)
	if err != nil {
		return err
	}
	key := record.HeadKey(record.IndexWriter)
	_, err = m.b.Put(ctx, key, bucket.Bytes(p), bucket.Cond{Version: m.version})
	if err == nil || !unsettled(err) && !errors.Is(err, bucket.ErrNotFound) {
		return err
	}
	h, _, again := readHead(ctx, m.b, m.o.Remote, "")
	switch {
	case again != nil && !errors.Is(again, bucket.ErrNotFound):
		return errors.Join(err, again)
	case again == nil && h.Commit == next.Commit:
		return nil
	}
	return fmt.Errorf("%w: %w", errAgain, err)
}
