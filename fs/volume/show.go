package volume

import (
	"context"
	"io/fs"
	"sort"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/fs/control"
	"ckptfs/index/manifest"
)

// maxShared bounds the paths that Show names for one tensor.
const maxShared = 16

// Show describes one file and its tensors.
func (v *Volume) Show(ctx context.Context, path string) (*control.File, error) {
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
	if n.view != nil {
		out.View = true
		out.Format = "safetensors"
		n = n.view.src
	}
	if n.file == nil {
		return nil, &fs.PathError{Op: "show", Path: path, Err: errNotRegular}
	}
	layout, m, err := v.layoutOf(n, out)
	if err != nil {
		return nil, &fs.PathError{Op: "show", Path: path, Err: err}
	}
	if out.Format == "" {
		out.Format = layout.Format
		out.Artifact = v.showArtifact(ctx, n, layout)
	}
	var digests []cas.Hash
	if m != nil {
		digests = tensorDigests(m)
		if out.Stored, err = v.storedBytes(m); err != nil {
			return nil, err
		}
	}
	for i := range layout.Tensors {
		t := &layout.Tensors[i]
		ct := control.Tensor{Name: t.Name, DType: string(t.DType), Shape: t.Shape, Bytes: t.NumBytes(), SharedWith: []string{}}
		if ct.Shape == nil {
			ct.Shape = []int64{}
		}
		if t.Region >= 0 {
			ct.Offset = layout.Regions[t.Region].Off + t.Offset
			if digests != nil && !digests[i].IsZero() {
				ct.Hash = digests[i].String()
			}
		}
		out.Tensors = append(out.Tensors, ct)
	}
	sort.SliceStable(out.Tensors, func(i, j int) bool { return out.Tensors[i].Offset < out.Tensors[j].Offset })
	if m != nil {
		err = v.findShared(ctx, n, out.Tensors)
	}
	return out, err
}

// quickArtifact bounds the tensors that Show reads for an artifact id that is not known, in bytes.
const quickArtifact = 256 << 20

// showArtifact is the artifact id that Show prints: one that is known or found quickly.
func (v *Volume) showArtifact(ctx context.Context, n *Node, l *formats.Layout) string {
	id, ok, err := v.knownArtifact(n)
	if !ok && err == nil {
		var size int64
		for i := range l.Tensors {
			size += l.Tensors[i].NumBytes()
		}
		if size > quickArtifact {
			return ""
		}
		id, err = v.Artifact(ctx, n)
	}
	if err != nil {
		return ""
	}
	return id.String()
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
	return detect.Detect(raw, st.Size())
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
