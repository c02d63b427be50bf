package posix

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// TestPOSIXFuzz applies random operations to a mount and to a plain folder, with packing, eviction,
// hydration, remounts and kills between them, and compares results at each step and everything at the end of
// each round.
//
//	CKPTFS_FUZZ_SEED    the seed of the first round, as a failure prints it
//	CKPTFS_FUZZ_ROUNDS  rounds, otherwise 3
//	CKPTFS_FUZZ_OPS     operations in a round, otherwise 400
func TestPOSIXFuzz(t *testing.T) {
	t.Parallel()
	number := func(name string, otherwise uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	rounds, ops := number("CKPTFS_FUZZ_ROUNDS", 3), number("CKPTFS_FUZZ_OPS", 400)
	seed := number("CKPTFS_FUZZ_SEED", uint64(time.Now().UnixNano()))
	for i := range rounds {
		flags := [][]string{nil, {"--no-passthrough"}, {"--hot-size", "1MiB"}}[(seed+i)%3]
		t.Run(fmt.Sprint("round", i), func(t *testing.T) {
			fuzzRound(t, mounttest.New(t, flags...), seed+i, int(ops))
		})
		if t.Failed() {
			t.Fatalf("seed %d (CKPTFS_FUZZ_SEED=%d CKPTFS_FUZZ_ROUNDS=1), flags %v", seed+i, seed+i, flags)
		}
	}
}

// fuzzer is one round: the same names and descriptors on both sides.
type fuzzer struct {
	m     *mounttest.Mount
	rand  *rand.Rand
	sides [2]string // the mount's folder and the plain one
	names []string
	fds   [][2]int // open files; of both sides
	log   []string
}

func fuzzRound(t *testing.T, m *mounttest.Mount, seed uint64, ops int) {
	plain := filepath.Join(filepath.Dir(m.Store), "plain")
	m.Must(os.Mkdir(plain, 0o755))
	f := &fuzzer{m: m, rand: rand.New(rand.NewPCG(seed, 1)), sides: [2]string{m.Dir, plain}}
	for _, d := range []string{"", "d/", "d/e/", "runs/"} {
		for i := range 5 {
			f.names = append(f.names, fmt.Sprintf("%sf%d", d, i))
		}
		if d != "" {
			f.names = append(f.names, strings.TrimSuffix(d, "/"))
		}
	}
	defer f.closeAll()
	for i := range ops {
		what, got, want := f.step()
		f.log = append(f.log, what)
		if got != want {
			t.Fatalf("seed %d, step %d: %s\n    ext4:  %s\n    mount: %s\nbefore:\n%s", seed, i, what, want, got,
				strings.Join(f.log[max(0, len(f.log)-60):], "\n"))
		}
	}
	f.closeAll()
	f.compare(seed)
	m.Sync()
	_, _ = m.CLI("evict", m.Dir)
	f.compare(seed)
	m.Remount()
	f.compare(seed)
}

func (f *fuzzer) compare(seed uint64) {
	f.m.T.Helper()
	var sides [2][]string
	for i, dir := range f.sides {
		w := &world{dir: dir}
		w.left()
		slices.Sort(w.lines)
		sides[i] = w.lines
	}
	if d := differentLines(sides[1], sides[0]); d != "" {
		f.m.T.Fatalf("seed %d, at the end:\n%s\noperations:\n%s", seed, d, strings.Join(f.log, "\n"))
	}
}

func (f *fuzzer) closeAll() {
	for _, p := range f.fds {
		unix.Close(p[0])
		unix.Close(p[1])
	}
	f.fds = nil
}

// both does the same on both sides, and returns what came of it.
func (f *fuzzer) both(what string, do func(w *world, side int)) (string, string, string) {
	var out [2]string
	for i, dir := range f.sides {
		w := &world{dir: dir}
		do(w, i)
		out[i] = strings.Join(w.lines, "; ")
	}
	return what, out[0], out[1]
}

// place is an offset that is often near an edge of something.
func (f *fuzzer) place() int64 {
	off := f.rand.Int64N(600_000)
	if f.rand.IntN(2) == 0 {
		off = off&^(1<<(8+f.rand.IntN(10))-1) + int64(f.rand.IntN(3)-1)
	}
	return max(off, 0)
}

func (f *fuzzer) data() []byte {
	n := 1 << f.rand.IntN(19)
	n = max(1, n-f.rand.IntN(n/4+1))
	if f.rand.IntN(6) == 0 {
		return make([]byte, n)
	}
	return mounttest.Noise(f.rand.Uint64N(20), n) // from few seeds: contents meet again
}

func (f *fuzzer) name() string { return f.names[f.rand.IntN(len(f.names))] }

func (f *fuzzer) step() (what, got, want string) {
	r := f.rand
	if r.IntN(60) == 0 {
		return f.disturb(), "", ""
	}
	if len(f.fds) > 0 && r.IntN(100) < 45 {
		return f.onOpen(r.IntN(len(f.fds)))
	}
	a, b := f.name(), f.name()
	switch k := r.IntN(100); {
	case k < 25 && len(f.fds) < 8:
		flags := []int{unix.O_RDONLY, unix.O_RDWR, unix.O_WRONLY}[r.IntN(3)]
		for _, more := range []int{unix.O_CREAT, unix.O_CREAT, unix.O_TRUNC, unix.O_EXCL, unix.O_APPEND} {
			if r.IntN(4) == 0 || more == unix.O_CREAT && r.IntN(2) == 0 {
				flags |= more
			}
		}
		if flags&unix.O_CREAT == 0 {
			flags &^= unix.O_EXCL
		}
		var p [2]int
		what, got, want = f.both(fmt.Sprintf("open %s %#o", a, flags), func(w *world, side int) {
			p[side] = w.open(a, flags, 0o644)
		})
		if p[0] >= 0 && p[1] >= 0 {
			f.fds = append(f.fds, p)
		}
		return what, got, want
	case k < 40:
		d := f.data()
		return f.both(fmt.Sprintf("file %s %d", a, len(d)), func(w *world, _ int) {
			w.do("write", os.WriteFile(w.p(a), d, 0o644))
		})
	case k < 50:
		return f.both("read "+a, func(w *world, _ int) {
			if st, err := os.Stat(w.p(a)); err == nil && st.Mode().IsRegular() {
				w.whole(a)
			}
		})
	case k < 57:
		return f.both("stat "+a, func(w *world, _ int) { w.stat(a) })
	case k < 64:
		return f.both("mkdir "+a, func(w *world, _ int) { w.do("mkdir", unix.Mkdir(w.p(a), 0o755)) })
	case k < 69:
		return f.both("unlink "+a, func(w *world, _ int) { w.do("unlink", unix.Unlink(w.p(a))) })
	case k < 70:
		return f.both("rmdir "+a, func(w *world, _ int) { w.do("rmdir", unix.Rmdir(w.p(a))) })
	case k < 78:
		flags := []uint{0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[r.IntN(4)]
		return f.both(fmt.Sprintf("rename %s %s %d", a, b, flags), func(w *world, _ int) {
			w.do("rename", unix.Renameat2(unix.AT_FDCWD, w.p(a), unix.AT_FDCWD, w.p(b), flags))
		})
	case k < 83:
		return f.both("link "+a+" "+b, func(w *world, _ int) { w.do("link", unix.Link(w.p(a), w.p(b))) })
	case k < 85:
		to := a
		if strings.Contains(b, "/") {
			// Never out of the mount, wherever the link is moved: what a descriptor can do there is another
			// filesystem's.
			to = filepath.Base(a)
		}
		return f.both("symlink "+a+" "+b, func(w *world, _ int) { w.do("symlink", unix.Symlink(to, w.p(b))) })
	case k < 90:
		size := f.place()
		return f.both(fmt.Sprintf("truncate %s %d", a, size),
			func(w *world, _ int) { w.do("truncate", unix.Truncate(w.p(a), size)) })
	case k < 93:
		mode := uint32(0o400 | r.IntN(0o400))
		return f.both(fmt.Sprintf("chmod %s %o", a, mode), func(w *world, _ int) {
			if st, err := os.Lstat(w.p(a)); err == nil && st.Mode().IsRegular() {
				w.do("chmod", unix.Chmod(w.p(a), mode))
			}
		})
	case k < 96:
		sec := int64(r.Uint32()) - 1<<30
		return f.both(fmt.Sprintf("utimens %s %d", a, sec), func(w *world, _ int) {
			w.do("utimens", unix.UtimesNanoAt(unix.AT_FDCWD, w.p(a), []unix.Timespec{{Sec: sec, Nsec: 5},
				{Sec: sec + 1, Nsec: 7}}, 0))
			var st unix.Stat_t
			if unix.Stat(w.p(a), &st) == nil {
				w.say("%d", st.Mtim.Nano())
			}
		})
	case k < 98:
		value := mounttest.Noise(r.Uint64N(9), r.IntN(100))
		return f.both("setxattr "+a, func(w *world, _ int) {
			w.do("set", unix.Setxattr(w.p(a), "user.a", value, 0))
			w.xattrs(a)
		})
	}
	return f.both("names", func(w *world, _ int) {
		for _, d := range []string{".", "d", "d/e", "runs"} {
			w.names(d)
		}
	})
}

// onOpen does something with an open file.
func (f *fuzzer) onOpen(i int) (what, got, want string) {
	r, p := f.rand, f.fds[i]
	off, d := f.place(), f.data()
	switch k := r.IntN(100); {
	case k < 30:
		return f.both(fmt.Sprintf("[%d] write %d@%d", i, len(d), off),
			func(w *world, side int) { w.write(p[side], d, off) })
	case k < 50:
		return f.both(fmt.Sprintf("[%d] read %d@%d", i, len(d), off),
			func(w *world, side int) { w.read(p[side], len(d), off) })
	case k < 62:
		f.fds = slices.Delete(f.fds, i, i+1)
		return f.both(fmt.Sprintf("[%d] close", i), func(w *world, side int) { w.close(p[side]) })
	case k < 70:
		return f.both(fmt.Sprintf("[%d] ftruncate %d", i, off),
			func(w *world, side int) { w.do("ftruncate", unix.Ftruncate(p[side], off)) })
	case k < 76:
		mode := []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE,
			unix.FALLOC_FL_ZERO_RANGE}[r.IntN(4)]
		return f.both(fmt.Sprintf("[%d] fallocate %d %d+%d", i, mode, off, len(d)), func(w *world, side int) {
			w.do("fallocate", unix.Fallocate(p[side], mode, off, int64(len(d))))
			w.fstat(p[side])
		})
	case k < 84:
		j, to := r.IntN(len(f.fds)), f.place()
		q := f.fds[j]
		return f.both(fmt.Sprintf("[%d] copy %d %d→[%d] %d", i, len(d), off, j, to), func(w *world, side int) {
			w.copyRange(p[side], q[side], off, to, len(d))
		})
	case k < 90:
		return f.both(fmt.Sprintf("[%d] map %d", i, off), func(w *world, side int) {
			var st unix.Stat_t
			w.do("fstat", unix.Fstat(p[side], &st))
			if st.Size == 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
				return
			}
			m, err := unix.Mmap(p[side], 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			w.do("mmap", err)
			if err == nil {
				if off < st.Size {
					copy(m[off:], d)
				}
				w.say("%v", m[st.Size/2])
				w.do("munmap", unix.Munmap(m))
			}
		})
	case k < 95:
		return f.both(fmt.Sprintf("[%d] fsync", i),
			func(w *world, side int) { w.do("fsync", unix.Fsync(p[side])) })
	}
	return f.both(fmt.Sprintf("[%d] fstat", i), func(w *world, side int) { w.fstat(p[side]) })
}

// disturb does to the mount alone what no program may notice.
func (f *fuzzer) disturb() string {
	m := f.m
	switch f.rand.IntN(7) {
	case 0, 1:
		m.Sync()
		return "-- sync"
	case 2, 3:
		m.Sync()
		_, _ = m.CLI("evict", m.Dir)
		return "-- evict"
	case 4:
		_, _ = m.CLI("hydrate", m.Dir)
		return "-- hydrate"
	case 5:
		f.closeAll()
		m.Remount()
		return "-- close all, remount"
	}
	f.closeAll()
	// What was written and closed survives the daemon, not the machine.
	m.Kill()
	m.Must(m.Start())
	return "-- close all, kill, mount"
}
