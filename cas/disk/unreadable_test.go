package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnreadable(t *testing.T) {
	for _, err := range []error{unix.EIO, unix.EUCLEAN, unix.EBADMSG, unix.EREMOTEIO, unix.ELOOP,
		unix.ENODATA} {
		if !Unreadable(fmt.Errorf("so: %w", &os.PathError{Op: "read", Err: err})) {
			t.Errorf("%v", err)
		}
	}
	for _, err := range []error{nil, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EACCES, unix.EPERM,
		unix.ETIMEDOUT, unix.EINTR, unix.EAGAIN, unix.ENOENT, unix.ENOSPC, unix.ESTALE, ErrCrashed,
		os.ErrClosed} {
		if Unreadable(err) {
			t.Errorf("%v", err)
		}
	}
	at := t.TempDir()
	d, err := OpenFolder(at)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	make := map[string]func(string) error{
		"fifo":   func(p string) error { return unix.Mkfifo(p, 0o600) },
		"folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"link":   func(p string) error { return os.Symlink("/etc/passwd", p) },
	}
	for name, f := range make {
		p := filepath.Join(at, name)
		if err := f(p); err != nil {
			t.Fatal(err)
		}
		for _, fsys := range []FS{OS{}, d} {
			for _, flag := range []int{os.O_RDONLY, os.O_RDWR} {
				if _, err := fsys.OpenFile(p, flag, 0); !Unreadable(err) {
					t.Errorf("%T %s: %v", fsys, name, err)
				}
			}
		}
	}
}
