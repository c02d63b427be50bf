package posix

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// posixChildEnv names the folder that this process is to carry out the cases in.
const posixChildEnv = "CKPTFS_POSIX_CHILD"

// world is what a case sees: a folder of its own and a transcript.
type world struct {
	dir   string
	state string
	root  bool
	lines []string
	kept  map[string]unix.Stat_t // from prepare to run
	open_ []int                  // closed by the end of run
}

// posixChild is the process that carries out the cases: all their prepares, a word, and after an answer all
// their runs.
func posixChild(dir string) int {
	if helper := os.Getenv(posixHelperEnv); helper != "" {
		return posixHelper(helper)
	}
	unix.Umask(0o022)
	state := os.Getenv("CKPTFS_POSIX_STATE")
	again := os.Getenv("CKPTFS_POSIX_AGAIN") != ""
	only := os.Getenv("CKPTFS_POSIX_ONLY")
	if err := os.Mkdir(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	worlds := map[string]*world{}
	var cases []posixCase
	for _, c := range posixCases() {
		if c.prepare == nil && again || c.root && os.Geteuid() != 0 || only != "" &&
			!strings.Contains(c.name, only) {
			continue
		}
		cases = append(cases, c)
		w := &world{dir: filepath.Join(dir, c.name), state: state, root: os.Geteuid() == 0,
			kept: map[string]unix.Stat_t{}}
		worlds[c.name] = w
		if err := os.Mkdir(w.dir, 0o755); err != nil {
			w.say("mkdir: %v", err)
		}
		if c.prepare != nil {
			w.safely(c.prepare)
		}
	}
	fmt.Println("prepared")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return 1
	}
	all := map[string][]string{}
	for _, c := range cases {
		w := worlds[c.name]
		if os.Getenv("CKPTFS_POSIX_TRACE") != "" {
			fmt.Fprintln(os.Stderr, w.dir)
		}
		w.safely(c.run)
		for _, fd := range w.open_ {
			unix.Close(fd)
		}
	}
	fmt.Println("done")
	if _, err := in.ReadString('\n'); err != nil {
		return 1
	}
	for _, c := range cases {
		w := worlds[c.name]
		w.safely((*world).left)
		all[c.name] = w.lines
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		return 1
	}
	return 0
}

// safely keeps a case that panics from ending the others.
func (w *world) safely(f func(w *world)) {
	defer func() {
		if r := recover(); r != nil {
			w.say("panic: %v", r)
		}
	}()
	f(w)
}

// p is a path in the case's folder.
func (w *world) p(name string) string { return w.dir + "/" + name }

// say adds a line to the transcript. Errors are written as errnos.
func (w *world) say(format string, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = errnoName(err)
		} else if a == nil {
			args[i] = "ok"
		}
	}
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

func errnoName(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// do says what came of a call.
func (w *world) do(what string, err error) {
	w.say("%s: %s", what, errnoName(err))
}

// fail ends a case whose premise does not hold.
func (w *world) need(err error) {
	if err != nil {
		panic(err)
	}
}

// open says what came of open(2), and returns a descriptor that is closed with the case, or -1.
func (w *world) open(name string, flags int, mode uint32) int {
	fd, err := unix.Open(w.p(name), flags|unix.O_CLOEXEC, mode)
	w.say("open %s %#o %o: %s", short(name), flags, mode, errnoName(err))
	if err == nil {
		w.open_ = append(w.open_, fd)
		return fd
	}
	return -1
}

func (w *world) close(fd int) {
	w.open_ = slices.DeleteFunc(w.open_, func(o int) bool { return o == fd })
	w.do("close", unix.Close(fd))
}

func short(name string) string {
	if len(name) > 40 {
		return fmt.Sprintf("%s…(%d)", name[:8], len(name))
	}
	return name
}

// file makes a file. In the state "fresh" a writer keeps it open.
func (w *world) file(name string, data []byte) {
	fd, err := unix.Open(w.p(name), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	w.need(err)
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		w.need(err)
		data = data[n:]
	}
	if w.state == "fresh" {
		w.open_ = append(w.open_, fd)
		return
	}
	w.need(unix.Close(fd))
}

// big is a size that is packed; small ones stay as they are.
const big = 300<<10 + 77

// usual makes the file "f" that most cases are about.
func usual(w *world) { w.file("f", mounttest.Noise(1, big)) }

// write says what came of pwrite(2), or of write(2) with off < 0.
func (w *world) write(fd int, data []byte, off int64) {
	var n int
	var err error
	if off < 0 {
		n, err = unix.Write(fd, data)
	} else {
		n, err = unix.Pwrite(fd, data, off)
	}
	w.say("write %d@%d: %d %s", len(data), off, n, errnoName(err))
}

// read says what pread(2) gave.
func (w *world) read(fd, n int, off int64) {
	b := make([]byte, n)
	var k int
	var err error
	if off < 0 {
		k, err = unix.Read(fd, b)
	} else {
		k, err = unix.Pread(fd, b, off)
	}
	w.say("read %d@%d: %d %s %08x", n, off, k, errnoName(err), crc32.ChecksumIEEE(b[:max(k, 0)]))
}

// whole says what a file holds, and its size.
func (w *world) whole(name string) {
	b, err := os.ReadFile(w.p(name))
	var st unix.Stat_t
	serr := unix.Stat(w.p(name), &st)
	w.say("%s holds %d %08x %s, size %d %s", short(name), len(b), crc32.ChecksumIEEE(b), errnoName(err), st.Size, errnoName(serr))
}

// stat says what lstat(2) shows, but for times and numbers that differ from run to run.
func (w *world) stat(name string) unix.Stat_t {
	var st unix.Stat_t
	err := unix.Lstat(w.p(name), &st)
	w.show("stat "+short(name), &st, err)
	return st
}

func (w *world) fstat(fd int) unix.Stat_t {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	w.show("fstat", &st, err)
	return st
}

func (w *world) show(what string, st *unix.Stat_t, err error) {
	if err != nil {
		w.do(what, err)
		return
	}
	size := st.Size
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		size = 0
	}
	w.say("%s: mode %o nlink %d uid %d gid %d rdev %x size %d blksize %d", what, st.Mode, st.Nlink, st.Uid, st.Gid, st.Rdev, size, st.Blksize)
}

