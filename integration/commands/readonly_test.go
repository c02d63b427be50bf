package commands

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
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// snapshot describes everything in a folder: names, modes, sizes, times, bytes. Not times of access: reading
// moves them as the disk's own mount has it.
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

// TestReadOnly: a read-only mount reads everything, refuses every change, and leaves the store as it is to
// the last time stamp; several can be there at once, also on a disk that cannot be written.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	model, err := os.ReadFile("../../formats/testdata/torch/flat.pt")
	m.Must(err)
	want := map[string][]byte{"runs/a/1/model.pt": model, "hollow.bin": mounttest.Noise(1, 3*mib),
		"whole.bin": mounttest.Noise(2, 2*mib), "notes.txt": []byte("notes"), "empty": {}}
	for name, data := range want {
		m.Write(name, data)
	}
	m.Must(os.Symlink("hollow.bin", m.Path("link")))
	m.Evict("hollow.bin", "runs/a/1/model.pt")
	view, err := os.ReadFile(m.Path("runs/a/1/model.safetensors"))
	m.Must(err)
	want["runs/a/1/model.safetensors"], want["link"] = view, want["hollow.bin"]
	m.Must(m.Stop())

	before := snapshot(t, m.Store)
	use := func(r *mounttest.Mount) {
		t.Helper()
		for range 3 { // a writer would make what is read again whole
			for name, data := range want {
				r.Want(name, data)
			}
		}
		r.WantNames("runs/a/1", "model.pt", "model.safetensors")
		x := r.Path("hollow.bin")
		for what, err := range map[string]error{
			"write": os.WriteFile(x, nil, 0o644), "create": os.WriteFile(r.Path("new"), nil, 0o644),
			"mkdir":  os.Mkdir(r.Path("d"), 0o755),
			"remove": os.Remove(x), "remove a view": os.Remove(r.Path("runs/a/1/model.safetensors")), "rename": os.Rename(x, r.Path("y")),
			"link": os.Link(x, r.Path("y")), "symlink": os.Symlink("x", r.Path("y")),
			"chmod":    os.Chmod(x, 0o600),
			"truncate": os.Truncate(x, 0), "xattr": unix.Setxattr(x, "user.x", []byte("1"), 0),
			"times": unix.Utimes(x, make([]unix.Timeval, 2)),
		} {
			if !errors.Is(err, unix.EROFS) {
				t.Errorf("%s: %v, want EROFS", what, err)
			}
		}
		r.Run("stats", r.Dir)
		r.Run("sync", r.Dir)
		said := r.Run("status", r.Dir)
		if !strings.Contains(said, "(read-only; ") || strings.Contains(said, "closing a written file") {
			t.Errorf("status does not say that the mount only reads: %s", said)
		}
		if s := r.Status(); s.Mountpoint != r.Dir || s.PID == 0 {
			t.Errorf("status: %+v", s)
		}
		if f := r.Show("hollow.bin"); f.State != mounttest.Packed {
			t.Errorf("show: %+v", f)
		}
		for _, verb := range []string{"evict", "hydrate"} {
			if said, code := r.RunFails(verb, r.Path("hollow.bin")); code != exitFailure {
				t.Errorf("%s: exit status %d: %s", verb, code, said)
			} else {
				mounttest.WantSaid(t, said, "read-only")
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
	reader := func(store string, flags ...string) *mounttest.Mount {
		t.Helper()
		r := mounttest.Prepare(t, t.TempDir(), append(flags, "--read-only")...)
		r.Store = store
		r.Must(startWithoutLog(r))
		return r
	}
	a, b := reader(m.Store), reader(m.Store, "--no-passthrough")
	use(a)
	use(b)
	m.Run("stats", m.Store) // by one of the two

	said, code := m.RunFails("mount", m.Store, m.Dir)
	if code != exitBusy {
		t.Errorf("mounted for writing beside readers: exit status %d", code)
	}
	mounttest.WantSaid(t, said, "read-only", fmt.Sprintf("process %d", a.Status().PID),
		fmt.Sprintf("process %d", b.Status().PID))
	m.Run("umount", a.Dir)
	b.Want("whole.bin", want["whole.bin"])
	m.Run("umount", m.Store)
	same("two readers")
	m.Run("stats", m.Store)
	same("stats of an unmounted store")

	if os.Geteuid() == 0 {
		bound := filepath.Join(t.TempDir(), "bound")
		m.Must(os.Mkdir(bound, 0o755))
		out, err := exec.Command("sh", "-c", `mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"`, "sh", m.Store, bound).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() { _ = unix.Unmount(bound, unix.MNT_DETACH) })
		c := reader(bound)
		use(c)
		m.Run("umount", c.Dir)
		m.Run("stats", bound)
		if said, code := m.RunFails("mount", bound, m.Dir); code == 0 {
			t.Error("mounted for writing on a read-only disk")
		} else {
			mounttest.WantSaid(t, said, "read-only")
		}
		same("on a read-only disk")
	}

	// By mount(8)'s option, and a store that nobody closed.
	m.Must(m.Start())
	m.Write("late", mounttest.Noise(3, mib))
	m.Kill()
	m.Run("umount", m.Dir)
	if said, code := m.RunFails("mount", "-o", "ro", m.Store, m.Dir); code != exitRecovery {
		t.Errorf("exit status %d: %s", code, said)
	} else {
		mounttest.WantSaid(t, said, m.Store, "not closed in order", "for writing")
	}
	m.Must(m.Start())
	m.Must(m.Stop())
	m.Flags = []string{"-o", "ro"}
	m.Must(m.Start())
	m.Want("late", mounttest.Noise(3, mib))
	m.Kill() // a reader leaves nothing to be repaired
	m.Must(m.Start())
	m.Want("late", mounttest.Noise(3, mib))
	m.Must(m.Stop())
	m.Flags = nil
	m.Must(m.Start())
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
func startWithoutLog(m *mounttest.Mount) error {
	_, err := m.CLI(append(append([]string{"mount"}, m.Flags...), m.Store, m.Dir)...)
	return err
}

// TestMountWords: what mount(8) tells the kernel about a mount is so.
func TestMountWords(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "mounts with flags")
	m := mounttest.New(t, "-o", "noexec,noatime,suid,nodev")
	m.Write("prog", []byte("#!/bin/sh\n"))
	m.Must(os.Chmod(m.Path("prog"), 0o755))
	if err := exec.Command(m.Path("prog")).Run(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("executed on a noexec mount: %v", err)
	}
	var st unix.Statfs_t
	m.Must(unix.Statfs(m.Dir, &st))
	if st.Flags&unix.ST_NOATIME == 0 || st.Flags&unix.ST_NOEXEC == 0 || st.Flags&unix.ST_NODEV == 0 ||
		st.Flags&unix.ST_NOSUID != 0 {
		t.Errorf("flags %x", st.Flags)
	}
}
