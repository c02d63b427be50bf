package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/canonical"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// maxShared bounds the paths that Show names for one tensor.
const maxShared = 16

// Inspect describes one file and its tensors, or those of a set: an index, or a folder that has one, or the
// only checkpoint of a folder; and what it takes a reading of the tensors to say. tensors and
// progress may be nil.
func (ins *Inspector) Inspect(ctx context.Context, path string, o control.InspectOptions,
	tensors control.Passes, progress func(control.Progress)) (*control.File, error) {
	return ins.those(ctx, path, o, nil, tensors, progress)
}

// those is Inspect of the arrays that only accepts; nil: all.
func (ins *Inspector) those(ctx context.Context, path string, o control.InspectOptions,
	only func(a *array) bool, tensors control.Passes,
	progress func(control.Progress)) (*control.File, error) {
	n, err := ins.files.Open(path)
	if err != nil {
		return nil, &fs.PathError{Op: "show", Path: path, Err: err}
	}
	defer n.Unpin()
	out, asked := &control.File{Path: path, State: control.StatePlain}, tensors
	if tensors == nil {
		out.Tensors = []control.Tensor{}
		tensors = func(some []control.Tensor) error {
			out.Tensors = append(out.Tensors, some...)
			return nil
		}
	}
	info, err := n.Info()
	if err != nil {
		return nil, err
	}
	out.Size = info.Size
	var shown *formats.Tensor
	if w := info.View; w != nil {
		out.View = true
		out.Format, shown = w.Format, w.Only
		n = w.Source
	} else if set, err := ins.showSet(ctx, path, n, info, o, only, out, tensors,
		progress); set || err != nil {
		if err == tree.ErrNotRegular && info.Dir {
			if path, err = ins.only(path); err == nil {
				return ins.those(ctx, path, o, only, asked, progress)
			}
			path = out.Path
		}
		if err != nil {
			return nil, &fs.PathError{Op: "show", Path: path, Err: err}
		}
		return out, nil
	}
	c, err := n.Contents()
	if err != nil {
		return nil, &fs.PathError{Op: "show", Path: path, Err: err}
	}
	c.describe(out)
	layout := c.Layout
	if out.Format == "" {
		out.Format = layout.Format
		var why string
		if out.Artifact, why, err = ins.showArtifact(ctx, n, layout, o.Artifact); err != nil {
			return nil, &fs.PathError{Op: "show", Path: path, Err: err}
		}
		out.Notes = ins.notes(n, layout)
		if why != "" {
			out.Notes = append(out.Notes, why)
		}
	}
	f := &file{path: path, node: n, layout: layout}
	if c.Doc != nil {
		f.whole, f.doc, f.digests = c.Manifest, c.Doc, c.Doc.Digests()
		if out.Stored, err = ins.storedBytes(c); err != nil {
			return nil, err
		}
	}
	l := inOrder(f)
	if shown != nil {
		l = l.those(func(a *array) bool { return a.Name == shown.Name })
	}
	return out, ins.tell(ctx, path, l.those(only), []File{n}, o.Stats, tensors, progress)
}

