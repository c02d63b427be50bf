package tree

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// Holder is the process that has a store open.
type Holder struct {
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Boot    string    `json:"boot"`            // the boot that caches can be believed in; see BootID
	Mount   uint64    `json:"mount"`           // and the mount of the store's filesystem; see MountID
	Clean   bool      `json:"clean"`           // set when the store was closed in order
	Epoch   uint32    `json:"epoch"`           // see Lock.Epoch
	Home    string    `json:"home,omitempty"`  // see Lock.AtHome
	Known   string    `json:"known,omitempty"` // see Lock.Knows

	Failed bool   `json:"failed,omitempty"` // see Lock.NotTaken
	Doubt  string `json:"doubt,omitempty"`
}

// LockedError says that another process has the store open.
type LockedError struct {
	Dir    string
	Holder Holder
	// processes that have it open to read it only, if these are why; those that can be seen
	Readers []int
}

func (e *LockedError) Error() string {
	if e.Holder.Clean { // readers alone
		who := ""
		for i, pid := range e.Readers {
			who += fmt.Sprintf("%s process %d", []string{", by", " and"}[min(i, 1)], pid)
		}
		return fmt.Sprintf("store %s is open to be read%s, as by a read-only mount or `ckptfs ui`: "+
			"end that first, or mount read-only too", e.Dir, who)
	}
	if e.Holder.PID == 0 {
		return fmt.Sprintf("store %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("store %s is in use by process %d on %s since %s", e.Dir, e.Holder.PID, e.Holder.Host,
		e.Holder.Started.Local().Format(time.DateTime))
}

// Lock is the store's flock, held from Open to Close. The kernel releases it with the last process that has
// its descriptor: one that outlives this process keeps the store from others until Inherit.
type Lock struct {
	f      *os.File
	self   Holder
	here   Holder // Boot and Mount as they are now
	shared bool   // held beside others; nothing is written
	kept   bool   // f was open since the process before had it: the filesystem stayed mounted
	sync   func() error
	mu     sync.Mutex // guards self, once the lock is taken

	// Before is the process that held the store last; zero when none did.
	Before Holder
}

// OpenedLast is when a process last opened a store to write to it.
func OpenedLast(d *disk.Folder) (time.Time, error) {
	f, err := d.Open(LockFile, os.O_RDONLY, 0)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	h, err := readHolder(f)
	return h.Started, err
}

// readHolder reads what a lock file says, from where f is.
func readHolder(f *os.File) (h Holder, err error) {
	err = json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&h)
	return h, err
}

// ClosedInOrder is nil if the process closed the store in order that had it open at a time, and has ended;
// also if it only read it, or that may not be known.
func ClosedInOrder(dir string, at time.Time) error {
	var h Holder
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err == nil {
		defer f.Close()
		h, err = readHolder(f)
	}
	switch {
	case err != nil:
		return fmt.Errorf("it is not known whether the store was closed in order: %w", err)
	case !h.Clean && h.Started.Before(at): // else another process has it by now
		return fmt.Errorf("the store %s was not closed in order: its log says why (%s); the next mount looks at every file",
			dir, filepath.Join(dir, LogFile))
	}
	return nil
}

// Acquire takes the store's lock. *LockedError when another process has it.
func Acquire(d *disk.Folder, now time.Time) (*Lock, error) {
	_, err := d.Lstat(LockFile)
	fresh := errors.Is(err, fs.ErrNotExist)
	f, err := d.Open(LockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return takeLock(d, now, &Lock{f: f}, fresh)
}

// Inherit is Acquire by a descriptor of a lock that a process had which did not give it up. It is the lock's
// from now on.
func Inherit(d *disk.Folder, now time.Time, f *os.File) (*Lock, error) {
	if err := inherits(d, f); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(0, 0); err != nil {
		f.Close()
		return nil, err
	}
	return takeLock(d, now, &Lock{f: f, kept: true}, false)
}

// inherits is nil if f is a store's lock file.
func inherits(d *disk.Folder, f *os.File) error {
	is, err := d.Lstat(LockFile)
	if err != nil {
		return err
	}
	var was unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &was); err != nil {
		return err
	}
	if is.Dev != was.Dev || is.Ino != was.Ino {
		return fmt.Errorf("%s is not the store that it was", d.Path())
	}
	return nil
}

// Held reports whether a process has the store, or keeps it for the next one, whether or not it answers.
func Held(dir string) bool { return locked(dir, unix.LOCK_SH) }

// Used is Held, and true also while processes have it that only read.
func Used(dir string) bool { return locked(dir, unix.LOCK_EX) }

func locked(dir string, how int) bool {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close() // and its lock
	return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) == unix.EWOULDBLOCK
}

