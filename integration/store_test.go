package integration

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// taken is what the store's segments take on the disk.
func (m *mount) taken() (n int64) {
	m.t.Helper()
	m.must(filepath.WalkDir(filepath.Join(m.Store, "segments"), func(p string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(p, &st)
		}
		if err == unix.ENOENT || os.IsNotExist(err) {
			return nil
		}
		n += st.Blocks * 512
		return err
	}))
	return n
}

// damage flips a bit where the segments hold the bytes of needle, which does not compress and so is there as it is.
func (m *mount) damage(needle []byte) {
	m.t.Helper()
	segments, err := filepath.Glob(filepath.Join(m.Store, "segments", "*"))
	m.must(err)
	for _, path := range segments {
		b, err := os.ReadFile(path)
		m.must(err)
		if i := bytes.Index(b, needle); i >= 0 {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			m.must(err)
			_, err = f.WriteAt([]byte{b[i] ^ 1}, int64(i))
			m.must(errors.Join(err, f.Close()))
			return
		}
	}
	m.t.Fatal("the bytes to damage are in no segment")
}