// showSet describes a folder, or what a file is an index of. false: it is a file.
func (ins *Inspector) showSet(ctx context.Context, path string, n File, info Info, o control.InspectOptions,
	only func(a *array) bool, out *control.File, tensors control.Passes,
	progress func(control.Progress)) (bool, error) {
	if !info.Dir && !safetensors.IsIndex(path) && !isDCP(path) && !isONNX(path) {
		return false, nil
	}
	r := newReach(ins)
	defer r.close()
	c, err := r.at(ctx, path)
	if err != nil || c.one != nil {
		return false, err
	}
	out.Format = c.format
	if info.Dir {
		out.State, out.Size = "", 0
		err = ins.files.Walk(ctx, path, func(_ string, n File) error {
			info, err := n.Info()
			out.Size += info.Size
			return err
		})
	} else if c.name != "" { // an index
		out.State, out.Size = "", 0
		for _, f := range c.files[1:] {
			out.Size += f.size
		}
	}
	if err == nil && info.Regular && c.name == "" { // a file that something beside it describes
		var now *Contents
		if now, err = n.Contents(); err == nil {
			now.describe(out)
			if now.Doc != nil {
				out.Stored, err = ins.storedBytes(now)
			}
		}
	}
	if err != nil {
		return true, err
	}
	out.Notes = append(out.Notes, c.notes...)
	if len(c.objects) > 0 {
		out.Notes = append(out.Notes, notListed("objects that are no tensors", len(c.objects)))
	}
	if len(c.arrays) > 0 {
		out.Notes = append(out.Notes, "no artifact id: it is one of a file, and these are of several")
	}
	unread := map[string]int{}
	for i := range c.arrays {
		if z := c.arrays[i].zarr; z != nil && z.Unread() != nil {
			unread[z.Unread().Error()]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(unread)) {
		out.Notes = append(out.Notes, fmt.Sprintf("elements %s (%d)", why, unread[why]))
	}
	members := make([]File, len(c.files))
	for i, f := range c.files {
		members[i] = f.node
	}
	return true, ins.tell(ctx, path, listed(c.arrays).those(only), members, o.Stats, tensors, progress)
}

func describeArrays(arrays []array) []control.Tensor {
	out := make([]control.Tensor, len(arrays))
	for i := range arrays {
		a := &arrays[i]
		t := &out[i]
		*t = control.Tensor{Name: a.Name, DType: string(a.DType), Shape: shapeOf(&a.Tensor),
			Bytes: max(a.NumBytes(), 0), SharedWith: []string{}, Offset: a.offset()}
		if h := a.digest(); !h.IsZero() {
			t.Hash = h.String()
		}
		if a.grid != nil {
			t.Pieces = len(a.pieces)
		}
	}
	return out
}

// quickArtifact bounds the tensors that Show reads for an artifact id that is not known, in bytes.
const quickArtifact = 256 << 20

// showArtifact is the artifact id that Show prints: one that is known or found quickly, unless it must be
// there. Or else why there is none.
func (ins *Inspector) showArtifact(ctx context.Context, n File, l *formats.Layout,
	must bool) (id, why string, err error) {
	known, ok, err := ins.artifacts.Known(n)
	if !ok && err == nil {
		var size int64
		for i := range l.Tensors {
			size += l.Tensors[i].NumBytes()
		}
		if size > quickArtifact && !must {
			return "", "the artifact id is not known: of so many tensors `ckptfs show --artifact` computes it", nil
		}
		known, err = ins.artifacts.Of(ctx, n)
	}
	switch {
	case errors.Is(err, canonical.ErrNoID):
		return "", err.Error(), nil
	case err != nil && !must: // what is damaged is not what was asked about
		return "", "", nil
	case err != nil:
		return "", "", err
	}
	return known.String(), "", nil
}

// describe says of a file how it is stored.
func (c *Contents) describe(out *control.File) {
	if c.Doc == nil {
		return
	}
	out.State = control.StatePacked
	if c.Resident {
		out.State = control.StateResident
	}
	out.Manifest = c.Manifest.String()
}

// storedBytes is what a packed file's chunks take in the segments.
func (ins *Inspector) storedBytes(c *Contents) (int64, error) {
	hashes := make([]cas.Hash, 0, len(c.Doc.Objects))
	for i := range c.Doc.Objects {
		spans, err := ins.spans(c.Manifest, &c.Doc.Objects[i])
		if err != nil {
			return 0, err
		}
		for _, s := range spans {
			hashes = append(hashes, s.Hash)
		}
	}
	slices.SortFunc(hashes, func(a, b cas.Hash) int { return bytes.Compare(a[:], b[:]) })
	var sum int64
	locs := make([]cas.Location, 4096)
	for some := range slices.Chunk(slices.Compact(hashes), len(locs)) {
		if err := ins.store.Locate(some, locs[:len(some)]); err != nil {
			return 0, err
		}
		for _, l := range locs[:len(some)] {
			sum += l.RecordSize()
		}
	}
	return sum, nil
}

// findShared notes which other files hold a tensor's bytes.
func (ins *Inspector) findShared(ctx context.Context, tensors []control.Tensor, self ...File) error {
	want := map[cas.Hash][]int{}
	for i := range tensors {
		if tensors[i].Hash == "" {
			continue
		}
		if h, err := cas.ParseHash(tensors[i].Hash); err == nil {
			want[h] = append(want[h], i)
		}
	}
	if len(want) == 0 {
		return nil
	}
	err := ins.files.Walk(ctx, "", func(path string, n File) error {
		if slices.Contains(self, n) {
			return nil
		}
		h, err := n.Manifest()
		if err != nil || h.IsZero() {
			return nil
		}
		m, err := ins.store.Manifest(h)
		if err != nil {
			return nil // damaged, and not what was asked about
		}
		for _, o := range m.Objects {
			for _, i := range want[o.Digest] {
				share(&tensors[i], path)
			}
		}
		return nil
	})
	return err
}

// share notes a file that holds a tensor's bytes, of which the first few are named.
func share(t *control.Tensor, path string) {
	t.Shared++
	at, _ := slices.BinarySearch(t.SharedWith, path)
	if at == maxShared {
		return
	}
	t.SharedWith = slices.Insert(t.SharedWith, at, path)
	t.SharedWith = t.SharedWith[:min(len(t.SharedWith), maxShared)]
}
