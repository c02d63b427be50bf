package tree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

func TestCheckAttributes(t *testing.T) {
	if err := CheckAttributes(folder(t, "/proc")); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("/proc: %v", err)
	}
	if err := CheckAttributes(folder(t, t.TempDir())); err != nil {
		t.Error(err)
	}
}

// A store that was copied without attributes is known by its first hollow file. One that has them is no such
// store, nor is one with a file that looks like another store's.
func TestLostAttributes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := makeStore(dir); err != nil {
		t.Fatal(err)
	}
	d := folder(t, dir)
	format, err := ReadFormat(d)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, store [16]byte) string {
		h := Header{Store: store, Size: 1 << 20, Record: Record{Manifest: cas.Hash{1}, Hollow: true}}
		b := h.Encode()
		p := filepath.Join(dir, TreeDir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, b[:], 0o600)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write("a/other", [16]byte{9})
	if err := os.WriteFile(filepath.Join(dir, TreeDir, "a/empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if lost := LostAttributes(d); lost != "" {
		t.Errorf("%s is of another store", lost)
	}
	p := write("b/m.pt", format.ID)
	if lost := LostAttributes(d); lost != p {
		t.Errorf("%q, want %s", lost, p)
	}
	if err := WriteRecord(p, &Record{Manifest: cas.Hash{1}, Hollow: true}); err != nil {
		t.Fatal(err)
	}
	if lost := LostAttributes(d); lost != "" {
		t.Errorf("%s has its record", lost)
	}
	if lost := LostAttributes(folder(t, t.TempDir())); lost != "" {
		t.Error("what is no store")
	}
}
