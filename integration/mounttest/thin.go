package mounttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
)

// ThinDisk is an ext4 on a device that has promised more room than it has, when it is told to: then what is
// written to blocks that were free cannot be written back, while what the filesystem needs for itself can.
type ThinDisk struct {
	*Disk
	pool string // the folder of the image, on a filesystem that it fills
}

// NewThinDisk makes and mounts one of n MiB, which holds all it promises until Starve.
func NewThinDisk(t *testing.T, n int) *ThinDisk {
	t.Helper()
	NeedRoot(t, "mounts a disk")
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("no loop devices here (no /dev/loop-control)")
	}
	pool := MountDisk(t, "tmpfs", n+1)
	d := &ThinDisk{Disk: &Disk{t: t, Image: filepath.Join(pool, "image"), Dir: t.TempDir()}, pool: pool}
	// The blocks of the filesystem's own are written, not said to be zero: they are there later.
	script := `set -e
		head -c "$3"M /dev/zero > "$1"
		loop=$(losetup --find --show "$1")
		UNIX_IO_NOZEROOUT=1 mkfs.ext4 -q -m 0 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop" &&
			mount "$loop" "$2" || { losetup -d "$loop"; exit 1; }
		losetup -d "$loop" # once it is unmounted`
	out, err := exec.Command("sh", "-c", script, "sh", d.Image, d.Dir, fmt.Sprint(n)).CombinedOutput()
	if err != nil {
		Missing(t, "no ext4 can be mounted here: %s", out)
	}
	t.Cleanup(func() {
		if unix.Unmount(d.Dir, unix.MNT_DETACH) == nil {
			// The device goes a moment later, and with it the image.
			_ = daemon.Until("the device to go", func() bool {
				out, err := exec.Command("losetup", "-j", d.Image).Output()
				return err != nil || strings.TrimSpace(string(out)) == ""
			})
		}
	})
	return d
}

// Starve takes the room away that the disk's free blocks would need.
func (d *ThinDisk) Starve() {
	d.t.Helper()
	if out, err := exec.Command("sh", "-c", `sync -f "$1" && fstrim "$1"`, "sh", d.Dir).CombinedOutput(); err != nil {
		Missing(d.t, "the free blocks of a loop device cannot be given back here: %s", out)
	}
	f, err := os.Create(filepath.Join(d.pool, "ballast"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10} { // what is left would be written in part
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if size > 4<<10 && errors.Is(err, unix.ENOSPC) {
			err = nil
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		d.t.Fatal(err)
	}
}

// Feed undoes Starve.
func (d *ThinDisk) Feed() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.pool, "ballast")); err != nil {
		d.t.Fatal(err)
	}
}

// Drop has the kernel forget the pages of a file that it has written, or thinks it has.
func (d *ThinDisk) Drop(path string) {
	d.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		d.t.Fatal(err)
	}
}
