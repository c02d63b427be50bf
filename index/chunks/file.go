package chunks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

const (
	formatName    = "ckptfs-index"
	formatVersion = 4

	// lockTimeout bounds the wait for another process's lock on the file.
	lockTimeout = time.Second
	// mapSize is address space, not memory. A map that needs no growing never waits for readers.
	mapSize = 1 << 30
)

var (
	bucketMeta   = []byte("meta")
	bucketChunks = []byte("chunks")

	keyFormat  = []byte("format")
	keyStore   = []byte("store")
	keyMark    = []byte("mark")
	keyHighest = []byte("highest")
)

// file is an open index file.
type file struct {
	bolt   *bolt.DB
	raw    *os.File    // bolt's own
	broken atomic.Bool // bolt panicked: its locks are in no known state and nothing calls it any more

	portion int // portion, but for tests

	lookups lookups
}

// openOrCreate opens the index at path, or makes an empty one. reason says what was wrong with the one that
// was put aside.
func openOrCreate(path string, opt Options) (f *file, reason string, err error) {
	f, err = openFile(path, opt)
	switch {
	case err == nil || opt.ReadOnly || errors.Is(err, cas.ErrNewer):
		return f, "", err
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, cas.ErrCorrupt):
		aside, aerr := MoveAside(opt.Folder, path, opt.Aside)
		if aerr != nil {
			return nil, "", errors.Join(err, aerr)
		}
		reason = fmt.Sprintf("%v; kept as %s", err, aside)
	default:
		return nil, "", err
	}
	if err := create(path, opt); err != nil {
		return nil, reason, err
	}
	f, err = openFile(path, opt)
	return f, reason, err
}

// openFile opens an index that is there. The error wraps cas.ErrCorrupt when the file is no index of this
// store.
func openFile(path string, opt Options) (*file, error) {
	st, err := opt.Folder.Lstat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("not a regular file")
	}
	if st.Size == 0 {
		return nil, fmt.Errorf("empty file: %w", cas.ErrCorrupt)
	}
	f := &file{portion: portion}
	err = f.guard(func() (err error) {
		f.bolt, err = openBolt(path, opt, &f.raw)
		if err == nil || errors.Is(err, berrors.ErrTimeout) || fromSystem(err) {
			return err
		}
		return fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	})
	if err == nil && !opt.ReadOnly && !opt.NoSync {
		if serr := settle(f.raw); serr != nil {
			err = fmt.Errorf("the disk refused what an earlier process wrote in it: %w: %w", serr, cas.ErrCorrupt)
		}
	}
	if err == nil {
		err = f.view(func(tx *bolt.Tx) error { return verify(tx, opt, st.Size) })
	}
	if err != nil {
		_ = f.close()
		return nil, err
	}
	return f, nil
}

// settle makes durable what an earlier process, which was killed, left in the page cache. A test replaces it.
var settle = (*os.File).Sync

// verify looks for what tells at once that a file is not the index wanted.
func verify(tx *bolt.Tx, opt Options, size int64) error {
	if tx.Size() > size {
		return fmt.Errorf("cut short to %d of %d bytes: %w", size, tx.Size(), cas.ErrCorrupt)
	}
	meta := tx.Bucket(bucketMeta)
	if meta == nil || tx.Bucket(bucketChunks) == nil {
		return fmt.Errorf("buckets missing: %w", cas.ErrCorrupt)
	}
	f := meta.Get(keyFormat)
	if len(f) != len(formatName)+4 || string(f[:len(formatName)]) != formatName {
		return fmt.Errorf("no format mark: %w", cas.ErrCorrupt)
	}
	switch v := binary.BigEndian.Uint32(f[len(formatName):]); {
	case v > formatVersion:
		return fmt.Errorf("format %d: %w", v, cas.ErrNewer)
	case v < formatVersion:
		return olderError(v)
	}
	if id := meta.Get(keyStore); !bytes.Equal(id, opt.StoreID[:]) {
		return fmt.Errorf("of store %x, want %x: %w", id, opt.StoreID, cas.ErrCorrupt)
	}
	_, err := readMark(meta)
	_, herr := readHighest(meta)
	return errors.Join(err, herr)
}

// ErrOlder says that an index is of an earlier version. It is made again as one is that is damaged, and is a
// cas.ErrCorrupt, too.
var ErrOlder = errors.New("an index of an earlier version")

type olderError uint32

func (e olderError) Error() string {
	return fmt.Sprintf("its format is %d, of an earlier version, and this one's is %d", uint32(e), formatVersion)
}

func (e olderError) Is(target error) bool { return target == ErrOlder || target == cas.ErrCorrupt }

