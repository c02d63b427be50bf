package content

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/assemble"
	"ckptfs/fs/tree"
)

// Remote is where the bytes of remote files come from, where the store does not have them.
type Remote interface {
	// Pin has the records of a file be found until done is called. Nothing is asked over the network. The
	// error wraps cas.ErrNotFound when the remote is not known to have the file.
	Pin(manifest cas.Hash) (done func(), err error)
	// Size is the file's size in bytes, as its entry says, and without asking over the network.
	Size(manifest cas.Hash) (int64, error)
}

// noRemote is that of a store without one.
type noRemote struct{}

func (noRemote) Pin(h cas.Hash) (func(), error) { return nil, noRemoteHas(h) }

func (noRemote) Size(h cas.Hash) (int64, error) { return 0, noRemoteHas(h) }

func noRemoteHas(h cas.Hash) error {
	return fmt.Errorf("manifest %s: the file is a remote's, and the store is used without it: %w", h.Short(),
		cas.ErrNotFound)
}

// reader reads packed files, and knows of those that a remote has.
type reader struct {
	*assemble.Reader
	remote Remote
}

// IsRemote reports whether a remote alone has the bytes of a file; false of nil, which is none.
func IsRemote(f *File) (bool, error) {
	if f == nil {
		return false, nil
	}
	f.Lock()
	defer f.Unlock()
	err := f.LoadLocked()
	return err == nil && f.rec.Remote, err
}

// RemoteSize is the size of a remote file in bytes, as its entry says.
func (c *Files) RemoteSize(manifest cas.Hash) (int64, error) { return c.asm.remote.Size(manifest) }

// packedFile is an open packed file.
type packedFile struct {
	*assemble.File
	unpin func()
}

// Close closes it.
func (p *packedFile) Close() error {
	p.unpin()
	return p.File.Close()
}

// openPacked opens the packed file of a record.
func (c *Files) openPacked(rec *tree.Record) (*packedFile, error) {
	p := &packedFile{unpin: func() {}}
	var err error
	if rec.Remote {
		if p.unpin, err = c.asm.remote.Pin(rec.Manifest); err != nil {
			return nil, err
		}
	}
	if p.File, err = c.asm.Open(rec.Manifest); err != nil {
		p.unpin()
		return nil, err
	}
	if !rec.Remote {
		return p, nil
	}
	if size, err := c.RemoteSize(rec.Manifest); err != nil || size != p.Size() {
		p.Close()
		return nil, errors.Join(err, fmt.Errorf("a manifest of %d bytes, and its entry says %d: %w", p.Size(),
			size, cas.ErrCorrupt))
	}
	return p, nil
}

// readable returns an error unless a packed file can be read by its manifest: see Complete. Of a remote file
// it asks whether the remote is known to have it.
func (c *Files) readable(rec *tree.Record) error {
	if rec.Remote {
		done, err := c.asm.remote.Pin(rec.Manifest)
		if err == nil {
			done()
		}
		return err
	}
	_, err := c.Complete(rec.Manifest)
	return err
}

// packedSize is the size of a packed file by its manifest, or, of a remote one, by what is known of it.
func (c *Files) packedSize(rec *tree.Record) (int64, error) {
	if rec.Remote {
		return c.RemoteSize(rec.Manifest)
	}
	m, err := c.asm.Manifest(rec.Manifest)
	if err != nil {
		return 0, err
	}
	return m.Size, nil
}

