package volume

import (
	"context"
	"errors"
	"io/fs"
	"sort"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/canonical"
	"ckptfs/fs/control"
	"ckptfs/index/manifest"
)

// maxShared bounds the paths that Show names for one tensor.
const maxShared = 16

// Show describes one file and its tensors, or the arrays of an Orbax checkpoint's folder.
func (v *Volume) Show(ctx context.Context, path string) (*control.File, error) {
	return v.Inspect(ctx, path, control.InspectOptions{}, nil)
}

// Inspect is Show, and what it takes a reading of the tensors to say. progress may be nil.
func (v *Volume) Inspect(ctx context.Context, path string, o control.InspectOptions, progress func(control.Progress)) (*control.File, error) {
	n, err := v.resolve(path)
	if err != nil {
		return nil, &fs.PathError{Op: "show", Path: path, Err: err}
	}
	defer v.unref(n, 1)
	out := &control.File{Path: path, State: control.StateResident, Tensors: []control.Tensor{}}
	a, err := v.Stat(n)
	if err != nil {
		return nil, err
	}
	out.Size = a.Size
	var only *formats.Tensor
	if n.view != nil {
		out.View = true
		out.Format, only = n.view.format(), n.view.npy
		n = n.view.src
	}
	if n.IsDir() && n.virt == nil {
		out.State = ""
		if err := v.showFolder(ctx, n, path, out); err != nil {
			return nil, &fs.PathError{Op: "show", Path: path, Err: err}
		}
		return out, nil
	}
	if n.file == nil {
		return nil, &fs.PathError{Op: "show", Path: path, Err: errNotRegular}
	}
	if set, err := v.showSharded(ctx, path, out); err != nil {
		return nil, &fs.PathError{Op: "show", Path: path, Err: err}
	} else if set {
		return out, nil
	}
	layout, m, err := v.layoutOf(n, out)
	if err != nil {
		return nil, &fs.PathError{Op: "show", Path: path, Err: err}
	}
	if out.Format == "" {
		out.Format = layout.Format
		if out.Artifact, err = v.showArtifact(ctx, n, layout, o.Artifact); err != nil {
			return nil, &fs.PathError{Op: "show", Path: path, Err: err}
		}
	}
	var digests []cas.Hash
	if m != nil {
		digests = tensorDigests(m)
		if out.Stored, err = v.storedBytes(m); err != nil {
			return nil, err
		}
	}
	order := make([]int, 0, len(layout.Tensors))
	for i := range layout.Tensors {
		if only == nil || layout.Tensors[i].Name == only.Name {
			order = append(order, i)
		}
	}
	sort.SliceStable(order, func(i, j int) bool { return tensorOffset(layout, order[i]) < tensorOffset(layout, order[j]) })
	for _, i := range order {
		out.Tensors = append(out.Tensors, tensorOf(layout, i, digests))
	}
	if m != nil {
		err = v.findShared(ctx, n, out.Tensors)
	}
	if err == nil && o.Stats {
		err = v.tensorStats(ctx, &comparand{path: path, node: n, layout: layout}, order, out.Tensors, progress)
	}
	return out, err
}

// tensorOf describes a tensor. digests are those of the layout's tensors; nil: not known.
func tensorOf(l *formats.Layout, i int, digests []cas.Hash) control.Tensor {
	t := &l.Tensors[i]
	ct := control.Tensor{Name: t.Name, DType: string(t.DType), Shape: t.Shape, Bytes: t.NumBytes(), SharedWith: []string{}}
	if ct.Shape == nil {
		ct.Shape = []int64{}
	}
	if t.Region >= 0 {
		ct.Offset = tensorOffset(l, i)
		if digests != nil && !digests[i].IsZero() {
			ct.Hash = digests[i].String()
		}
	}
	return ct
}

// tensorOffset is where a tensor's element 0 lies in the file; 0 for one without bytes.
func tensorOffset(l *formats.Layout, i int) int64 {
	t := &l.Tensors[i]
	if t.Region < 0 {
		return 0
	}
	return l.Regions[t.Region].Off + t.Offset
}

// quickArtifact bounds the tensors that Show reads for an artifact id that is not known, in bytes.
const quickArtifact = 256 << 20

