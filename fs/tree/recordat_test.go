package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

// By the folder and the name a record is what it is by the path, with the kernel's call for that and without.
func TestReadRecordAt(t *testing.T) {
	defer noGetxattrat.Store(noGetxattrat.Load())
	path := stub(t)
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	name := filepath.Base(path)
	same := func(what string) {
		t.Helper()
		want, wantErr := ReadRecord(path)
		got, err := ReadRecordAt(dir, name)
		if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: %+v, %v, want %+v, %v", what, got, err, want, wantErr)
		}
	}
	defer func() { callGetxattrat = getxattrat }()
	for _, without := range []error{nil, unix.ENOSYS, unix.EPERM} {
		noGetxattrat.Store(false)
		if without != nil {
			callGetxattrat = func(int, string, string, []byte) (int, error) { return 0, without }
		}
		for _, r := range records {
			if err := WriteRecord(path, &r.rec); err != nil {
				t.Fatal(err)
			}
			same(r.what)
		}
		if err := os.Chmod(path, 0o060); err != nil { // which denies an owner without privileges
			t.Fatal(err)
		}
		same("without leave")
		if err := unix.Setxattr(path, XattrName, make([]byte, 1000), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRecordAt(dir, name); !errors.Is(err, cas.ErrNewer) {
			t.Errorf("a record of 1000 bytes: %v", err)
		}
		if err := WriteRecord(path, &Record{}); err != nil {
			t.Fatal(err)
		}
		same("none")
		if _, err := ReadRecordAt(dir, name+"x"); !errors.Is(err, unix.ENOENT) {
			t.Errorf("a file that is not there: %v", err)
		}
		if without != nil && !noGetxattrat.Load() {
			t.Errorf("%v: the call is made again", without)
		}
	}
}

// BenchmarkReadRecord compares both ways.
func BenchmarkReadRecord(b *testing.B) {
	path := filepath.Join(b.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	if err := WriteRecord(path, &records[0].rec); err != nil {
		b.Fatal(err)
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(dir)
	for what, read := range map[string]func() (Record, error){
		"path": func() (Record, error) { return ReadRecord(fmt.Sprintf("/proc/self/fd/%d/f", dir)) },
		"at":   func() (Record, error) { return ReadRecordAt(dir, "f") },
	} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				if _, err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