// keep remembers what stat(2) shows for the run.
func (w *world) keep(names ...string) {
	for _, n := range names {
		var st unix.Stat_t
		w.need(unix.Lstat(w.p(n), &st))
		w.kept[n] = st
	}
}

// tick returns when the clock that file times are taken from has moved.
func (w *world) tick() {
	var from, now unix.Timespec
	w.need(unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &from))
	for {
		w.need(unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now))
		if now.Nano() > from.Nano() {
			return
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 500_000}, nil)
	}
}

// moves says which times of a file an act changes.
func (w *world) moves(name, what string, act func()) {
	var a, b unix.Stat_t
	aerr := unix.Lstat(w.p(name), &a)
	w.tick()
	act()
	w.tick()
	berr := unix.Lstat(w.p(name), &b)
	w.say("%s: of %s %s", what, short(name), moved(&a, &b))
	if aerr != nil || berr != nil {
		w.say("%s %s", errnoName(aerr), errnoName(berr))
	}
}

func moved(a, b *unix.Stat_t) string {
	word := func(what string, x, y unix.Timespec) string {
		switch {
		case x == y:
			return what + " stays"
		case x.Nano() < y.Nano():
			return what + " moves"
		}
		return what + " goes back"
	}
	return word("atime", a.Atim, b.Atim) + ", " + word("mtime", a.Mtim, b.Mtim) + ", " +
		word("ctime", a.Ctim, b.Ctim)
}

// as runs f as another user. What f calls must not start threads of its own.
func (w *world) as(uid, gid int, f func()) {
	done := make(chan any)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		defer func() { done <- recover() }()
		_, _, e0 := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		_, _, e1 := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid))
		_, _, e2 := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		if e0 != 0 || e1 != 0 || e2 != 0 {
			panic("cannot become somebody else")
		}
		f()
	}()
	if r := <-done; r != nil {
		panic(r)
	}
}

// names lists a folder, sorted, with types.
func (w *world) names(name string) {
	entries, err := os.ReadDir(w.p(name))
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, " %s%s", short(e.Name()), e.Type().String()[:1])
	}
	w.say("names in %s:%s %s", name, b.String(), errnoName(err))
}

// left says what the case leaves behind: names, modes, sizes, owners, links' targets and sums of bytes.
func (w *world) left() {
	err := filepath.WalkDir(w.dir, func(p string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || unix.Lstat(p, &st) != nil {
			w.say("left %s: %s", p[len(w.dir):], errnoName(err))
			return nil
		}
		line := fmt.Sprintf("left %s %o %d %d:%d %x", p[len(w.dir):], st.Mode, st.Nlink, st.Uid, st.Gid, st.Rdev)
		switch {
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			line += fmt.Sprintf(" → %q %s", target, errnoName(err))
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			line += fmt.Sprintf(" %d %08x %s", st.Size, crc32.ChecksumIEEE(b), errnoName(err))
		}
		w.say("%s", line)
		return nil
	})
	if err != nil {
		w.do("left", err)
	}
}
