package volume

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fillAttributes sets attributes until one is refused, by set.
func fillAttributes(t *testing.T, set func(name string, value []byte) error) {
	t.Helper()
	for size := 512; size > 0; size /= 2 {
		for n := 0; ; n++ {
			err := set(fmt.Sprintf("user.f%d.%d", size, n), make([]byte, size))
			if err == unix.ENOSPC || err == unix.EDQUOT {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if n == 2000 {
				t.Skip("this filesystem bounds no attributes")
			}
		}
	}
}

// TestRoomForRecords: a user who fills a file's attributes does not keep it from being packed.
func TestRoomForRecords(t *testing.T) {
	r := newRig(t)
	data := bytes.Repeat([]byte("12345678"), 25_000)
	r.write("m.bin", data)
	n := r.find("m.bin")
	fillAttributes(t, func(name string, value []byte) error { return r.SetXattr(n, name, value, 0) })
	r.pack("m.bin")
	r.evictAll()
	r.same("m.bin", data)
	r.write("m.bin", data[1:]) // plain once more, and no room is lost
	n = r.find("m.bin")
	fillAttributes(t, func(name string, value []byte) error { return r.SetXattr(n, name, value, 0) })
	r.pack("m.bin")
}

// TestCrowded: a file that has no room for its record, as others than ckptfs made it, stays plain. It is
// named, sync does not fail of it, and it is packed once there is room.
func TestCrowded(t *testing.T) {
	r := newRig(t)
	data := bytes.Repeat([]byte("12345678"), 25_000)
	r.write("other.bin", data)
	r.pack("other.bin")
	r.write("m.bin", data[:10])
	host := r.at("tree", "m.bin")
	fillAttributes(t, func(name string, value []byte) error { return unix.Setxattr(host, name, value, 0) })
	r.write("m.bin", data)
	r.sync()
	r.want("m.bin", resident)
	st, err := r.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Failures) > 0 || len(st.Plain) != 1 || st.Plain[0].Path != "m.bin" ||
		!strings.Contains(st.Plain[0].Reason, "getfattr") {
		t.Errorf("failures %v, plain %v", st.Failures, st.Plain)
	}
	if st.UnpackedBytes != 0 {
		t.Errorf("%d bytes wait", st.UnpackedBytes)
	}
	r.same("m.bin", data)
	if err := r.SetXattr(r.find("m.bin"), "user.more", nil, 0); err != unix.ENOSPC {
		t.Errorf("one more: %v", err)
	}
	r = r.reopen()
	r.sync()
	r.want("m.bin", resident)
	if err := r.RemoveXattr(r.find("m.bin"), "user.f512.0"); err != nil {
		t.Fatal(err)
	}
	r.pack("m.bin")
	if st, err := r.Status(context.Background()); err != nil || len(st.Plain) > 0 {
		t.Errorf("plain %v, %v", st.Plain, err)
	}
}