// Reach reads the manifest of a remote file, and notes the size of its view, which the file's entry does not
// say. It may ask over the network, so it comes before mu is taken: who asks for the file's attributes is
// not to wait for that. An error is met by what comes next.
func Reach(f *File) {
	rec, ok := unreached(f)
	if !ok {
		return
	}
	done, err := f.c.asm.remote.Pin(rec.Manifest)
	if err != nil {
		return
	}
	defer done()
	m, err := f.c.asm.Manifest(rec.Manifest)
	if err != nil || rec.ViewSize > 0 {
		return
	}
	size := viewSizeOf(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec != rec || size == 0 {
		return
	}
	if rec.ViewSize = size; f.c.readOnly {
		f.rec = rec
		return
	}
	_ = f.writeRecordLocked(rec) // else it is found out again
}

// unreached is the record of a remote file that has no local copy.
func unreached(f *File) (tree.Record, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.LoadLocked()
	return f.rec, err == nil && f.rec.Remote && f.rec.Hollow
}

// AdoptRemote makes an empty file f, which was made just now and has no name yet, the stub of a file of so
// many bytes that a remote has, with a modification time in nanoseconds since 1970.
func AdoptRemote(f *File, h cas.Hash, size, mtime int64) error {
	rec := tree.Record{Manifest: h, Hollow: true, Remote: true, Mtime: mtime, Ctime: f.c.now().UnixNano()}
	return adopt(f, rec, size)
}

// SkipLinked is why Drop leaves a file as it is that has several names.
const SkipLinked = "it has other names here (hard links), and the remote may not keep its bytes for these"

// Drop makes a packed file that the remote has, of which h is the manifest, a stub without a local copy: the
// next prune takes what no other file needs of it. A reason says why it stays as it is; "" and nil also for
// such a stub.
func Drop(f *File, h cas.Hash) (skip string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return "", err
	}
	switch {
	case f.damaged != nil:
		return "", f.damaged
	case f.rec.Manifest != h || f.Dead():
		return "it was changed meanwhile", nil
	case f.rec.Remote && f.rec.Hollow:
		return "", nil
	case f.rec.Lost:
		return "the disk did not take all that was written to it", nil
	case f.users.all() > 0 || f.local.hydrating || f.local.left || f.packing != nil:
		return SkipInUse, nil
	}
	// Another name may be one that nobody published: nothing in the remote would keep its bytes.
	var st unix.Stat_t
	if err := f.node.Stat(&st); err != nil {
		return "", err
	}
	if st.Nlink > 1 && !f.rec.Remote {
		return SkipLinked, nil
	}
	rec := f.rec
	rec.Remote = true
	if err := f.c.readable(&rec); err != nil {
		return "", err
	}
	if !f.rec.Hollow {
		e := eviction{f: f}
		if skip, err := e.runLocked(); skip != "" || err != nil || e.lost != nil {
			return skip, errors.Join(err, e.lost)
		}
		f.c.events.Resident(f, 0)
		rec.Hollow = true
	}
	if err := f.c.Step("drop: record"); err != nil {
		return "", err
	}
	return "", recordLocked(f, rec)
}

// recordLocked writes the record of a hollow file, and its header, which repeats that.
func recordLocked(f *File, rec tree.Record) error {
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	st, err := own.Stat()
	if err != nil {
		return err
	}
	f.moved = true
	if err := f.writeRecordLocked(rec); err != nil {
		return err
	}
	if rec.Hollow && f.users.all() == 0 && !f.local.hydrating && !f.local.left {
		f.dropBytesLocked(own, st.Size())
	}
	return nil
}

// Brought makes a remote file one of the local store alone, which has all of the manifest h: it is held there
// by a batch until Brought returns. false: the file is another by now, or no stub.
func Brought(f *File, h cas.Hash) (bool, error) {
	c := f.c
	c.Cloning.RLock() // a mark is to see the manifest
	defer c.Cloning.RUnlock()
	m, err := c.Complete(h)
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return false, err
	}
	if f.damaged != nil || !f.rec.Remote || f.rec.Manifest != h || f.Dead() {
		return false, f.damaged
	}
	rec := f.rec
	rec.Remote = false
	rec.ViewSize = viewSizeOf(m)
	if err := c.Step("brought: record"); err != nil {
		return false, err
	}
	return true, recordLocked(f, rec)
}
