package integration

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// snapshot describes everything in a folder: names, modes, sizes, times, bytes. Not times of access: reading moves them as
// the disk's own mount has it.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		s := fmt.Sprintf("mode %o, links %d, size %d, blocks %d, mtime %d.%d, ctime %d.%d", st.Mode, st.Nlink, st.Size, st.Blocks,
			st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
		if d.Type().IsRegular() {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			h := sha256.New()
			if _, err := io.Copy(h, f); err != nil {
				return err
			}
			s += fmt.Sprintf(", bytes %x", h.Sum(nil)[:8])
		}
		all[path] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReadOnly: a read-only mount reads everything, refuses every change, and leaves the store as it is to the last time
// stamp; several can be there at once, also on a disk that cannot be written.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	model, err := os.ReadFile("../formats/testdata/torch/flat.pt")
	m.must(err)
	want := map[string][]byte{"runs/a/1/model.pt": model, "hollow.bin": noise(1, 3*mib), "whole.bin": noise(2, 2*mib), "notes.txt": []byte("notes"), "empty": {}}
	for name, data := range want {
		m.write(name, data)
	}
	m.must(os.Symlink("hollow.bin", m.path("link")))
	m.evict("hollow.bin", "runs/a/1/model.pt")
	view, err := os.ReadFile(m.path("runs/a/1/model.safetensors"))
	m.must(err)
	want["runs/a/1/model.safetensors"], want["link"] = view, want["hollow.bin"]
	m.must(m.Stop())

	before := snapshot(t, m.Store)
	use := func(r *mount) {
		t.Helper()
		for range 3 { // a writer would make what is read again whole
			for name, data := range want {
				r.want(name, data)
			}
		}
		r.wantNames("runs/a/1", "model.pt", "model.safetensors")
		x := r.path("hollow.bin")
		for what, err := range map[string]error{
			"write": os.WriteFile(x, nil, 0o644), "create": os.WriteFile(r.path("new"), nil, 0o644), "mkdir": os.Mkdir(r.path("d"), 0o755),
			"remove": os.Remove(x), "remove a view": os.Remove(r.path("runs/a/1/model.safetensors")), "rename": os.Rename(x, r.path("y")),
			"link": os.Link(x, r.path("y")), "symlink": os.Symlink("x", r.path("y")), "chmod": os.Chmod(x, 0o600),
			"truncate": os.Truncate(x, 0), "xattr": unix.Setxattr(x, "user.x", []byte("1"), 0), "times": unix.Utimes(x, make([]unix.Timeval, 2)),
		} {
			if !errors.Is(err, unix.EROFS) {
				t.Errorf("%s: %v, want EROFS", what, err)
			}
		}
		r.cli("stats", r.Dir)
		r.cli("sync", r.Dir)
		if s := r.status(); s.Mountpoint != r.Dir || s.PID == 0 {
			t.Errorf("status: %+v", s)
		}
		if f := r.show("hollow.bin"); f.State != packed {
			t.Errorf("show: %+v", f)
		}
		for _, verb := range []string{"evict", "hydrate"} {
			if said, code := r.cliFails(verb, r.path("hollow.bin")); code != exitFailure {
				t.Errorf("%s: exit status %d: %s", verb, code, said)
			} else {
				wantSaid(t, said, "read-only")
			}
		}
	}
	same := func(when string) {
		t.Helper()
		after := snapshot(t, m.Store)
		for _, path := range unite(before, after) {
			if before[path] != after[path] {
				t.Errorf("%s: %s\nwas %s\nis  %s", when, path, before[path], after[path])
			}
		}
	}
	reader := func(store string, flags ...string) *mount {
		t.Helper()
		r := prepare(t, t.TempDir(), append(flags, "--read-only")...)
		r.Store = store
		r.must(r.CLIStart())
		return r
	}
	a, b := reader(m.Store), reader(m.Store, "--no-passthrough")
	use(a)
	use(b)
	m.cli("stats", m.Store) // by one of the two

	said, code := m.cliFails("mount", m.Store, m.Dir)
	if code != exitBusy {
		t.Errorf("mounted for writing beside readers: exit status %d", code)
	}
	wantSaid(t, said, "read-only", fmt.Sprintf("process %d", a.status().PID), fmt.Sprintf("process %d", b.status().PID))
	m.cli("umount", a.Dir)
	b.want("whole.bin", want["whole.bin"])
	m.cli("umount", m.Store)
	same("two readers")
	m.cli("stats", m.Store)
	same("stats of an unmounted store")

	if os.Geteuid() == 0 {
		bound := filepath.Join(t.TempDir(), "bound")
		m.must(os.Mkdir(bound, 0o755))
		out, err := exec.Command("sh", "-c", `mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"`, "sh", m.Store, bound).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() { _ = unix.Unmount(bound, unix.MNT_DETACH) })
		c := reader(bound)
		use(c)
		m.cli("umount", c.Dir)
		m.cli("stats", bound)
		if said, code := m.cliFails("mount", bound, m.Dir); code == 0 {
			t.Error("mounted for writing on a read-only disk")
		} else {
			wantSaid(t, said, "read-only")
		}
		same("on a read-only disk")
	}

	// By mount(8)'s option, and a store that nobody closed.
	m.must(m.Start())
	m.write("late", noise(3, mib))
	m.kill9()
	m.cli("umount", m.Dir)
	if said, code := m.cliFails("mount", "-o", "ro", m.Store, m.Dir); code != exitRecovery {
		t.Errorf("exit status %d: %s", code, said)
	} else {
		wantSaid(t, said, m.Store, "not closed in order", "for writing")
	}
	m.must(m.Start())
	m.must(m.Stop())
	m.Flags = []string{"-o", "ro"}
	m.must(m.Start())
	m.want("late", noise(3, mib))
	m.kill9() // a reader leaves nothing to be repaired
	m.must(m.Start())
	m.want("late", noise(3, mib))
	m.must(m.Stop())
	m.Flags = nil
	m.must(m.Start())
}

// unite is the keys of both.
func unite(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	var keys []string
	for k := range all {
		keys = append(keys, k)
	}
	return keys
}

// CLIStart is Start without a log file beside it: a reader writes none.
func (m *mount) CLIStart() error {
	_, err := m.CLI(append(append([]string{"mount"}, m.Flags...), m.Store, m.Dir)...)
	return err
}

// TestMountWords: what mount(8) tells the kernel about a mount is so.
func TestMountWords(t *testing.T) {
	t.Parallel()
	needRoot(t, "mounts with flags")
	m := newMount(t, "-o", "noexec,noatime,suid,nodev")
	m.write("prog", []byte("#!/bin/sh\n"))
	m.must(os.Chmod(m.path("prog"), 0o755))
	if err := exec.Command(m.path("prog")).Run(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("executed on a noexec mount: %v", err)
	}
	var st unix.Statfs_t
	m.must(unix.Statfs(m.Dir, &st))
	if st.Flags&unix.ST_NOATIME == 0 || st.Flags&unix.ST_NOEXEC == 0 || st.Flags&unix.ST_NODEV == 0 || st.Flags&unix.ST_NOSUID != 0 {
		t.Errorf("flags %x", st.Flags)
	}
}
