package names

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// each walks, and returns the paths by which every node was met.
func (r *rig) each() map[*Node][]string {
	r.t.Helper()
	met := map[*Node][]string{}
	r.must("walk", r.EachFile(context.Background(), Tour{File: func(p string, n *Node, _ *unix.Stat_t) error {
		met[n] = append(met[n], p)
		return nil
	}}))
	return met
}

// Every regular file comes by each of its names, those that are known once more, and those that are open
// without a name.
func TestEachFile(t *testing.T) {
	r := newRig(t)
	r.mkdir("a/b", "empty")
	r.write("f", "a/g", "a/b/h", "unlinked")
	r.must("link", r.link("f", "a/l"))
	s := r.symlink("s", "f")
	f, u := r.find("f"), r.find("unlinked")
	r.must("unlink", r.unlink("unlinked"))
	m, err := r.MakeUnnamed(r.Root(), 0o600, unix.O_RDONLY, r.me)
	r.must("make", err)
	m.Close()
	v := r.Synthesise(r.Root(), "v", 1, unix.S_IFREG, &fake{key: 1})
	var paths []string
	for n, at := range r.each() {
		if n.File() == nil {
			t.Errorf("%s is no file", at)
		}
		paths = append(paths, at...)
	}
	slices.Sort(paths)
	want := []string{"(unlinked)", "(unlinked)", "a/b/h", "a/g", "a/l", "f", "f"}
	if !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	for _, n := range []*Node{s, f, u, m.Node, v} {
		n.Unpin()
	}
}