// showArtifact is the artifact id that Show prints: one that is known or found quickly, unless it must be there. "" when there is
// none.
func (v *Volume) showArtifact(ctx context.Context, n *Node, l *formats.Layout, must bool) (string, error) {
	id, ok, err := v.knownArtifact(n)
	if !ok && err == nil {
		var size int64
		for i := range l.Tensors {
			size += l.Tensors[i].NumBytes()
		}
		if size > quickArtifact && !must {
			return "", nil
		}
		id, err = v.Artifact(ctx, n)
	}
	switch {
	case errors.Is(err, canonical.ErrNoID), err != nil && !must: // what is damaged is not what was asked about
		return "", nil
	case err != nil:
		return "", err
	}
	return id.String(), nil
}

// layoutOf is the file's layout, and its manifest if it is packed.
func (v *Volume) layoutOf(n *Node, out *control.File) (*formats.Layout, *manifest.Manifest, error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	l, err := v.layoutNow(n)
	if err != nil || !f.rec.Packed() {
		return l, nil, err
	}
	out.State = control.StatePacked
	if !f.rec.Hollow {
		out.State = control.StateBoth
	}
	out.Manifest = f.rec.Manifest.String()
	m, err := v.asm.Manifest(f.rec.Manifest)
	return l, m, err
}

// layoutNow is the layout of a file's present bytes. f.mu is held.
func (v *Volume) layoutNow(n *Node) (*formats.Layout, error) {
	f := n.file
	if err := v.load(n); err != nil {
		return nil, err
	}
	if f.damaged != nil {
		return nil, f.damaged
	}
	if f.rec.Packed() {
		m, err := v.asm.Manifest(f.rec.Manifest)
		if err != nil {
			return nil, err
		}
		return m.Layout(), nil
	}
	if err := v.vet(n); err != nil {
		return nil, err
	}
	if f.damaged != nil {
		return nil, f.damaged
	}
	raw, err := v.openQuietly(n)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	st, err := raw.Stat()
	if err != nil {
		return nil, err
	}
	return v.detect(n, raw, st.Size())
}

// tensorDigests is each tensor's storage by the object it lies in; zero for one without bytes, or with several objects.
func tensorDigests(m *manifest.Manifest) []cas.Hash {
	byOff := map[int64]int32{} // file offset of an extent that is a whole object
	var off int64
	for _, e := range m.Extents {
		if e.Object >= 0 && e.ObjOff == 0 && e.Len == m.Objects[e.Object].Len {
			byOff[off] = e.Object
		}
		off += e.Len
	}
	out := make([]cas.Hash, len(m.Tensors))
	for i, t := range m.Tensors {
		if t.Region < 0 {
			continue
		}
		r := m.Regions[t.Region]
		if o, ok := byOff[r.Off]; ok && m.Objects[o].Len == r.Len {
			out[i] = m.Objects[o].Digest
		}
	}
	return out
}

// storedBytes is what a manifest's chunks take in the segments.
func (v *Volume) storedBytes(m *manifest.Manifest) (int64, error) {
	seen := map[cas.Hash]bool{}
	var hashes []cas.Hash
	for _, o := range m.Objects {
		spans, err := v.spans(o)
		if err != nil {
			return 0, err
		}
		for _, s := range spans {
			if !seen[s.Hash] {
				seen[s.Hash] = true
				hashes = append(hashes, s.Hash)
			}
		}
	}
	locs := make([]cas.Location, len(hashes))
	if err := v.store.Locate(hashes, locs); err != nil {
		return 0, err
	}
	var sum int64
	for _, l := range locs {
		sum += recordSize(l)
	}
	return sum, nil
}

// findShared fills in which other files hold a tensor's bytes.
func (v *Volume) findShared(ctx context.Context, self *Node, tensors []control.Tensor) error {
	want := map[string][]int{}
	for i, t := range tensors {
		if t.Hash != "" {
			want[t.Hash] = append(want[t.Hash], i)
		}
	}
	err := v.walk(ctx, "", func(path string, n *Node) error {
		if n == self {
			return nil
		}
		n.file.mu.Lock()
		err := v.load(n)
		rec := n.file.rec
		n.file.mu.Unlock()
		if err != nil || !rec.Packed() {
			return nil
		}
		m, err := v.asm.Manifest(rec.Manifest)
		if err != nil {
			return nil // damaged, and not what was asked about
		}
		for _, o := range m.Objects {
			for _, i := range want[o.Digest.String()] {
				tensors[i].SharedWith = append(tensors[i].SharedWith, path)
			}
		}
		return nil
	})
	for i := range tensors {
		t := &tensors[i]
		sort.Strings(t.SharedWith)
		t.Shared = len(t.SharedWith)
		t.SharedWith = t.SharedWith[:min(t.Shared, maxShared)]
	}
	return err
}
