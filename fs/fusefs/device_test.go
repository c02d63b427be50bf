package fusefs

import (
	"bytes"
	"encoding/hex"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// A notification, byte for byte (on a machine of low byte first).
func TestInvalidateData(t *testing.T) {
	kernel, dev := sockets(t)
	defer unix.Close(kernel)
	d := &device{fd: dev}
	for _, c := range []struct {
		off, n int64
		want   string
	}{
		{4096, 1 << 20, "0010000000000000" + "0000100000000000"},
		{0, 0, "0000000000000000" + "0000000000000000"},
		{-1, 0, "ffffffffffffffff" + "0000000000000000"}, // attributes only
	} {
		d.InvalidateData(0x4000000000000007, c.off, c.n)
		buf := make([]byte, 100)
		n, err := unix.Read(kernel, buf)
		want := "28000000" + "02000000" + "0000000000000000" + "0700000000000040" + c.want
		if got := hex.EncodeToString(buf[:n]); err != nil || got != want {
			t.Errorf("%d, %d: %s, want %s (%v)", c.off, c.n, got, want, err)
		}
	}
	d.InvalidateName(7, "a.pt")
	buf := make([]byte, 100)
	n, err := unix.Read(kernel, buf)
	want := "25000000" + "03000000" + "0000000000000000" +
		"0700000000000000" + "04000000" + "00000000" + "612e707400"
	if got := hex.EncodeToString(buf[:n]); err != nil || got != want {
		t.Errorf("a name: %s, want %s (%v)", got, want, err)
	}
	if n, err := unix.Read(kernel, buf); err != nil || buf[4] != notifyInvalInode {
		t.Errorf("its directory: %x, %v", buf[:n], err)
	}
	d.close()
	d.InvalidateData(7, 0, 0)
	if _, err := unix.Read(kernel, make([]byte, 100)); err != nil {
		t.Errorf("after its close: %v", err)
	}
}

// What the kernel may let wait is left to another process, if there is one; what it never does is not.
func TestNotifyElsewhere(t *testing.T) {
	kernel, dev := sockets(t)
	defer unix.Close(kernel)
	var left []byte // codes of what was left
	d := &device{fd: dev, elsewhere: func(fd int, p []byte) error {
		left = append(left, p[4])
		return nil
	}}
	defer d.close()
	d.InvalidateName(7, "a.pt")
	d.InvalidateData(7, 0, 0)
	_ = d.prune([]content.NodeID{9})
	want := []byte{notifyInvalEntry, notifyInvalInode, notifyInvalInode, notifyPrune}
	if !bytes.Equal(left, want) {
		t.Errorf("left to another process: %d, want %d", left, want)
	}
	d.InvalidateData(7, -1, 0)
	buf := make([]byte, 100)
	if n, err := unix.Read(kernel, buf); err != nil || buf[4] != notifyInvalInode {
		t.Errorf("%x, %v", buf[:n], err)
	}
}

func TestPrune(t *testing.T) {
	kernel, dev := sockets(t)
	defer unix.Close(kernel)
	d := &device{fd: dev}
	defer d.close()
	if err := d.prune([]content.NodeID{9, 0x4000000000000007}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := unix.Read(kernel, buf)
	want := "30000000" + "09000000" + "0000000000000000" + "02000000" + "00000000" + "0000000000000000" +
		"0900000000000000" + "0700000000000040"
	if got := hex.EncodeToString(buf[:n]); err != nil || got != want {
		t.Errorf("%s, want %s (%v)", got, want, err)
	}
}
