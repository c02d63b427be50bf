package takeout

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// archiver writes one tar.
type archiver struct {
	Taken
	src       Source
	w         *tar.Writer
	firstName map[uint64]string // by inode number: the first name in the archive of a file with several
	meter     *meter
	buf       []byte
}

// Tar writes what is at paths as a tar, named as below base. The same files give the same bytes: sorted by
// name, with times and modes and without owners. What cannot be read ends it: no part of an archive is whole.
func Tar(ctx context.Context, src Source, paths []string, base string, to io.Writer,
	o Options) (*Taken, error) {
	m, err := newMeter(ctx, src, o, paths...)
	if err != nil {
		return nil, err
	}
	a := &archiver{src: src, w: tar.NewWriter(to), firstName: map[uint64]string{}, meter: m,
		buf: make([]byte, bufferSize)}
	a.Skipped = []control.Skip{}
	for _, p := range paths {
		e, err := src.Entry(ctx, p)
		if err == nil {
			err = a.entry(ctx, p, strings.TrimPrefix(strings.TrimPrefix(p, base), "/"), e)
		}
		if err != nil {
			return &a.Taken, err
		}
	}
	return &a.Taken, a.w.Close()
}

// entry writes one name; the root, which has none, is its entries alone.
func (a *archiver) entry(ctx context.Context, from, name string, e *control.Entry) error {
	h := &tar.Header{Name: name, Mode: int64(e.Mode & 0o7777), ModTime: e.Mtime, Format: tar.FormatPAX}
	switch kindOf(e) {
	case unix.S_IFDIR:
		return a.folder(ctx, from, h)
	case unix.S_IFREG:
		return a.file(ctx, from, e, h)
	case unix.S_IFLNK:
		a.Links++
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(e.Target)
		return a.w.WriteHeader(h)
	}
	a.Skipped = append(a.Skipped, control.Skip{Path: from, Reason: notRegular(e)})
	return nil
}

func (a *archiver) folder(ctx context.Context, from string, h *tar.Header) error {
	all, err := List(ctx, a.src, from)
	if err != nil {
		return err
	}
	name := h.Name
	if name != "" {
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := a.w.WriteHeader(h); err != nil {
			return err
		}
	}
	for i := range all {
		e, last := &all[i], string(all[i].Name)
		if e.View {
			continue
		}
		if err := a.entry(ctx, path.Join(from, last), path.Join(name, last), e); err != nil {
			return err
		}
	}
	return nil
}

func (a *archiver) file(ctx context.Context, from string, e *control.Entry, h *tar.Header) error {
	h.Typeflag, h.Size = tar.TypeReg, e.Size
	if first := a.firstName[e.Ino]; first != "" && !e.View {
		h.Typeflag, h.Size, h.Linkname = tar.TypeLink, 0, first
		return a.w.WriteHeader(h)
	}
	if err := a.w.WriteHeader(h); err != nil {
		return err
	}
	if err := a.bytes(ctx, from, e); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if e.Links > 1 && !e.View {
		a.firstName[e.Ino] = h.Name
	}
	a.Files++
	a.Bytes += e.Size
	a.meter.add(1, 0)
	return nil
}

// bytes writes as many bytes as the header says, those of holes too.
func (a *archiver) bytes(ctx context.Context, from string, e *control.Entry) error {
	w := Filled{W: a.w}
	err := Read(ctx, a.src, from, a.buf, func(b []byte, off int64) error {
		if off+int64(len(b)) > e.Size {
			return errChanged
		}
		a.meter.add(0, int64(len(b)))
		return w.WriteAt(b, off)
	})
	if cerr := unchanged(ctx, a.src, from, e); cerr == errChanged || err == nil && cerr != nil {
		return cerr
	}
	if err == nil {
		err = w.WriteAt(nil, e.Size)
	}
	return err
}

// Filled writes to a stream the bytes of a file, and zeros for its holes.
type Filled struct {
	W   io.Writer
	off int64
}

// FilledFrom writes what lies from off on.
func FilledFrom(w io.Writer, off int64) *Filled { return &Filled{w, off} }

var zeros [64 << 10]byte

// WriteAt writes what lies at off, which is not before the end of what was written.
func (f *Filled) WriteAt(p []byte, off int64) error {
	for f.off < off {
		n, err := f.W.Write(zeros[:min(off-f.off, int64(len(zeros)))])
		if f.off += int64(n); err != nil {
			return err
		}
	}
	n, err := f.W.Write(p)
	f.off += int64(n)
	return err
}
