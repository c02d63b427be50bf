package fusefs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMakesNew(t *testing.T) {
	line := func(number, a, b, c int) string {
		return fmt.Sprintf("%d 0x%x 0x%x 0x%x 0x0 0x0 0x0 0x7ffc5e8f 0x7f2a5c\n", number, a, b, c)
	}
	const excl = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY
	for _, c := range []struct {
		text string
		want bool
	}{
		{line(unix.SYS_OPENAT, -unix.AT_FDCWD, 1, excl), true},
		{line(unix.SYS_OPENAT, 3, 1, unix.O_CREAT|unix.O_TRUNC), false},
		{line(unix.SYS_OPENAT, 3, excl, unix.O_RDONLY), false},
		{line(unix.SYS_MKDIRAT, 3, 1, 0o755), true},
		{line(unix.SYS_SYMLINKAT, 1, 3, 1), true},
		{line(unix.SYS_STATX, 3, 1, excl), false},
		{line(unix.SYS_LINKAT, 3, excl, excl), false}, // the name looked up may be the old one
		{"running\n", false},
		{"-1 0x7ffc 0x7f2a\n", false},
		{"", false},
		{"x y z a b c d e f\n", false},
		{fmt.Sprintf("%d 0x\n", unix.SYS_OPENAT), false},
	} {
		proc := t.TempDir()
		dir := filepath.Join(proc, "17")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "syscall"), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := makesNew(proc, 17); got != c.want {
			t.Errorf("%q: %v, want %v", c.text, got, c.want)
		}
		if makesNew(proc, 18) {
			t.Error("a thread that is gone makes something")
		}
	}
}
