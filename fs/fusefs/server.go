// Package fusefs puts a volume under a mountpoint. It is the only package that knows of FUSE: it turns the
// kernel's requests into calls of package volume and errors into errnos, keeps the kernel's handles, and
// holds no state of files.
//
// Two modes, chosen at the mount:
//
//	passthrough  resident files are read, written and mapped by the kernel directly. Needs CAP_SYS_ADMIN in
//	             the initial user namespace and a store that is not on a stacked filesystem.
//	served       every read and write comes here. Write-only handles bypass the page cache, which is faster;
//	             all others go through it, so that mmap works.
//
// Packed files are served in both modes, through the page cache.
//
// From the device to the volume, each step by itself:
//
//	mountDevice  mounts, and has the descriptor of /dev/fuse
//	readInit     reads the kernel's first request, whose bytes are kept
//	answerInit   has go-fuse settle what it asks for
//	loop         reads requests, and answers them: READ by itself, the rest through go-fuse
//	Server       does them, by the volume
//
// # A mount outlives the process
//
// The mount lasts as long as a process has /dev/fuse open. A Keeper has it, and hands it to the next process
// when this one ended. What that one has to know lies in memory that both map (package handover): INIT and
// its answer, which node and which handle each number stands for, and which requests are being done that must
// not be done twice. Take, Resume and Start take a mount over (take.go). Then the kernel sends again all
// requests that were read and not answered (FUSE_NOTIFY_RESEND, Linux 6.9); once.go says how each is done
// once.
package fusefs

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/handover"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

const (
	maxRequest  = 1 << 20 // the kernel's limit
	readAheadKB = 4096    // the kernel caps what FUSE asks for at 128; raised afterwards through sysfs
	background  = 64      // read-ahead requests at a time, each with a buffer of maxRequest

	overlayfsMagic = 0x794c7630
)

// Options say how a volume is mounted.
type Options struct {
	AllowOther    bool // other users may use the mount, under its permissions
	NoPassthrough bool // serve everything
	ReadOnly      bool
	// mount(8)'s words for the kernel, such as noexec; later ones go before earlier ones
	Words      []string
	Background int       // requests that the kernel may send ahead at a time; at most, and by default, 64
	FsName     string    // the first column of mount(8): the store's absolute path
	Keeper     Keeper    // nil: the mount ends with this process
	Prepared   *Prepared // is served; nil: it is mounted first
	Log        func(level slog.Level, msg string, args ...any)
}

// Keeper keeps what a mount is made of while one process after the other serves it.
type Keeper interface {
	// Hold has the mount outlive this process: dev is its /dev/fuse, memory a handover.Memory.
	Hold(dev, memory int) error
	// Keep keeps a descriptor, until Drop, for the process that comes next.
	Keep(id uint64, fd int) error
	Drop(id uint64) error
	// Write is write(2) to dev by another process, if it can be. A thread that the kernel lets not be killed
	// keeps this one from ending no more than from being replaced.
	Write(dev int, p []byte) error
}

// Server is a mounted volume.
type Server struct {
	fuse.RawFileSystem // answers ENOSYS to what is not implemented

	o      Options
	v      *volume.Volume
	dev    *device
	loop   *loop
	memory *handover.Memory // what the process has to know that serves the mount next
	log    func(level slog.Level, msg string, args ...any)
	mode   string
	reason string
	dead   chan struct{} // closed when the mount is gone
	served sync.WaitGroup

	handles *handles
	written written

	makes func(tid uint32, name string) bool // of intent.go; tests replace it
}

func newServer(dev *device, memory *handover.Memory, o Options) *Server {
	s := &Server{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), o: o, dev: dev, memory: memory, log: o.Log,
		dead: make(chan struct{}), handles: newHandles(memory.Handles()), makes: makes,
	}
	if o.Keeper != nil {
		dev.elsewhere = o.Keeper.Write
	}
	if s.log == nil {
		s.log = func(slog.Level, string, ...any) {}
	}
	s.loop = &loop{dev: dev, file: s, log: s.log, dead: s.dead, memory: memory,
		answered: s.written.answered, refused: s.handles.refused}
	unix.Umask(0) // modes come from the kernel, masked by the caller's umask already
	return s
}

