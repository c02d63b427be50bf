package procs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// procFS makes a folder like /proc.
type procFS struct {
	t   *testing.T
	dir string
}

func (p procFS) link(name, to string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		p.t.Fatal(err)
	}
}

func (p procFS) file(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// process makes one in a mount namespace that has these mounts.
func (p procFS) process(pid, comm, ns, mounts string) {
	p.t.Helper()
	p.file("/"+pid+"/comm", comm+"\n")
	p.link(pid+"/ns/mnt", "mnt:["+ns+"]")
	p.file("/"+pid+"/mountinfo", mounts)
}

const (
	ownMounts = `20 1 8:1 / / rw - ext4 /dev/sda1 rw
30 20 0:45 / /mnt/ckpt rw - fuse.ckptfs /data/store rw
31 30 0:46 / /mnt/ckpt/scratch rw - tmpfs none rw
32 30 0:45 /runs /mnt/ckpt/my\040runs rw - fuse.ckptfs /data/store rw
`
	otherMounts = `120 1 0:60 / / rw - overlay overlay rw
130 120 0:45 / /work rw - fuse.ckptfs /data/store rw
`
	noMounts = "220 1 0:61 / / rw - overlay overlay rw\n"
)

func TestUsing(t *testing.T) {
	p := procFS{t, t.TempDir()}
	p.process("self", "ckptfs", "1", ownMounts)
	p.process("10", "bash", "1", ownMounts)
	p.link("10/cwd", "/mnt/ckpt/runs")
	p.process("11", "python3", "1", ownMounts)
	p.link("11/cwd", "/mnt/ckpt2")
	p.link("11/fd/0", "/dev/null")
	p.file("/11/fdinfo/0", "pos:\t0\nflags:\t02\nmnt_id:\t20\n")
	p.link("11/fd/3", "/mnt/ckpt/runs/a/model.pt")
	p.file("/11/fdinfo/3", "pos:\t0\nflags:\t02\nmnt_id:\t30\n")
	p.link("11/fd/4", "/mnt/ckpt/runs/b/model.pt")
	p.file("/11/fdinfo/4", "pos:\t0\nflags:\t02\nmnt_id:\t30\n")
	p.process("12", "reader", "1", ownMounts)
	p.file("/12/maps", "7f00-7f01 r--p 00000000 00:2d 12   /mnt/ckpt/model.pt\n7f01-7f02 r--p 00001000 00:2d 12   /mnt/ckpt/model.pt\n")
	p.process("13", "idle", "1", ownMounts)
	p.file("/13/maps", "7f00-7f01 r--p 00000000 08:01 12   /usr/lib/libc.so\n7f02-7f03 rw-p 0 00:00 0\n")
	p.process("105", "kworker/0:0", "2", otherMounts) // a thread of the kernel, which holds nothing
	p.file("/105/stat", "105 (kworker/0:0) I 2 0 0 0 -1 69238880 0 0")
	p.process("14", "job", "2", otherMounts) // in a container
	p.file("/14/stat", "14 (job) S 2 0 0 0 -1 4194560 0 0")
	p.link("14/cwd", "/work/runs")
	p.process("15", "other", "3", noMounts) // in one that has no such mount
	p.link("15/cwd", "/mnt/ckpt")
	p.process("16", "below", "1", ownMounts) // a file of another file system below it
	p.link("16/fd/3", "/mnt/ckpt/scratch/x")
	p.file("/16/fdinfo/3", "mnt_id:\t31\n")

	got := strings.Join(Using(p.dir, Device{0, 45}), "\n")
	if want := `bash (10: cwd runs)
python3 (11: open runs/a/model.pt and 1 more)
reader (12: mapped model.pt)
job (14: cwd runs)
what is mounted on /mnt/ckpt/scratch (~umount /mnt/ckpt/scratch~ ends that)
what is mounted on /mnt/ckpt/my runs (~umount '/mnt/ckpt/my runs'~ ends that)`; got != strings.ReplaceAll(want, "~", "`") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(Elsewhere(p.dir, Device{0, 45}), "; "); got != "on /mnt/ckpt (`umount /mnt/ckpt` ends that); "+
		"on /mnt/ckpt/my runs (`umount '/mnt/ckpt/my runs'` ends that); by job (14), on /work" {
		t.Errorf("elsewhere: %s", got)
	}
}
