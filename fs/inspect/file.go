package inspect

import (
	"io"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// file is a file as diff and find see it.
type file struct {
	path    string
	node    File // of the file, or of a view's source
	size    int64
	layout  *formats.Layout
	doc     *manifest.Manifest        // nil for a file that is not packed
	digests []cas.Hash                // of each tensor's storage; nil for a file that is not packed
	whole   cas.Hash                  // the manifest; zero for a file that is not packed
	stored  map[int64]manifest.Object // by where it lies, of what is one object; nil: not asked for yet
	hidden  cas.Hash                  // of a partial layout that is packed: the data in which no tensor lies
	kept    *opened                   // nil: it is opened for each reader
}

// opened is a file that is open for several readers, one after the other.
type opened struct {
	src  io.ReaderAt
	done func() // nil: nobody read it yet
}

// keep has the file opened once for all that read it until release is called: what is found out about a file
// with very many tensors when it is read is found out once.
func (f *file) keep() (release func()) {
	k := &opened{}
	f.kept = k
	return func() {
		f.kept = nil
		if k.done != nil {
			k.done()
		}
	}
}

// open makes the bytes readable until done is called.
func (f *file) open() (src io.ReaderAt, done func(), err error) {
	k := f.kept
	if k == nil {
		src, _, done, err = f.node.Open()
		return src, done, err
	}
	if k.done == nil {
		if src, _, done, err = f.node.Open(); err != nil {
			return nil, nil, err
		}
		k.src, k.done = src, done
	}
	return k.src, func() {}, nil
}

// fileOf looks at one file. n stays referenced as long as the caller's reference does.
func (ins *Inspector) fileOf(p string, n File) (*file, error) {
	info, err := n.Info()
	if err != nil {
		return nil, err
	}
	if info.View != nil {
		n = info.View.Source
	}
	c, err := n.Contents()
	if err != nil {
		return nil, err
	}
	f := &file{path: p, node: n, size: info.Size, layout: c.Layout}
	if c.Doc != nil {
		f.whole, f.doc, f.digests = c.Manifest, c.Doc, c.Doc.Digests()
		if c.Layout.Partial {
			f.hidden = c.Doc.Hidden()
		}
	}
	return f, nil
}

// digest is that of the storage of a tensor; zero when there is none.
func (f *file) digest(i int) cas.Hash {
	if f.digests == nil {
		return cas.Hash{}
	}
	return f.digests[i]
}

// offset is where the first element of a tensor lies; 0 for one without bytes.
func (f *file) offset(i int) int64 {
	t := &f.layout.Tensors[i]
	if t.Region < 0 {
		return 0
	}
	return f.layout.Regions[t.Region].Off + t.Offset
}

// storedAt is the hash of n bytes of a file; zero when they are no object of their own.
func (ins *Inspector) storedAt(f *file, off, n int64) cas.Hash {
	if f == nil || f.whole.IsZero() {
		return cas.Hash{}
	}
	if f.stored == nil {
		f.stored = map[int64]manifest.Object{}
		if m, err := ins.store.Manifest(f.whole); err == nil {
			f.stored = m.WholeObjects()
		}
	}
	if o := f.stored[off]; o.Len == n {
		return o.Digest
	}
	return cas.Hash{}
}
