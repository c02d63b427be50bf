package tier

import (
	"testing"

	"ckptfs/cas/remote/remotetest"
)

// What was never here is read, once from the remote, then from the cache, also by the next process.
func TestReads(t *testing.T) {
	for _, versions := range []int{1, 8} {
		r := newRig(t)
		f := r.publish(t, remotetest.Small, versions)
		r.open(t, 1<<30)
		r.reads(t, f)
		gets, n := r.asked()
		t.Logf("%d versions: %d requests, %d bytes", versions, gets, n)
		r.open(t, 1<<30)
		r.reads(t, f)
		if gets, _ := r.asked(); gets > 0 {
			t.Errorf("again: %d requests", gets)
		}
	}
}
