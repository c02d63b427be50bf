package mounttest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Taken is what the store's segments take on the disk.
func (m *Mount) Taken() (n int64) {
	m.T.Helper()
	m.Must(filepath.WalkDir(filepath.Join(m.Store, "segments"), func(p string, _ fs.DirEntry,
		err error) error {
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

// Damage flips a bit where the segments hold the bytes of needle, which does not compress and so is there as
// it is.
func (m *Mount) Damage(needle []byte) {
	m.T.Helper()
	segments, err := filepath.Glob(filepath.Join(m.Store, "segments", "*"))
	m.Must(err)
	for _, path := range segments {
		b, err := os.ReadFile(path)
		m.Must(err)
		if i := bytes.Index(b, needle); i >= 0 {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			m.Must(err)
			_, err = f.WriteAt([]byte{b[i] ^ 1}, int64(i))
			m.Must(errors.Join(err, f.Close()))
			return
		}
	}
	m.T.Fatal("the bytes to damage are in no segment")
}
