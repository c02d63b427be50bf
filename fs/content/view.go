package content

import (
	"errors"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/view"
	"ckptfs/index/manifest"
)

// ViewSizeLocked is the size of the file's view, or 0. It is 0, too, of a remote file before Reach. Of a file
// that is not packed it is measured once for each generation of its bytes.
func (f *File) ViewSizeLocked() int64 {
	if f.rec.Packed() {
		return f.rec.ViewSize
	}
	if of := f.bytes.gen + 1; f.bytes.view.of != of {
		f.bytes.view = viewSize{of, 0} // which it stays if it cannot be measured
		if l, err := f.detectLocked(); err == nil {
			f.bytes.view.size = view.SizeOf(l)
		}
	}
	return f.bytes.view.size
}

// viewSizeOf is the size of the view of a packed file by its manifest, or 0.
func viewSizeOf(m *manifest.Manifest) int64 {
	if m.Format == "blob" {
		return 0
	}
	return view.SizeOf(m.Layout())
}

// HideViewLocked sets whether the file is without its view.
func (f *File) HideViewLocked(hidden bool) error {
	rec := f.rec
	if rec.ViewHidden == hidden {
		return nil
	}
	rec.ViewHidden = hidden
	return f.writeRecordLocked(rec)
}

// LayoutLocked is the layout of a file's present bytes.
func (f *File) LayoutLocked() (*formats.Layout, error) {
	if err := f.LoadLocked(); err != nil {
		return nil, err
	}
	if f.damaged != nil {
		return nil, f.damaged
	}
	if f.rec.Packed() {
		var st unix.Stat_t
		if err := f.node.Stat(&st); err != nil {
			return nil, err
		}
		done, err := f.c.parseAlone(st.Size >= largeFile)
		if err != nil {
			return nil, err
		}
		defer done()
		m, err := f.c.asm.Manifest(f.rec.Manifest)
		if err != nil {
			return nil, err
		}
		return m.Layout(), nil
	}
	if err := f.VetLocked(); err != nil {
		return nil, err
	}
	if f.damaged != nil {
		return nil, f.damaged
	}
	return f.detectLocked()
}

// largeHeader is from what size, in bytes, the header of a safetensors file is not parsed for one tensor.
const largeHeader = 1 << 20

// FindTensorLocked finds the only tensor that is accepts in a plain safetensors file of very many, by a
// layout that has no other. ok is false of any other file, and where all of the layout is needed to tell.
func (f *File) FindTensorLocked(is func(name []byte) bool) (l *formats.Layout, ok bool, err error) {
	if err := f.LoadLocked(); err != nil || f.damaged != nil || f.rec.Packed() {
		return nil, false, nil
	}
	if err := f.VetLocked(); err != nil || f.damaged != nil {
		return nil, false, nil
	}
	raw, err := f.OpenQuietly()
	if err != nil {
		return nil, false, err
	}
	defer raw.Close()
	st, err := raw.Stat()
	if err != nil {
		return nil, false, err
	}
	if n := safetensors.HeaderSize(raw, st.Size()); n < largeHeader || !f.c.pack.Detector().Room(n) {
		return nil, false, nil
	}
	l, err = safetensors.Find(raw, st.Size(), is)
	if errors.Is(err, safetensors.ErrUnsure) || errors.Is(err, formats.ErrNotFormat) {
		return nil, false, nil
	}
	return l, true, err
}

// detectLocked finds the layout of the bytes of a plain file.
func (f *File) detectLocked() (*formats.Layout, error) {
	raw, err := f.OpenQuietly()
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	st, err := raw.Stat()
	if err != nil {
		return nil, err
	}
	header := safetensors.HeaderSize(raw, st.Size()) // 0: another format
	done, err := f.c.parseAlone(header >= largeHeader || header == 0 && st.Size() >= largeFile)
	if err != nil {
		return nil, err
	}
	defer done()
	return f.Detect(raw, st.Size())
}

// largeFile is from what size on, in bytes, a file may have a large header in a format that does not say so.
const largeFile = 16 << 20

// parseAlone waits, if a header is large, until no other such header is parsed, and keeps it so until done is
// called: many who ask at once need the memory for one. It may be called with File.mu held.
func (c *Files) parseAlone(large bool) (done func(), err error) {
	if !large {
		return func() {}, nil
	}
	c.parsing.Lock()
	if err := c.Step("parse"); err != nil {
		c.parsing.Unlock()
		return nil, err
	}
	return c.parsing.Unlock, nil
}
