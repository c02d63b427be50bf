package later

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestOpen(t *testing.T) {
	first, most = time.Millisecond, 4*time.Millisecond
	for _, fails := range []int64{0, 1, 5} {
		var tries, told, ended atomic.Int64
		opened := make(chan struct{})
		x := Open(func() (func(), error) {
			if tries.Add(1) <= fails {
				return nil, errors.New("not yet")
			}
			close(opened)
			return func() { ended.Add(1) }, nil
		}, func(error) { told.Add(1) })
		<-opened
		x.Close()
		if told.Load() != min(fails, 1) || ended.Load() != 1 || tries.Load() != fails+1 {
			t.Errorf("%d: told %d times, ended %d, tried %d", fails, told.Load(), ended.Load(), tries.Load())
		}
	}
	var tries atomic.Int64
	x := Open(func() (func(), error) { tries.Add(1); return nil, errors.New("never") }, func(error) {})
	for tries.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	x.Close()
	n := tries.Load()
	if time.Sleep(20 * time.Millisecond); tries.Load() != n {
		t.Error("tried after the end")
	}
}
