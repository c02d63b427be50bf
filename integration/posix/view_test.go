package posix

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// TestViewsAreOutOfTheWay: what makes a name is not kept from it by a view of that name, as it would not be
// on a folder without views; what looks for the view finds it.
func TestViewsAreOutOfTheWay(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Must(os.MkdirAll(m.Path("runs/first"), 0o755))
		mounttest.RunPython(t, "save.py", "plain", "1", m.Path("runs/first/model.pt"))
		saved, err := os.ReadFile(m.Path("runs/first/model.pt"))
		m.Must(err)
		m.Write("f", []byte("a file"))
		n := 0
		try := func(what string, make func(name string) error, want string) {
			t.Helper()
			n++
			dir := fmt.Sprint("runs/", n)
			m.Write(dir+"/model.pt", saved)
			m.Sync()
			name := dir + "/model.safetensors"
			if _, err := os.Lstat(m.Path(name)); err != nil {
				t.Fatalf("there is no view: %v", err)
			}
			if err := make(m.Path(name)); err != nil {
				t.Errorf("%s onto a view: %v", what, err)
				return
			}
			if got := m.Sh("stat -c %F " + name); got != want {
				t.Errorf("%s: a %s, want a %s", what, got, want)
			}
			if err := make(m.Path(name)); !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOENT) {
				t.Errorf("%s again: %v", what, err)
			}
			m.WantNames(dir, "model.pt", "model.safetensors")
			// What is removed is gone, the view does not come back.
			m.Must(unix.Rename(m.Path(name), m.Path("elsewhere", fmt.Sprint(n))))
			m.WantNames(dir, "model.pt")
		}
		m.Must(os.Mkdir(m.Path("elsewhere"), 0o755))
		try("open with O_EXCL", func(name string) error {
			fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
			if err == nil {
				_, err = unix.Write(fd, []byte("x"))
				unix.Close(fd)
			}
			return err
		}, "regular file")
		try("openat2 with O_EXCL", func(name string) error {
			fd, err := unix.Openat2(unix.AT_FDCWD, name,
				&unix.OpenHow{Flags: unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY, Mode: 0o644})
			if err == nil {
				_, err = unix.Write(fd, []byte("x"))
				unix.Close(fd)
			}
			return err
		}, "regular file")
		try("link", func(name string) error { return unix.Link(m.Path("f"), name) }, "regular file")
		try("symlink", func(name string) error { return unix.Symlink("f", name) }, "symbolic link")
		try("mkdir", func(name string) error { return unix.Mkdir(name, 0o755) }, "directory")
		try("mknod", func(name string) error { return unix.Mknod(name, unix.S_IFIFO|0o644, 0) }, "fifo")
		try("mkfifoat", func(name string) error {
			return unix.Mknodat(unix.AT_FDCWD, name,
				unix.S_IFIFO|0o644, 0)
		}, "fifo")
		try("rename with RENAME_NOREPLACE", func(name string) error {
			if _, err := os.Lstat(m.Path("f2")); err != nil {
				m.Write("f2", []byte("another"))
			}
			return unix.Renameat2(unix.AT_FDCWD, m.Path("f2"), unix.AT_FDCWD, name, unix.RENAME_NOREPLACE)
		}, "regular file")
		renamed := 0
		try("rename", func(name string) error {
			if renamed++; renamed > 1 {
				return unix.EEXIST
			}
			m.Write("f3", []byte("a third"))
			return unix.Rename(m.Path("f3"), name)
		}, "regular file")

		// Who looks for the view finds it, in whatever call.
		m.Write("runs/last/model.pt", saved)
		m.Sync()
		view := m.Path("runs/last/model.safetensors")
		want, err := os.ReadFile(view)
		m.Must(err)
		if f, err := os.Open(view); err != nil {
			t.Error(err)
		} else {
			f.Close()
		}
		m.Must(unix.Symlink("model.safetensors", m.Path("runs/last/link")))
		got, err := os.ReadFile(m.Path("runs/last/link"))
		m.Must(err)
		if !bytes.Equal(got, want) {
			t.Error("by a symbolic link: other bytes")
		}
	})
}

// TestViewAttributes: what is done to a view's attributes is done to its source, as chmod -R and chown -R of
// a run do.
func TestViewAttributes(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Must(os.MkdirAll(m.Path("runs/a"), 0o755))
	mounttest.RunPython(t, "save.py", "plain", "1", m.Path("runs/a/model.pt"))
	m.Sync()
	m.Sh("chmod -R g+w runs; test \"$(stat -c %a runs/a/model.safetensors runs/a/model.pt | uniq)\" = 664")
	m.Must(unix.UtimesNanoAt(unix.AT_FDCWD, m.Path("runs/a/model.safetensors"), []unix.Timespec{{Sec: 5}, {Sec: 1_000_000_000}}, 0))
	m.Sh("test $(stat -c %Y runs/a/model.pt) = 1000000000")
	if os.Geteuid() == 0 {
		m.Sh("chown -R 1000:1000 runs; test \"$(stat -c %u:%g runs/a/model.safetensors runs/a/model.pt | uniq)\" = 1000:1000")
	}
	// A real file that hides the view, removed: the name is gone.
	m.Sh("cp runs/a/model.safetensors copy; cp copy runs/a/model.safetensors; cmp copy runs/a/model.safetensors; rm runs/a/model.safetensors")
	m.WantNames("runs/a", "model.pt")
	m.Remount()
	m.WantNames("runs/a", "model.pt")
	// Touched, it is a real file, which its source has nothing to do with any more; moved, it is one
	// elsewhere.
	m.Must(os.MkdirAll(m.Path("runs/v"), 0o755))
	for _, name := range []string{"touched", "moved", "copied"} {
		mounttest.RunPython(t, "save.py", "plain", "1", m.Path("runs/v", name+".pt"))
	}
	m.Sh("cd runs/v; cp touched.safetensors ../../whole; touch -h -d @5 touched.safetensors; test $(stat -c %Y touched.pt) = 5; touch -d @7 touched.safetensors; " +
		"test $(stat -c %Y touched.pt) = 5; test $(stat -c %Y touched.safetensors) = 7; rm touched.pt; cmp touched.safetensors ../../whole")
	m.Sh("cd runs/v; cp moved.safetensors ../../whole; mv moved.safetensors elsewhere; cmp elsewhere ../../whole; test -e moved.pt; ! test -e moved.safetensors")
	m.Sh("cd runs/v; ! cp --reflink=always copied.safetensors copy 2>/dev/null; rm -f copy; ! ln copied.safetensors copy 2>/dev/null; cp copied.safetensors copy; cmp copy copied.safetensors; " +
		"test $(stat -c %h copy) = 1; mv ../../whole copied.safetensors; rm copied.safetensors; ! test -e copied.safetensors")
	// Truncated like any file, it is one.
	mounttest.RunPython(t, "save.py", "plain", "1", m.Path("runs/b.pt"))
	m.Sh("cp runs/b.safetensors whole; truncate -s 100 runs/b.safetensors; head -c 100 whole | cmp - runs/b.safetensors")
}