// Mount mounts v. It returns once the mount answers.
func Mount(v *volume.Volume, mountpoint string, o Options) (*Server, error) {
	p := o.Prepared
	if p == nil {
		var err error
		if p, err = Prepare(mountpoint, o); err != nil {
			return nil, err
		}
	}
	return p.serve(v, mountpoint)
}

// Prepared is a mount that nobody serves yet: what programs ask of it waits.
type Prepared struct {
	fd int
	o  Options
}

// Prepare mounts.
func Prepare(mountpoint string, o Options) (*Prepared, error) {
	words, flags := mountWords(o)
	fd, err := mountDevice(mountpoint, mountOptions{
		source:     o.FsName,
		maxRead:    mostBytes(),
		allowOther: o.AllowOther,
		words:      append([]string{"default_permissions"}, words...),
		flags:      flags,
	})
	if err != nil {
		return nil, err
	}
	return &Prepared{fd, o}, nil
}

// Drop has the mount answer nothing any more. It stays where it is until it is unmounted.
func (p *Prepared) Drop() { unix.Close(p.fd) }

// serve serves v, and returns once the mount answers; mountpoint is where it is by now. After an error the
// mount is dropped.
func (p *Prepared) serve(v *volume.Volume, mountpoint string) (*Server, error) {
	memory, err := handover.New()
	if err != nil {
		p.Drop()
		return nil, err
	}
	s := newServer(&device{fd: p.fd}, memory, p.o)
	if err := s.begin(v, mountpoint); err != nil {
		s.dev.close()
		return nil, err
	}
	return s, nil
}

// begin serves v as the first process that serves the mount.
func (s *Server) begin(v *volume.Volume, mountpoint string) error {
	init, err := s.dev.readInit()
	if err == nil {
		err = s.memory.SetInit(init)
	}
	if err != nil {
		return err
	}
	s.memory.BeginLife(false)
	answer, err := s.shakeHands(init, v.Folder().Here())
	if werr := s.dev.write(answer); err == nil && werr != nil {
		err = fmt.Errorf("init: %w", werr)
	}
	if err == nil {
		err = s.memory.SetAnswer(answer)
	}
	if err != nil {
		return err
	}
	s.v = v
	s.mode, s.reason = s.probe(s.o.NoPassthrough, s.o.ReadOnly)
	if err := noteMode(s.memory, mountpoint, s.mode, s.reason); err != nil {
		return err
	}
	v.Names().HandOn(heirOf(s))
	v.Attach(backing{s.dev, s.memory}, mountpoint, s.mode == control.ModePassthrough, s.mode, s.reason)
	if s.o.Keeper != nil {
		if err := s.o.Keeper.Hold(s.dev.fd, s.memory.Fd()); err != nil {
			return fmt.Errorf("hand the mount to its holder: %w", err)
		}
		s.keepLock()
	}
	s.serve()
	// This process never asks anything of its own mount: killed before it had answered itself it could not
	// end, as the kernel waits for the answer, and then closes /dev/fuse.
	raiseReadAhead(s, mountpoint)
	return nil
}

// shakeHands has go-fuse settle what INIT asks for, and returns the answer, which is still to be written.
func (s *Server) shakeHands(init []byte, dir string) (answer []byte, err error) {
	s.loop.ps = fuse.NewProtocolServer(s, settings(s.o, dir))
	return answerInit(s.loop.ps, init)
}

func (s *Server) serve() {
	s.loop.start()
	s.served.Go(s.loop.wait)
	go prune(s)
}

