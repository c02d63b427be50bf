package volume

import (
	"sync"
	"sync/atomic"
	"testing"

	"ckptfs/fs/maintenance"
)

// The survey looks at several files at a time, and a stop ends all of it.
func TestSurveySideBySide(t *testing.T) {
	r := newRig(t)
	for _, dir := range []string{"a", "b", "c"} {
		r.mkdir(dir)
		r.write(dir+"/f", []byte("x"))
	}
	r.passes.Workers = 3
	var met atomic.Int64
	var together sync.WaitGroup
	together.Add(2)
	s := &maintenance.Survey{Passes: r.passes, Repair: true, Stop: func() bool {
		if met.Add(1) <= 2 {
			together.Done()
			together.Wait()
		}
		return false
	}}
	if s.Run(); met.Load() != 3 || s.Blind() {
		t.Errorf("%d files, blind %v", met.Load(), s.Blind())
	}
	s = &maintenance.Survey{Passes: r.passes, Repair: true, Stop: func() bool { return true }}
	if s.Run(); !s.Blind() {
		t.Error("it was stopped, and tells nothing of that")
	}
}