// A file that gets another name while the walk is under way, from a directory that it has not reached to one
// that it has left, is not missed.
func TestEachFileOvertaken(t *testing.T) {
	for name, move := range map[string]func(r *rig, from, to string){
		"rename": func(r *rig, from, to string) { r.must("rename", r.rename(from+"/f", to+"/f", 0)) },
		"over": func(r *rig, from, to string) {
			r.must("rename", r.rename(from+"/f", to+"/other", 0))
		},
		"exchange": func(r *rig, from, to string) {
			r.must("exchange", r.rename(from+"/f", to+"/other", unix.RENAME_EXCHANGE))
		},
		"exchanged with it": func(r *rig, from, to string) {
			r.must("exchange", r.rename(to+"/other", from+"/f", unix.RENAME_EXCHANGE))
		},
		"link": func(r *rig, from, to string) {
			r.must("link", r.link(from+"/f", to+"/l"))
			r.must("unlink", r.unlink(from+"/f"))
		},
		"directory": func(r *rig, from, to string) { r.must("rename", r.rename(from, to+"/d", 0)) },
		"directory that was made": func(r *rig, from, to string) {
			r.mkdir(from + "/sub")
			r.must("rename", r.rename(from+"/f", from+"/sub/f", 0))
			r.must("rename", r.rename(from+"/sub", to+"/sub", 0))
		},
		"directories exchanged": func(r *rig, from, to string) {
			r.must("exchange", r.rename(from, to, unix.RENAME_EXCHANGE))
		},
		"unlinked, and known": func(r *rig, from, to string) {
			r.keep(from + "/f")
			r.must("unlink", r.unlink(from+"/f"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, d := range []string{"a", "z"} {
				r.mkdir(d)
				r.write(d+"/f", d+"/other")
			}
			inos := map[string]uint64{}
			for _, p := range []string{"a/f", "a/other", "z/f", "z/other"} {
				inos[p] = r.attr(p).Ino
			}
			r.AfterDir = func(to string) {
				r.AfterDir = nil
				move(r, map[string]string{"a": "z", "z": "a"}[to], to)
			}
			met := map[uint64]bool{}
			r.must("walk", r.EachFile(t.Context(), Tour{File: func(p string, n *Node, _ *unix.Stat_t) error {
				met[n.Ino()] = true
				return nil
			}}))
			for p, ino := range inos {
				if !met[ino] {
					t.Errorf("%s is missed", p)
				}
			}
		})
	}
}

// schedule is a tree that is changed at random while it is walked, and what the walk has to find.
type schedule struct {
	*rig
	draw func(label string, n int) int // a number below n
	held []*Node                       // what is open
	gone map[uint64]bool               // what went meanwhile; the host may use its number again
}

// start makes a tree with some files, one of which is open without a name, and returns their inode numbers.
func (s *schedule) start() map[uint64]bool {
	for _, d := range []string{"a/a", "a/b", "b/a", "b/c", "c/b", "c/c"} {
		s.mkdir(d)
		s.write(d + "/b")
	}
	for range 10 {
		s.step()
	}
	clear(s.gone)
	m, err := s.MakeUnnamed(s.root, 0o600, unix.O_RDONLY, s.me)
	s.must("make", err)
	m.Close()
	s.held = append(s.held, m.Node)
	return s.files()
}

// files are the inode numbers of all files, with a name or open without.
func (s *schedule) files() map[uint64]bool {
	files := map[uint64]bool{}
	s.must("list", filepath.WalkDir(s.at(""), func(p string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && e.Type().IsRegular() {
			err = unix.Lstat(p, &st)
			files[st.Ino] = true
		}
		return err
	}))
	for _, n := range s.held {
		if n.File() != nil {
			files[n.Ino()] = true
		}
	}
	return files
}

// there draws a path that leads to something.
func (s *schedule) there() string {
	var paths []string
	s.must("list", filepath.WalkDir(s.at(""), func(p string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(s.at(""), p); rel != "." {
			paths = append(paths, rel)
		}
		return err
	}))
	return append(paths, "a")[s.draw("there", max(1, len(paths)))]
}

// path draws a path, of few.
func (s *schedule) path() string {
	names := []string{"a", "b", "c"}
	p := names[s.draw("name", len(names))]
	for range s.draw("depth", 3) {
		p = path.Join(p, names[s.draw("name", len(names))])
	}
	return p
}

// step does something to the tree. Most of it fails.
func (s *schedule) step() {
	lost := func(v *Victim, err error) {
		if err == nil && v.Went && v.Last && !slices.Contains(s.held, v.Node) {
			s.gone[v.Ino] = true
		}
		v.Spare()
	}
	switch s.draw("op", 9) {
	case 0, 1:
		if n, err := s.make(s.path()); err == nil {
			n.Unpin()
		}
	case 2:
		s.tryMkdir(s.path())
	case 3, 4, 5:
		flags := []uint32{0, unix.RENAME_EXCHANGE, unix.RENAME_NOREPLACE}[s.draw("flags", 3)]
		s.in(s.there(), func(fd *Node, fn string) error {
			return s.in(s.path(), func(td *Node, tn string) error {
				v, moved, err := s.Rename(fd, fn, td, tn, flags)
				if moved != nil {
					moved.Unpin()
				}
				lost(&v, err)
				return err
			})
		})
	case 6:
		if len(s.held) > 0 && s.draw("held", 2) == 0 {
			s.linkNode(s.held[s.draw("which", len(s.held))], s.path())
		} else if from := s.there(); s.link(from, s.path()) == nil {
			s.unlink(from)
		}
	case 7:
		s.in(s.there(), func(dir *Node, name string) error {
			v, err := s.Remove(dir, name, []int{0, unix.AT_REMOVEDIR}[s.draw("flag", 2)])
			lost(&v, err)
			return err
		})
	case 8:
		if n, err := s.Resolve(s.there()); err == nil && s.draw("hold", 3) == 0 {
			s.held = append(s.held, n)
		} else if err == nil {
			n.Unpin()
		}
	}
}

// check fails if something was missed that was there from first to last.
func (s *schedule) check(start, met map[uint64]bool) {
	end := s.files()
	for ino := range start {
		if end[ino] && !s.gone[ino] && !met[ino] {
			s.t.Errorf("inode %d is missed", ino)
		}
	}
	for _, n := range s.held {
		n.Unpin()
	}
	s.end()
}

// A file that is moved behind the walk, opened and removed before the walk comes back for it is not missed:
// it is open.
func TestEachFileRemovedBehind(t *testing.T) {
	r := newRig(t)
	r.mkdir("a", "b")
	r.write("a/x", "b/x")
	var moved []string
	r.AfterDir = func(p string) {
		if len(moved) == 0 && p != "" {
			from := map[string]string{"a": "b", "b": "a"}[p]
			r.write(from+"/y", from+"/z")
			for _, name := range []string{"y", "z"} {
				moved = append(moved, path.Join(p, name))
				r.must("rename", r.rename(path.Join(from, name), path.Join(p, name), 0))
			}
		}
	}
	var held *Node
	met := map[*Node]bool{}
	r.must("walk", r.EachFile(t.Context(), Tour{File: func(p string, n *Node, _ *unix.Stat_t) error {
		met[n] = true
		if len(moved) > 0 && p == moved[0] && held == nil {
			held = r.keep(moved[1])
			r.must("unlink", r.unlink(moved[1]))
		}
		return nil
	}}))
	if held == nil || !met[held] {
		t.Error("an open file was missed")
	}
}

// No file is missed, whatever is done to the tree behind each directory and each file.
func TestEachFileProperty(t *testing.T) {
	tmp := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(tmp, "")
		if err != nil {
			t.Fatal(err)
		}
		s := &schedule{rig: openRig(t, dir), gone: map[uint64]bool{}}
		s.draw = func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
		if s.draw("few descriptors", 2) == 1 {
			s.KeepOpen(1)
		}
		start, met := s.start(), map[uint64]bool{}
		left := 60
		meanwhile := func() {
			for range min(left, s.draw("steps", 4)) {
				s.step()
				left--
			}
		}
		s.AfterDir = func(string) { meanwhile() }
		s.must("walk", s.EachFile(t.Context(), Tour{File: func(p string, n *Node, _ *unix.Stat_t) error {
			met[n.Ino()] = true
			meanwhile()
			return nil
		}}))
		s.check(start, met)
	})
}

