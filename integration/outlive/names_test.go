package outlive

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

func init() {
	uses["names"] = names
	uses["list"] = list
	uses["cwd"] = cwd
}

// thing is what a name stands for in the model.
type thing struct {
	kind  uint32 // of S_IFMT
	ino   uint64
	attrs map[string]string
	links int
}

// names makes, moves and removes names of all kinds, and compares each with a model.
func names(w *worker) func() {
	for _, d := range []string{"a", "b"} {
		w.check(unix.Mkdir(w.path(d), 0o755), "mkdir %s", d)
	}
	have := map[string]*thing{}
	n := 0
	fresh := func() string {
		n++
		return fmt.Sprintf("%s/%d", []string{"a", "b"}[w.rng.IntN(2)], n)
	}
	some := func() string {
		all := slices.Sorted(maps.Keys(have))
		if len(all) == 0 {
			return ""
		}
		return all[w.rng.IntN(len(all))]
	}
	look := func(name string) {
		var st unix.Stat_t
		err := unix.Lstat(w.path(name), &st)
		t := have[name]
		if t == nil {
			w.fails(err, unix.ENOENT, "lstat %s", name)
			return
		}
		w.check(err, "lstat %s", name)
		if t.ino == 0 {
			t.ino = st.Ino
		}
		w.want(st.Mode&unix.S_IFMT == t.kind && st.Ino == t.ino,
			"%s is %o, inode %d, not %o, %d", name, st.Mode, st.Ino, t.kind, t.ino)
		w.want(t.kind == unix.S_IFDIR || int(st.Nlink) == t.links,
			"%s has %d links, not %d", name, st.Nlink, t.links)
	}
	made := func(name string, kind uint32) {
		have[name] = &thing{kind: kind, links: 1, attrs: map[string]string{}}
		look(name)
	}
	return func() {
		at := some()
		switch k := w.rng.IntN(15); {
		case k == 0 || at == "" || len(have) < 20:
			name := fresh()
			switch w.rng.IntN(5) {
			case 0:
				w.check(unix.Mkdir(w.path(name), 0o755), "mkdir %s", name)
				made(name, unix.S_IFDIR)
			case 1:
				w.check(unix.Symlink("there", w.path(name)), "symlink %s", name)
				made(name, unix.S_IFLNK)
				to, err := os.Readlink(w.path(name))
				w.check(err, "readlink %s", name)
				w.want(to == "there", "%s leads to %q", name, to)
			case 2:
				w.check(unix.Mknod(w.path(name), unix.S_IFIFO|0o644, 0), "mknod %s", name)
				made(name, unix.S_IFIFO)
			case 3:
				w.check(unix.Mknod(w.path(name), unix.S_IFREG|0o644, 0), "mknod %s", name)
				made(name, unix.S_IFREG)
			default:
				flags := unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC
				fd, err := unix.Open(w.path(name), flags, 0o640)
				w.check(err, "create %s", name)
				w.check(unix.Close(fd), "close %s", name)
				made(name, unix.S_IFREG)
			}
		case k < 3: // rename, also onto what there is
			to := fresh()
			other := some()
			if w.rng.IntN(2) == 0 && have[other].kind == have[at].kind && have[other] != have[at] {
				to = other
			}
			w.check(unix.Rename(w.path(at), w.path(to)), "rename %s %s", at, to)
			if gone := have[to]; gone != nil {
				gone.links--
			}
			have[to] = have[at]
			delete(have, at)
			look(at)
			look(to)
		case k < 5:
			other := some()
			w.check(rename(w.path(at), w.path(other), unix.RENAME_EXCHANGE), "exchange %s %s", at, other)
			have[at], have[other] = have[other], have[at]
			look(at)
			look(other)
		case k == 5:
			to := fresh()
			w.check(rename(w.path(at), w.path(to), unix.RENAME_NOREPLACE), "move %s %s", at, to)
			have[to] = have[at]
			delete(have, at)
			look(at)
			look(to)
		case k == 6:
			w.fails(rename(w.path(at), w.path(some()), unix.RENAME_NOREPLACE), unix.EEXIST, "move %s onto another", at)
		case k < 9 && have[at].kind != unix.S_IFDIR:
			to := fresh()
			w.check(unix.Link(w.path(at), w.path(to)), "link %s %s", at, to)
			have[to] = have[at]
			have[at].links++
			look(at)
			look(to)
		case k < 11:
			if have[at].kind == unix.S_IFDIR {
				w.check(unix.Rmdir(w.path(at)), "rmdir %s", at)
			} else {
				w.check(unix.Unlink(w.path(at)), "unlink %s", at)
				have[at].links--
			}
			delete(have, at)
			look(at)
			if len(have) > 60 {
				for _, name := range slices.Sorted(maps.Keys(have))[:10] {
					if have[name].kind == unix.S_IFDIR {
						w.check(unix.Rmdir(w.path(name)), "rmdir %s", name)
					} else {
						w.check(unix.Unlink(w.path(name)), "unlink %s", name)
						have[name].links--
					}
					delete(have, name)
				}
			}
		case k < 13 && (have[at].kind == unix.S_IFDIR || have[at].kind == unix.S_IFREG):
			attrs := have[at].attrs
			name := fmt.Sprint("user.a", w.rng.IntN(3))
			value := fmt.Sprint(w.rng.Uint64())
			was, ok := attrs[name]
			switch w.rng.IntN(4) {
			case 0:
				err := unix.Setxattr(w.path(at), name, []byte(value), unix.XATTR_CREATE)
				if ok {
					w.fails(err, unix.EEXIST, "setxattr CREATE %s %s", at, name)
				} else {
					w.check(err, "setxattr CREATE %s %s", at, name)
					attrs[name] = value
				}
			case 1:
				err := unix.Setxattr(w.path(at), name, []byte(value), unix.XATTR_REPLACE)
				if ok {
					w.check(err, "setxattr REPLACE %s %s", at, name)
					attrs[name] = value
				} else {
					w.fails(err, unix.ENODATA, "setxattr REPLACE %s %s", at, name)
				}
			case 2:
				err := unix.Removexattr(w.path(at), name)
				if ok {
					w.check(err, "removexattr %s %s", at, name)
					delete(attrs, name)
				} else {
					w.fails(err, unix.ENODATA, "removexattr %s %s", at, name)
				}
			default:
				var b [64]byte
				k, err := unix.Getxattr(w.path(at), name, b[:])
				if ok {
					w.check(err, "getxattr %s %s", at, name)
					w.want(string(b[:k]) == was, "%s of %s is %q, not %q", name, at, b[:k], was)
				} else {
					w.fails(err, unix.ENODATA, "getxattr %s %s", at, name)
				}
			}
		case k == 13:
			_, err := unix.Open(w.path(at), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
			w.fails(err, unix.EEXIST, "create %s once more", at)
			w.fails(unix.Mkdir(w.path(at), 0o700), unix.EEXIST, "mkdir %s once more", at)
		default:
			listed := map[string]bool{}
			for _, d := range []string{"a", "b"} {
				entries, err := os.ReadDir(w.path(d))
				w.check(err, "list %s", d)
				for _, e := range entries {
					w.want(have[d+"/"+e.Name()] != nil, "%s/%s is listed, and is not there", d, e.Name())
					listed[d+"/"+e.Name()] = true
				}
			}
			for name := range have {
				w.want(listed[name], "%s is not listed", name)
				look(name)
			}
		}
	}
}

// namesIn are the names in what getdents gave, but for . and ..
func namesIn(b []byte) []string {
	var all []string
	for len(b) >= 19 {
		n := binary.NativeEndian.Uint16(b[16:])
		name, _, _ := bytes.Cut(b[19:n], []byte{0})
		if s := string(name); s != "." && s != ".." {
			all = append(all, s)
		}
		b = b[n:]
	}
	return all
}

// list lists a directory in small pieces while names come and go in it.
func list(w *worker) func() {
	const stay = 250
	for i := range stay {
		w.check(os.WriteFile(w.path(fmt.Sprintf("stays-%d", i)), nil, 0o644), "write")
	}
	var failed atomic.Value
	go func() {
		for i := 0; !w.stop.Load(); i++ {
			name := w.path(fmt.Sprintf("comes-and-goes-%d", i%100))
			fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err == nil {
				err = unix.Close(fd)
			}
			if err == nil && i%2 == 0 {
				err = unix.Rename(name, name+"-moved")
				name += "-moved"
			}
			if err == nil {
				err = unix.Unlink(name)
			}
			if err != nil {
				failed.Store(fmt.Sprintf("%s: %v", name, err))
				return
			}
			w.calls.Add(3)
		}
	}()
	return func() {
		if s, ok := failed.Load().(string); ok {
			panic(fault("FAILED beside a listing: " + s))
		}
		fd, err := unix.Open(w.dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		w.check(err, "open the directory")
		defer unix.Close(fd)
		times := map[string]int{}
		buf := make([]byte, 200+w.rng.IntN(2000))
		for {
			n, err := unix.Getdents(fd, buf)
			w.check(err, "getdents")
			if n == 0 {
				break
			}
			for _, name := range namesIn(buf[:n]) {
				times[name]++
			}
		}
		for i := range stay {
			name := fmt.Sprintf("stays-%d", i)
			w.want(times[name] == 1, "%s is listed %d times", name, times[name])
		}
	}
}

// cwd stands in a directory that is removed, and in one that is not.
func cwd(w *worker) func() {
	runtime.LockOSThread()
	w.check(unix.Unshare(unix.CLONE_FS), "unshare")
	n := 0
	go func() { runtime.LockOSThread(); select {} }()
	return func() {
		n++
		name := w.path(fmt.Sprint("d", n))
		w.check(unix.Mkdir(name, 0o755), "mkdir %s", name)
		w.check(unix.Chdir(name), "chdir %s", name)
		data := mounttest.Noise(uint64(n), 1000)
		w.check(os.WriteFile("x", data, 0o644), "write x")
		got, err := os.ReadFile("x")
		w.check(err, "read x")
		w.want(bytes.Equal(got, data), "x in the working folder")
		w.check(unix.Unlink("x"), "unlink x")
		w.check(unix.Rmdir(name), "rmdir %s", name)
		for range 1 + w.rng.IntN(60) {
			var st unix.Stat_t
			w.check(unix.Stat(".", &st), "stat . of a removed directory")
			w.want(st.Nlink == 0, "a removed directory has %d links", st.Nlink)
			_, err := unix.Open("x", unix.O_CREAT|unix.O_WRONLY, 0o600)
			w.fails(err, unix.ENOENT, "create in a removed directory")
			w.fails(unix.Stat("x", &st), unix.ENOENT, "stat in a removed directory")
		}
		w.check(unix.Chdir(w.dir), "chdir back")
	}
}
