package content

import (
	"io"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/fs/tree"
)

// describedWait is how long a file waits for the one that describes it. A file of raw bytes may be described
// by another in its folder, of the same owner (detect.Detector.Named). Programs write the data first: what is
// only known by another is packed when that is there, or that long after it was written.
const describedWait = 5 * time.Second

// Detect finds the layout of a file's present bytes.
func (f *File) Detect(raw io.ReaderAt, size int64) (*formats.Layout, error) {
	p := f.Path()
	beside := func(name string) (io.ReaderAt, int64, func(), error) {
		return f.c.beside(f.node, path.Join(path.Dir(p), name))
	}
	return f.c.pack.Detector().Named(path.Base(p), raw, size, beside)
}

// beside opens another file of n's owner. It takes none of its locks, since the caller may have n's, and it
// may be n, or be described by n: should a transition change it meanwhile, what is read is no description.
func (c *Files) beside(n Inode, p string) (r io.ReaderAt, size int64, done func(), err error) {
	opened, err := n.OpenBeside(p, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, 0, nil, err
	}
	fd := int(opened.Fd())
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	var own, other unix.Stat_t
	if err := n.Stat(&own); err != nil {
		return nil, 0, nil, err
	}
	if err := unix.Fstat(fd, &other); err != nil {
		return nil, 0, nil, err
	}
	if other.Mode&unix.S_IFMT != unix.S_IFREG || other.Uid != own.Uid {
		return nil, 0, nil, unix.ENOENT
	}
	var b [tree.RecordSize + 1]byte
	if k, err := unix.Fgetxattr(fd, tree.XattrName, b[:]); err == nil {
		if rec, err := tree.DecodeRecord(b[:k]); err == nil && rec.Hollow {
			packed, err := c.openPacked(&rec)
			if err != nil {
				return nil, 0, nil, err
			}
			return packed, other.Size, func() { packed.Close(); opened.Close() }, nil
		}
	}
	return opened, other.Size, func() { opened.Close() }, nil
}

// Awaits reports whether the file that describes this one may still come, or be written just now: nothing is
// known of it by itself.
func (p *Packing) Awaits(l *formats.Layout) bool {
	return l.Format == formats.BlobLayout(0).Format && detect.Awaited(path.Base(p.f.Path())) &&
		p.f.c.now().Sub(time.Unix(p.st.Mtim.Unix())) <= describedWait
}

// Unpacked is the number of a file's resident bytes.
func (f *File) Unpacked() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.UnpackedLocked()
}

// UnpackedLocked is Unpacked with f.mu held.
func (f *File) UnpackedLocked() int64 {
	f.mu.AssertHeld()
	var st unix.Stat_t
	if f.LoadLocked() != nil || f.rec.Hollow || f.node.Stat(&st) != nil {
		return 0
	}
	return st.Size
}
