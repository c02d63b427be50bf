package fusefs

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountOptions(t *testing.T) {
	o := mountOptions{source: `/data/a,b\c`, maxRead: 1 << 20, allowOther: true,
		words: []string{"default_permissions", "noexec", "dev"}, flags: unix.MS_NOSUID | unix.MS_NODEV}
	flags, data := o.direct(7, unix.S_IFDIR|0o755)
	want := fmt.Sprintf("fd=7,rootmode=40000,user_id=%d,group_id=%d,max_read=1048576,default_permissions,allow_other",
		os.Geteuid(), os.Getegid())
	if flags != unix.MS_NOSUID|unix.MS_NOEXEC || data != want {
		t.Errorf("mount(2): %#x, %s", flags, data)
	}
	want = `default_permissions,noexec,dev,allow_other,fsname=/data/a\,b\\c,subtype=ckptfs,max_read=1048576`
	if got := o.helper(); got != want {
		t.Errorf("fusermount3: %s", got)
	}
}

func TestReceive(t *testing.T) {
	a, b := sockets(t)
	defer unix.Close(a)
	if err := unix.Sendmsg(b, []byte{0}, unix.UnixRights(int(os.Stdin.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	fd, err := receive(a)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || f&unix.FD_CLOEXEC == 0 {
		t.Errorf("a child would have the descriptor: %x, %v", f, err)
	}
	unix.Close(fd)
	unix.Close(b)
	if _, err := receive(a); err == nil {
		t.Error("nothing was sent, and it was taken")
	}
}
