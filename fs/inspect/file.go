package inspect

import (
	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/fs/control"
	"ckptfs/index/manifest"
)

// comparand is a file as diff and find see it.
type comparand struct {
	path    string
	node    *Node // of the file, or of a view's source
	size    int64
	layout  *formats.Layout
	digests []cas.Hash                // of each tensor's storage; nil for a file that is not packed
	whole   cas.Hash                  // the manifest; zero for a file that is not packed
	stored  map[int64]manifest.Object // by where it lies, of what is one object; nil: not asked for yet
	hidden  cas.Hash                  // of a partial layout that is packed: the data in which no tensor lies
}

// comparandOf looks at one file. n stays referenced as long as the caller's reference does.
func (v *Volume) comparandOf(p string, n *Node) (*comparand, error) {
	a, err := v.Stat(n)
	if err != nil {
		return nil, err
	}
	if n.view != nil {
		n = n.view.src
	}
	var out control.File
	layout, m, err := v.layoutOf(n, &out)
	if err != nil {
		return nil, err
	}
	f := &comparand{path: p, node: n, size: a.Size, layout: layout}
	if m != nil {
		f.digests = m.Digests()
		if layout.Partial {
			f.hidden = m.Hidden()
		}
		n.file.mu.Lock()
		f.whole = n.file.rec.Manifest
		n.file.mu.Unlock()
	}
	return f, nil
}

// digest is that of the storage of a tensor; zero when there is none.
func (f *comparand) digest(i int) cas.Hash {
	if f.digests == nil {
		return cas.Hash{}
	}
	return f.digests[i]
}

// storedAt is the hash of n bytes of a file; zero when they are no object of their own.
func (v *Volume) storedAt(f *comparand, off, n int64) cas.Hash {
	if f == nil || f.whole.IsZero() {
		return cas.Hash{}
	}
	if f.stored == nil {
		f.stored = map[int64]manifest.Object{}
		if m, err := v.asm.Manifest(f.whole); err == nil {
			f.stored = m.WholeObjects()
		}
	}
	if o := f.stored[off]; o.Len == n {
		return o.Digest
	}
	return cas.Hash{}
}
