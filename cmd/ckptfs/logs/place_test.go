package logs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAppend(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	var other bytes.Buffer
	Place{File: log}.Append([]byte("one\n"), &other)
	Place{File: log}.Append([]byte("two\n"), &other)
	if b, err := os.ReadFile(log); err != nil || string(b) != "one\ntwo\n" || other.Len() > 0 {
		t.Errorf("the log has %q, %v; beside it %q", b, err, &other)
	}
	Place{}.Append([]byte("none\n"), &other)
	Place{File: dir}.Append([]byte("a folder\n"), &other)
	Place{Store: filepath.Join(dir, "none")}.Append([]byte("no store\n"), &other)
	Place{File: "/dev/full"}.Append([]byte("full\n"), &other)
	if want := "none\na folder\nno store\nfull\n"; other.String() != want {
		t.Errorf("elsewhere is %q", &other)
	}
}

// A disk that does not answer holds nobody up.
func TestAppendStuck(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "log")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var other bytes.Buffer
	began := time.Now()
	Place{File: pipe}.Append([]byte("x"), &other)
	if took := time.Since(began); other.String() != "x" || took > 10*time.Second {
		t.Errorf("%q after %v", &other, took)
	}
	if r, err := os.OpenFile(pipe, os.O_RDONLY, 0); err == nil { // lets it end
		r.Close()
	}
}
