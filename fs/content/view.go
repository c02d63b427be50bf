package content

import (
	"ckptfs/formats"
	"ckptfs/fs/view"
)

// ViewSizeLocked is the size of the file's view, or 0. Of a file that is not packed it is measured once for
// each generation of its bytes.
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
	return f.Detect(raw, st.Size())
}