// create makes an empty index, so that path never names a half-made one.
func create(path string, opt Options) (err error) {
	tmp := path + ".new"
	if err := opt.Folder.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := openBolt(tmp, opt, new(*os.File))
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketMeta, bucketChunks} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		format := binary.BigEndian.AppendUint32([]byte(formatName), formatVersion)
		if err := meta.Put(keyFormat, format); err != nil {
			return err
		}
		return meta.Put(keyStore, opt.StoreID[:])
	})
	if err == nil {
		err = b.Sync()
	}
	if err = errors.Join(err, b.Close()); err != nil {
		return err
	}
	if err := opt.Folder.Rename(tmp, path); err != nil {
		return err
	}
	return opt.Folder.SyncDir(filepath.Dir(path))
}

func openBolt(path string, opt Options, file **os.File) (*bolt.DB, error) {
	return bolt.Open(path, 0o600, &bolt.Options{
		Timeout:         lockTimeout,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: mapSize,
		NoSync:          opt.NoSync,
		ReadOnly:        opt.ReadOnly,
		NoStatistics:    true,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			f, err := opt.Folder.Open(name, flag, perm)
			*file = f
			return f, err
		},
	})
}

// close closes the file. Of a broken one only bolt's own file: bolt's Close could wait for ever on a lock of
// its own. Bolt's map of the file stays, out of reach, and holds the open file; so the flock is released
// here.
func (f *file) close() error {
	switch {
	case f.broken.Load() && f.raw != nil:
		return errors.Join(unix.Flock(int(f.raw.Fd()), unix.LOCK_UN), f.raw.Close())
	case f.bolt != nil:
		f.lookups.end()
		return f.bolt.Close()
	}
	return nil
}

// guard turns a panic of bolt's, which is how it meets most damage, and a fault in its memory map into
// cas.ErrCorrupt. Any other panic is a mistake of this program, and says nothing about the file.
func (f *file) guard(do func() error) (err error) {
	if f.broken.Load() {
		return fmt.Errorf("index: damage met earlier: %w", cas.ErrCorrupt)
	}
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r != nil && !isFault(r) && !fromBolt() {
			panic(r)
		}
		if r != nil {
			f.broken.Store(true)
			err = fmt.Errorf("index: %v: %w", r, cas.ErrCorrupt)
		}
	}()
	return do()
}

// isFault reports whether a panic is an access to memory that is not there: a page of the file that cannot be
// read, or that damage led to.
func isFault(r any) bool {
	_, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	})
	return ok
}

// boltPath is what the functions of bolt begin with.
var boltPath = reflect.TypeFor[bolt.DB]().PkgPath()

// fromBolt reports whether the panic that was just recovered began in bolt. It is called by a deferred
// function, when the stack is still that of the panic.
func fromBolt() bool {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for panicked := false; ; {
		frame, more := frames.Next()
		inRuntime := strings.HasPrefix(frame.Function, "runtime.")
		panicked = panicked || frame.Function == "runtime.gopanic"
		if panicked && !inRuntime || !more {
			return strings.HasPrefix(frame.Function, boltPath)
		}
	}
}

func (f *file) view(do func(tx *bolt.Tx) error) error {
	return f.guard(func() error { return f.bolt.View(do) })
}

func (f *file) update(do func(tx *bolt.Tx) error) error {
	return f.guard(func() error {
		defer f.lookups.end()()
		return f.bolt.Update(do)
	})
}

// MoveAside renames the file of an index that is not open to the first free of NAME.corrupt-1, -2, … in dir,
// or beside it when dir is empty, and returns its new path. Nothing that is there is replaced. Both lie in
// folder.
func MoveAside(folder *disk.Folder, path, dir string) (string, error) {
	if dir == "" {
		dir = filepath.Dir(path)
	} else if err := folder.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for i := 1; ; i++ {
		aside := filepath.Join(dir, fmt.Sprintf("%s.corrupt-%d", filepath.Base(path), i))
		if _, err := folder.Lstat(aside); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := folder.Rename(path, aside); err != nil {
			return "", err
		}
		return aside, errors.Join(folder.SyncDir(dir), folder.SyncDir(filepath.Dir(path)))
	}
}

// fromSystem reports whether the system refused, which says nothing about the bytes in the file.
func fromSystem(err error) bool {
	var path *fs.PathError
	var errno syscall.Errno
	return errors.As(err, &path) || errors.As(err, &errno)
}

// noSpace knows a full disk also by its text: where bbolt makes its file longer it keeps no more of the
// error.
func noSpace(err error) bool {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || err != nil && strings.HasSuffix(err.Error(), full.Error()) {
			return true
		}
	}
	return false
}
