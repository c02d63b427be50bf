package volume

import (
	"fmt"
	"testing"
)

// There may be more nodes than are theirs until what lives on the heap needs the memory of decoded chunks.
func TestNodesInAmpleMemory(t *testing.T) {
	var needs func(int64)
	r := newRig(t, func(o *Options) {
		o.Most.Nodes = 4
		o.Room = func(yield func(int64)) { needs = yield }
	})
	told := func() bool {
		select {
		case <-r.names.Crowd.Told():
			return true
		default:
			return false
		}
	}
	for i := range 8 {
		r.write(fmt.Sprint(i), []byte("x"))
		defer r.forget(r.find(fmt.Sprint(i)))
	}
	if told() {
		t.Error("the kernel is to forget nodes where memory is ample")
	}
	needs(1)
	if !told() {
		t.Error("the kernel is to forget nothing where memory is short")
	}
}