// settings are what INIT is answered by.
func settings(o Options, dir string) *fuse.MountOptions {
	return &fuse.MountOptions{
		MaxWrite:                 mostBytes(),
		MaxBackground:            ahead(o.Background),
		ExplicitDataCacheControl: true,
		PanicHandler:             crash,
		MaxStackDepth:            stackDepth(dir),
		// ASYNC_DIO: the requests of one O_DIRECT call are sent together, and libaio does not wait.
		ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_READDIRPLUS_AUTO |
			fuse.CAP_DIRECT_IO_ALLOW_MMAP | fuse.CAP_ASYNC_DIO,
	}
}

// mostBytes is the most that one request carries.
func mostBytes() int { return min(maxRequest, mostPages()) }

// ahead is how many requests the kernel may send ahead.
func ahead(n int) int {
	if n <= 0 {
		return background
	}
	return min(n, background)
}

// crash ends the process. A request that panicked may have left a lock held, and a mount that hangs is worse
// than one that is gone: what was closed is safe, and open resident files go on without the daemon.
func crash(v any) fuse.Status {
	panic(v)
}

// stackDepth is how deep the store's filesystem may lie over others for passthrough to be allowed.
func stackDepth(dir string) int {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil && st.Type == overlayfsMagic {
		return 2
	}
	return 1
}

// probe asks the kernel whether it takes a file of this store, rather than to learn it at the first open.
func (s *Server) probe(off, readOnly bool) (mode, reason string) {
	if off {
		return control.ModeServed, "asked for"
	}
	name, flags := tree.TreeDir, unix.O_TMPFILE|unix.O_RDWR
	if readOnly {
		name, flags = tree.FormatFile, unix.O_RDONLY
	}
	f, err := s.v.Folder().Open(name, flags, 0o600)
	if err != nil {
		return control.ModeServed, err.Error()
	}
	defer f.Close()
	id, err := s.dev.RegisterBacking(int(f.Fd()))
	switch err {
	case nil:
		s.dev.UnregisterBacking(id)
		return control.ModePassthrough, "the kernel reads and writes plain and resident files itself"
	case unix.EPERM:
		return control.ModeServed, "passthrough needs CAP_SYS_ADMIN (root) in the initial user namespace"
	case unix.ELOOP:
		return control.ModeServed, "the store lies on a stacked filesystem"
	case unix.ENOTTY, unix.EOPNOTSUPP, unix.EINVAL:
		return control.ModeServed, "this kernel has no FUSE passthrough (Linux 6.9 has)"
	}
	return control.ModeServed, fmt.Sprintf("the kernel refused passthrough: %v", err)
}

// raiseReadAhead lets the kernel read further ahead in packed files than it lets FUSE ask for. Only root may.
func raiseReadAhead(s *Server, mountpoint string) {
	var st unix.Statx_t // without a request to ourselves
	if err := unix.Statx(unix.AT_FDCWD, mountpoint, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT,
		unix.STATX_TYPE, &st); err != nil {
		return
	}
	path := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", st.Dev_major, st.Dev_minor)
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d\n", readAheadKB), 0); err != nil {
		s.log(slog.LevelInfo, "read-ahead stays at the kernel's 128 KiB", "reason", err)
	}
}

// Mode says how resident files are served, control.ModePassthrough or control.ModeServed, and why.
func (s *Server) Mode() (mode, reason string) { return s.mode, s.reason }

// Wait returns when the mount is gone, however it went, and nothing is in hand.
func (s *Server) Wait() { s.served.Wait() }

// Leave ends this process's service between two requests: it returns when those in hand have been answered,
// or after some time. The process ends next, and whatever is left is the next one's.
func (s *Server) Leave(patience time.Duration) {
	s.loop.leaving.Store(true)
	settled := make(chan struct{})
	go func() {
		s.loop.rounds.settle()
		close(settled)
	}()
	select {
	case <-settled:
	case <-time.After(patience):
	}
}

// String names the filesystem.
func (s *Server) String() string { return "ckptfs" }
