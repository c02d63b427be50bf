package tree

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

func hollowHeader() *Header {
	return &Header{Store: id(0x40), Record: Record{Manifest: cas.Sum([]byte("manifest")), Mtime: 5, Ctime: 6,
		Hollow: true}, Size: 1 << 20}
}

func TestHeader(t *testing.T) {
	h := hollowHeader()
	good := h.Encode()
	if got, err := DecodeHeader(append(good[:], "more"...)); err != nil || got != *h {
		t.Errorf("%+v, %v", got, err)
	}
	if !LooksHollow(good[:], h.Store) || LooksHollow(good[:], id(0x41)) ||
		LooksHollow(good[:HeaderSize-1], h.Store) {
		t.Error("taken for what it is not")
	}
	if line, _, _ := bytes.Cut(good[:], []byte("\n")); len(line) != 63 ||
		!bytes.HasPrefix(line, []byte("ckptfs: packed")) {
		t.Errorf("%q", line)
	}
	for bit := range 8 * HeaderSize {
		b := good
		b[bit/8] ^= 1 << (bit % 8)
		if got, err := DecodeHeader(b[:]); !errors.Is(err, cas.ErrCorrupt) || got != (Header{}) {
			t.Errorf("bit %d: %+v, %v", bit, got, err)
		}
	}
	if _, err := DecodeHeader(good[:HeaderSize-1]); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("cut short: %v", err)
	}
	h.Record.Hollow = false
	bad := h.Encode()
	if _, err := DecodeHeader(bad[:]); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("of a file that is not hollow: %v", err)
	}
}

func TestHollowOut(t *testing.T) {
	for _, size := range []int64{HeaderSize, 5000, 1 << 20} {
		path := stub(t)
		if err := os.WriteFile(path, bytes.Repeat([]byte{7}, int(size)), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		h := hollowHeader()
		h.Size = size
		if err := HollowOut(int(f.Fd()), h); err != nil {
			t.Fatal(err)
		}
		if err := SetMtime(int(f.Fd()), 1_000_000_007); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Size != size || st.Blocks*512 > 64<<10 ||
			st.Mtim != (unix.Timespec{Sec: 1, Nsec: 7}) {
			t.Errorf("%+v, %v", st, err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if g, err := DecodeHeader(got); err != nil || g != *h ||
			len(bytes.Trim(got[HeaderSize:], "\x00")) != 0 {
			t.Errorf("%+v, %v", g, err)
		}
		// One of a part of a block is there or not: that is the filesystem's.
		if holes, err := HasHoles(int(f.Fd()), size); err != nil || size > 64<<10 && !holes {
			t.Errorf("size %d: holes %v, %v", size, holes, err)
		}
	}
}

// A power cut may bring a punched file's blocks back: none is kept, of which a part would be written over.
func TestPunchKeepsNoBlock(t *testing.T) {
	path := stub(t)
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil || fs.Type != unix.EXT4_SUPER_MAGIC &&
		fs.Type != unix.XFS_SUPER_MAGIC {
		t.Skipf("not known of this filesystem: %#x, %v", fs.Type, err)
	}
	for _, size := range []int64{1, HeaderSize, 4096, 5000, 1<<20 - 1, 1 << 20, 1<<20 + 1} {
		if err := os.WriteFile(path, bytes.Repeat([]byte{7}, int(size)), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := errors.Join(f.Sync(), Punch(int(f.Fd()))); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Size != size || st.Blocks != 0 {
			t.Errorf("of %d bytes: %d, in %d blocks, %v", size, st.Size, st.Blocks, err)
		}
	}
}

// A file may be as long as files can be.
func TestPunchLongest(t *testing.T) {
	f, err := os.OpenFile(stub(t), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(0)
	for bit := int64(1) << 62; bit > 0; bit >>= 1 {
		if f.Truncate(size|bit) == nil {
			size |= bit
		}
	}
	for _, size := range []int64{size, size - 1} {
		h := Header{Size: size}
		if err := errors.Join(f.Truncate(size), Punch(int(f.Fd())), HollowOut(int(f.Fd()), &h)); err != nil {
			t.Errorf("of %d bytes: %v", size, err)
		}
	}
}

// A lease is had only where no other descriptor and no mapping of the file lives.
func TestAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	alone := func() error {
		release, err := Alone(int(own.Fd()))
		if err == nil {
			release()
		}
		return err
	}
	if err := alone(); errors.Is(err, ErrNoLease) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR} {
		other, err := os.OpenFile(path, flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := alone(); !errors.Is(err, ErrInUse) {
			t.Errorf("open elsewhere: %v", err)
		}
		if flag == os.O_WRONLY {
			other.Close()
			continue
		}
		m, err := unix.Mmap(int(other.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		other.Close()
		if err := alone(); !errors.Is(err, ErrInUse) {
			t.Errorf("mapped elsewhere: %v", err)
		}
		unix.Munmap(m)
		if err := alone(); err != nil {
			t.Errorf("after the last: %v", err)
		}
	}
	ro, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if err := NoWriters(int(ro.Fd())); !errors.Is(err, ErrInUse) {
		t.Errorf("beside a writer: %v", err)
	}
	own.Close()
	if err := NoWriters(int(ro.Fd())); err != nil {
		t.Errorf("without a writer: %v", err)
	}
}

// A mode that cannot be put back is told of.
func TestOwnerBitsStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("x"), 0o400); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const immutable = 0x10
	flags := func(v int) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, v) }
	if err := flags(immutable); err != nil {
		t.Skip("nothing is immutable here: ", err)
	}
	if err := flags(0); err != nil {
		t.Fatal(err)
	}
	defer flags(0)
	failed := errors.New("f failed")
	err = WithOwnerBits(path, func() error {
		if err := flags(immutable); err != nil {
			t.Fatal(err)
		}
		return failed
	})
	if !errors.Is(err, failed) || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "could not be made 400 again") {
		t.Errorf("%v", err)
	}
}