// No file is missed while another goroutine changes the tree as fast as it can.
func TestEachFileRace(t *testing.T) {
	end := time.Now().Add(time.Second)
	for seed := uint64(0); time.Now().Before(end); seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := &schedule{rig: openRig(t, t.TempDir()), gone: map[uint64]bool{}}
		s.draw = func(_ string, n int) int { return rng.IntN(n) }
		start, met := s.start(), map[uint64]bool{}
		var stop atomic.Bool
		var changing sync.WaitGroup
		changing.Go(func() {
			for !stop.Load() {
				if s.step(); len(s.held) > 10 {
					s.gone[s.held[1].Ino()] = true // perhaps
					s.held[1].Unpin()
					s.held = slices.Delete(s.held, 1, 2)
				}
			}
		})
		var mu sync.Mutex
		workers := 1 + int(seed%4)
		err := s.EachFile(t.Context(), Tour{Workers: workers, File: func(_ string, n *Node,
			_ *unix.Stat_t) error {
			mu.Lock()
			defer mu.Unlock()
			met[n.Ino()] = true
			return nil
		}})
		stop.Store(true)
		changing.Wait()
		s.must("walk", err)
		if s.check(start, met); t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// Whenever the walk ends early, by an error of do or by its context, nothing stays pinned.
func TestEachFileEndsEarly(t *testing.T) {
	wrong := errors.New("wrong")
	for at := 1; ; at++ {
		r := newRig(t)
		for _, d := range []string{"a", "b", "c"} {
			r.mkdir(d)
			r.write(d+"/f", d+"/g")
		}
		r.AfterDir = func(p string) { // three times, since the moved ones are walked, too
			if r.rename("a/f", "b/x", 0) == nil || r.rename("b/x", "c/y", 0) == nil {
				return
			}
			r.rename("c", "a/c", 0)
		}
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		err := r.EachFile(ctx, Tour{File: func(string, *Node, *unix.Stat_t) error {
			if calls++; calls == at && at%2 == 0 {
				return wrong
			} else if calls == at {
				cancel()
			}
			return nil
		}})
		cancel()
		r.onlyRoot()
		if calls < at {
			r.must("walk", err)
			break
		}
		// Behind the last file a cancelled context may not be looked at any more.
		if at%2 == 0 && err != wrong || at%2 == 1 && err != nil && err != context.Canceled {
			t.Errorf("at %d: %v", at, err)
		}
	}
}

// unprivileged calls do as somebody whom modes bind.
func unprivileged(t *testing.T, do func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, _, e := syscall.RawSyscall(unix.SYS_SETFSUID, 65534, 0, 0); e != 0 {
			t.Fatal(e)
		}
		defer syscall.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
	}
	do()
}

// What a directory holds that cannot be read cannot be told: the walk ends with an error.
func TestEachFileUnreadable(t *testing.T) {
	r := newRig(t)
	r.mkdir("d/e")
	r.write("d/e/f")
	for _, p := range []string{"", "d"} {
		r.must("chmod", os.Chmod(r.at(p), 0o755))
	}
	for _, mode := range []os.FileMode{0, 0o444, 0o111} {
		r.must("chmod", os.Chmod(r.at("d/e"), mode))
		unprivileged(t, func() {
			err := r.EachFile(t.Context(), Tour{File: func(string, *Node, *unix.Stat_t) error { return nil }})
			var pe *fs.PathError
			if !errors.Is(err, unix.EACCES) || !errors.As(err, &pe) || pe.Path != "d/e" {
				t.Errorf("mode %o: %v", mode, err)
			}
		})
		r.onlyRoot()
	}
	r.must("chmod", os.Chmod(r.at("d/e"), 0o755))
}

// A disk need not say of which type a name is.
func TestEachFileWithoutTypes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir := t.TempDir()
	image, store := filepath.Join(dir, "image"), filepath.Join(dir, "store")
	script := `truncate -s 8M "$1" && mkfs.ext4 -q -O ^filetype "$1" && mkdir "$2" && mount -o loop "$1" "$2"`
	if out, err := exec.Command("sh", "-c", script, "sh", image, store).CombinedOutput(); err != nil {
		t.Skipf("nothing is mounted here: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(store, 0); err != nil {
			t.Error(err)
		}
	})
	r := openRig(t, store)
	t.Cleanup(r.end)
	r.mkdir("a/b")
	r.write("a/b/f", "g")
	r.symlink("s", "g").Unpin()
	if met := r.each(); len(met) != 2 {
		t.Errorf("%d files, want 2", len(met))
	}
}

// One walk at a time: another one would not learn of the names that the first one writes down.
func TestEachFileTwice(t *testing.T) {
	r := newRig(t)
	r.mkdir("a")
	r.write("f", "g")
	none := Tour{File: func(string, *Node, *unix.Stat_t) error { return nil }}
	again := 0
	r.must("walk", r.EachFile(t.Context(), Tour{File: func(string, *Node, *unix.Stat_t) error {
		r.rename("f", "a/f", 0)
		err := r.EachFile(t.Context(), Tour{File: func(string, *Node, *unix.Stat_t) error {
			again++
			return nil
		}})
		r.want("another walk", err, unix.EBUSY)
		if r.moves == nil {
			t.Error("moves are not written down any more")
		}
		return nil
	}}))
	if again > 0 {
		t.Error("it walked")
	}
	r.must("the next walk", r.EachFile(t.Context(), none))
}
