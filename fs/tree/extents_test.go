package tree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAllWritten(t *testing.T) {
	const block = 4096
	for name, c := range map[string]struct {
		make func(f *os.File) error
		size int64
		want bool
	}{
		"empty": {func(*os.File) error { return nil }, 0, true},
		"written": {func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, 5*block+1), 0)
			return err
		}, 5*block + 1, true},
		"a hole": {func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, block), 0)
			if err == nil {
				_, err = f.WriteAt(make([]byte, block), 2*block)
			}
			return err
		}, 3 * block, false},
		"a hole at the end": {func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, block), 0)
			if err == nil {
				err = f.Truncate(3 * block)
			}
			return err
		}, 3 * block, false},
		"allocated only": {func(f *os.File) error {
			return unix.Fallocate(int(f.Fd()), 0, 0, 3*block)
		}, 3 * block, false},
		"in parts": {func(f *os.File) error {
			for i := range int64(200) { // each with a hole behind it, which are filled in another order
				if _, err := f.WriteAt(make([]byte, block), 2*i*block); err != nil {
					return err
				}
			}
			if err := f.Sync(); err != nil {
				return err
			}
			for i := range int64(200) {
				if _, err := f.WriteAt(make([]byte, block), (2*(199-i)+1)*block); err != nil {
					return err
				}
			}
			return nil
		}, 400 * block, true},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err == nil {
			err = c.make(f)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := AllWritten(int(f.Fd()), c.size)
		if err == unix.EOPNOTSUPP || err == unix.ENOTTY {
			t.Skip(err)
		}
		if got != c.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		f.Close()
	}
}