// takeLock takes a lock of which f and kept are set. It closes f after an error.
func takeLock(d *disk.Folder, now time.Time, l *Lock, fresh bool) (*Lock, error) {
	f := l.f
	before, decErr := readHolder(f)
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		readers := readersOf(f)
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &LockedError{Dir: d.Path(), Holder: before, Readers: readers}
		}
		return nil, fmt.Errorf("lock %s: %w", d.Path(), err)
	}
	if decErr != nil || before.PID == 0 {
		before = Holder{PID: -1} // a torn line, or one that names no process: not known to be clean
		if fresh {
			before = Holder{}
		}
	}
	host, _ := os.Hostname()
	l.Before, l.sync = before, f.Sync
	l.here = Holder{Boot: BootID(), Mount: MountID(d.Here())}
	l.self = Holder{Host: host, PID: os.Getpid(), Started: now, Boot: l.here.Boot, Mount: l.here.Mount}
	l.self.Epoch, l.self.Home = before.Epoch, before.Home
	if before.Epoch == 0 || !before.Clean && !l.Same() {
		l.self.Epoch = newEpoch()
	}
	if !before.Clean && before.PID != 0 {
		l.self.Failed, l.self.Doubt = before.Failed, before.Doubt
		// until Trust: what this process repairs, a crash may leave to the next
		l.self.Boot, l.self.Mount = before.Boot, before.Mount
	}
	if err := l.write(); err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// Same reports whether the host has not been started, nor the store's filesystem mounted, since the holder
// before: what its page cache held, it holds.
func (l *Lock) Same() bool {
	return l.Before.Boot == l.here.Boot && l.Before.Mount == l.here.Mount && (l.kept || l.here.Mount != 0)
}

// Epoch names the time since the host last went down with the store open, or the store's filesystem was
// mounted again: what happened to one file since then happened in one order. Never 0, but for a reader of a
// store that an older program wrote.
func (l *Lock) Epoch() uint32 {
	if l.shared {
		return l.Before.Epoch
	}
	return l.self.Epoch
}

// newEpoch is drawn, not counted: nothing has to be known of the last one.
func newEpoch() uint32 {
	var b [4]byte
	for binary.LittleEndian.Uint32(b[:]) == 0 {
		rand.Read(b[:])
	}
	return binary.LittleEndian.Uint32(b[:])
}

// Trust says that every cache in the store can be believed for as long as this boot and this mount last.
func (l *Lock) Trust() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared || l.self.Boot == l.here.Boot && l.self.Mount == l.here.Mount {
		return nil
	}
	l.self.Boot, l.self.Mount = l.here.Boot, l.here.Mount
	return l.write()
}

// NotTaken notes that the disk did not take something, and, if no file tells of it, in doubt what to say. It
// is kept for the processes that have the store after this one, until one ends in its order (Release): the
// kernel told this one alone. After an error a power cut may take the note away, and no kill.
func (l *Lock) NotTaken(doubt string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noteLocked(doubt)
}

// Fails is NotTaken that leaves what there is to say as it is.
func (l *Lock) Fails() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noteLocked(l.self.Doubt)
}

func (l *Lock) noteLocked(doubt string) error {
	if l.shared || l.self.Failed && l.self.Doubt == doubt {
		return nil
	}
	l.self.Failed, l.self.Doubt = true, doubt
	return l.write()
}

// write records the holder durably: an unclean end must be seen by the next start.
func (l *Lock) write() error {
	b, err := json.Marshal(&l.self)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if _, err := l.f.WriteAt(b, 0); err != nil {
		return err
	}
	if err := l.f.Truncate(int64(len(b))); err != nil {
		return err
	}
	return l.sync()
}

// Release gives the store up; clean says that everything is in order, so that the next start need not look.
// After an error it is not known to be.
func (l *Lock) Release(clean bool) error {
	if l.shared {
		return l.close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.self.Clean, l.self.Failed, l.self.Doubt = clean, false, ""
	if !clean {
		l.self.Known = ""
	}
	err := l.write()
	if err != nil && clean {
		// The page cache says now what the disk may never say: umount and the next start would believe it.
		l.self.Clean, l.self.Known = false, ""
		err = errors.Join(err, l.write())
	}
	if cerr := l.close(); err == nil {
		err = cerr
	}
	return err
}

// Return gives the store up in the state in which it was taken, for a process that did nothing that the next
// start would look at: that is told what this one was told, also of what the disk did not take.
func (l *Lock) Return() error {
	if l.Before.Clean || l.Before.PID == 0 {
		return l.Release(true)
	}
	return l.close() // Acquire wrote it down
}

// Abandon ends this process's use of the lock, and leaves it to the process that has its descriptor, too: the
// mount that the store is held for is there. Nothing is written.
func (l *Lock) Abandon() error { return l.f.Close() }

// close gives the lock up, whoever has its descriptor too.
func (l *Lock) close() error {
	_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN)
	return l.f.Close()
}

// Fd is the descriptor that the lock is held by.
func (l *Lock) Fd() int { return int(l.f.Fd()) }
