package mounttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"ckptfs/integration/daemon"

	"golang.org/x/sys/unix"
)

// Disk is a filesystem of its own on a loop device, so that its power can be cut and its space can run out.
type Disk struct {
	t     *testing.T
	Image string
	Dir   string // where it is mounted
}

// NewDisk makes and mounts one. It skips the test where that cannot be done; with CI=true it fails if there
// are loop devices at all.
func NewDisk(t *testing.T, fstype string, size int64) *Disk {
	t.Helper()
	return newDiskIn(t, fstype, t.TempDir(), size)
}

// newDiskIn keeps the image, which is thin, in a folder of the caller's.
func newDiskIn(t *testing.T, fstype, dir string, size int64) *Disk {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no mounts")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a filesystem image")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("no loop devices here (no /dev/loop-control)")
	}
	mkfs := "mkfs." + fstype
	if _, err := exec.LookPath(mkfs); err != nil {
		Missing(t, "no %s here (apt-get install e2fsprogs xfsprogs)", mkfs)
	}
	tmp := t.TempDir()
	d := &Disk{t: t, Image: filepath.Join(dir, fstype+".img"), Dir: filepath.Join(tmp, "disk")}
	must := func(err error) {
		t.Helper()
		if err != nil {
			Missing(t, "%v", err)
		}
	}
	must(os.Mkdir(d.Dir, 0o755))
	must(os.WriteFile(d.Image, nil, 0o600))
	must(os.Truncate(d.Image, size))
	out, err := exec.Command(mkfs, "-q", d.Image).CombinedOutput()
	if err != nil {
		must(fmt.Errorf("%s: %w: %s", mkfs, err, out))
	}
	t.Cleanup(func() { _ = unix.Unmount(d.Dir, unix.MNT_DETACH) })
	must(d.mount())
	return d
}

func (d *Disk) mount() error {
	out, err := exec.Command("mount", "-o", "loop", d.Image, d.Dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// Unmount waits until no process uses it any more.
func (d *Disk) Unmount() error {
	return daemon.Until("the disk to be unused", func() bool { return unix.Unmount(d.Dir, 0) == nil })
}

// What of a filesystem's journal still reaches the disk when the power is cut.
const (
	JournalFlushed = 1 // FSOP_GOING_FLAGS_LOGFLUSH
	JournalLost    = 2 // FSOP_GOING_FLAGS_NOLOGFLUSH
)

// Cut cuts the power: nothing that is in memory alone reaches the disk any more.
func (d *Disk) Cut(how uint32) error {
	const fsIocShutdown = 0x8004587d // _IOR('X', 125, __u32)
	f, err := os.Open(d.Dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocShutdown,
		uintptr(unsafe.Pointer(&how))); errno != 0 {
		return fmt.Errorf("FS_IOC_SHUTDOWN: %w", errno)
	}
	return nil
}

// PrepareOn is prepare with the store on d.
func PrepareOn(d *Disk, flags ...string) *Mount {
	d.t.Helper()
	m := Prepare(d.t, d.t.TempDir(), flags...)
	m.Store = filepath.Join(d.Dir, "store")
	return m
}

// EndOfPower kills the daemon of a store whose disk has lost its power, and brings the disk back.
func (m *Mount) EndOfPower(d *Disk) {
	m.T.Helper()
	m.Must(m.Clean())
	m.Must(d.Unmount())
	m.Must(d.mount())
}

// AnotherBoot makes the store believe that the host was started again since it was last open.
func (m *Mount) AnotherBoot() {
	m.T.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	m.Must(err)
	path := filepath.Join(m.Store, "lock")
	p, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	m.Must(err)
	const id = 36
	for i := 0; i+id <= len(p); i++ {
		if string(p[i:i+id]) == string(boot[:id]) {
			copy(p[i:], "00000000-0000-0000-0000-000000000000")
		}
	}
	m.Must(os.WriteFile(path, p, 0o600))
}

// MountDisk mounts a filesystem of n MiB (tmpfs; images of that size, sparse) for the time of the test, and
// returns its folder.
func MountDisk(t *testing.T, kind string, n int) string {
	t.Helper()
	NeedRoot(t, "mounts a disk")
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	script := map[string]string{
		"ext4":    `truncate -s "$3"M "$1" && mkfs.ext4 -q -m 0 "$1" && mount -o loop "$1" "$2"`,
		"xfs":     `truncate -s "$3"M "$1" && mkfs.xfs -q "$1" && mount -o loop "$1" "$2"`,
		"tmpfs":   `mount -t tmpfs -o "size=$3m,mode=755" none "$2"`,
		"overlay": `mkdir "$1" && mount -t tmpfs none "$1" && mkdir "$1/l" "$1/u" "$1/w" && mount -t overlay -o "lowerdir=$1/l,upperdir=$1/u,workdir=$1/w" none "$2"`,
	}[kind]
	if out, err := exec.Command("sh", "-c", script, "sh", image, dir,
		fmt.Sprint(n)).CombinedOutput(); err != nil {
		t.Skipf("no %s can be mounted here: %s", kind, out)
	}
	t.Cleanup(func() {
		err := daemon.Until("the disk to be idle", func() bool { return unix.Unmount(dir, 0) == nil })
		if err != nil {
			t.Error(err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
		if kind == "overlay" {
			_ = unix.Unmount(image, unix.MNT_DETACH)
		}
	})
	return dir
}
