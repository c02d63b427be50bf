package volume

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemovedGivesRoom: what was removed takes no room of the disk though it waited to be packed, for which
// there was no room, and no sync is needed for that. Nothing is told of it, and what is left is packed.
func TestRemovedGivesRoom(t *testing.T) {
	const size, left, slack = 12 << 20, 6 << 20, 2 << 20
	r, leave := onDiskOf(t, "64m", hotSize(0))
	leave(3*size + left + 256<<10)
	var handles []*Handle
	data := map[string][]byte{"a": random(size, 1), "b": random(size, 2), "c": random(size, 3),
		"left": random(left, 4)}
	for p, data := range data {
		h := r.open(p, unix.O_WRONLY|unix.O_CREAT)
		r.writeAt(h, data, 0)
		handles = append(handles, h)
	}
	for _, h := range handles {
		r.release(h)
	}
	if err := r.Sync(context.Background(), nil); err == nil {
		t.Fatal("everything fits")
	}
	for _, p := range []string{"a", "b", "c"} {
		r.unlink(p)
	}
	st, err := r.names.StatFS()
	if err != nil {
		t.Fatal(err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < 3*size-left-slack {
		t.Errorf("%d bytes are free", free)
	}
	r.noDeletedFiles()
	status, err := r.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range status.Failures {
		if f.Path != "left" {
			t.Errorf("status tells of %q: %s", f.Path, f.Reason)
		}
	}
	r.eventually("the file that is left is packed", func() bool { return r.state("left") != resident })
	r.same("left", data["left"])
}
