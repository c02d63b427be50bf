package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRoom: however a user's attributes are set, a record fits beside them, on a host that bounds them.
func TestRoom(t *testing.T) {
	for _, size := range []int{0, 1, 30, 60, 64, 100, 200, 900, 2000, 3800, 4000} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		n := 0
		var err error
		for ; n < 2000 && err == nil; n++ {
			name := fmt.Sprintf("user.f%d", n)
			value := make([]byte, size)
			err = KeepRoom(path, len(name)+size, func() error { return unix.Setxattr(path, name, value, 0) })
		}
		if err == nil {
			t.Skipf("this filesystem bounds no attributes: %d of %d bytes", n, size)
		}
		if err != unix.ENOSPC && err != unix.EDQUOT {
			t.Fatal(err)
		}
		for range 3 {
			if err := WriteRecord(path, &Record{ViewHidden: true}); err != nil {
				t.Fatalf("%d attributes of %d bytes: %v", n-1, size, err)
			}
			if err := WriteRecord(path, &Record{}); err != nil {
				t.Fatal(err)
			}
			err := KeepRoom(path, 4, func() error { return unix.Setxattr(path, "user.z", nil, 0) })
			if err == nil {
				err = unix.Removexattr(path, "user.z")
			}
			if err != nil && err != unix.ENOSPC {
				t.Fatal(err)
			}
		}
		if k, err := unix.Getxattr(path, roomName, nil); err != unix.ENODATA {
			t.Errorf("the place is still held: %d, %v", k, err)
		}
	}
}

// TestNoRoom: attributes that were set past ckptfs are told apart from a full disk, and a place that a kill
// left behind is the record's.
func TestNoRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(path, roomName, make([]byte, RecordSize), 0); err != nil {
		t.Skip(err)
	}
	for size := 512; size > 0; size /= 2 {
		set := func(n int) error {
			return unix.Setxattr(path, fmt.Sprintf("user.f%d.%d", size, n), make([]byte, size), 0)
		}
		for n := 0; set(n) == nil; n++ {
			if n == 2000 {
				t.Skip("this filesystem bounds no attributes")
			}
		}
	}
	if err := WriteRecord(path, &Record{ViewHidden: true}); err != nil {
		t.Errorf("with its place: %v", err)
	}
	if err := WriteRecord(path, &Record{}); err != nil {
		t.Fatal(err)
	}
	for n := 0; unix.Setxattr(path, fmt.Sprintf("user.g%d", n), nil, 0) == nil; n++ {
	}
	if err := WriteRecord(path, &Record{ViewHidden: true}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("without: %v", err)
	}
}

func BenchmarkSetXattr(b *testing.B) {
	for _, set := range []int{0, 3, 100} {
		path := filepath.Join(b.TempDir(), "f")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			b.Fatal(err)
		}
		for n := range set {
			if err := unix.Setxattr(path, fmt.Sprintf("user.g%d", n), []byte("value"), 0); err != nil {
				b.Skip(err)
			}
		}
		do := func() error { return unix.Setxattr(path, "user.metric.loss", []byte("0.123"), 0) }
		b.Run(fmt.Sprint(set, " attributes"), func(b *testing.B) {
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint(set, " attributes, room kept"), func(b *testing.B) {
			for b.Loop() {
				if err := KeepRoom(path, 20, do); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
