package store

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// For every n: the process is killed after operation n, and the machine runs on. The disk refuses what was
// not synced. It tells the process that comes next, or has told the one that was killed; either way the page
// cache has the bytes for the time being. What is committed from then on outlives a power cut. That holds,
// too, when the disk syncs none of these segments any more.
func TestKilledAndRefused(t *testing.T) {
	for _, told := range []string{"the next process", "the killed process", "everyone"} {
		for n := 0; ; n++ {
			if over := killedAndRefused(t, fmt.Sprintf("%s is told, killed after %d", told, n), n,
				told == "the killed process", told == "everyone"); over {
				break
			}
		}
	}
}

func killedAndRefused(t *testing.T, what string, n int, before, forever bool) (over bool) {
	m, x := newMem(), newIndex()
	m.Inject(func(op disk.Op) *disk.Fault {
		switch {
		case op.N > n || op.N == n && (!before || op.Kind != disk.OpSync):
			return &disk.Fault{Err: disk.ErrCrashed}
		case op.N == n:
			return &disk.Fault{Err: syscall.EIO}
		}
		return nil
	})
	x.fail = func() error {
		if m.Ops() > n {
			return disk.ErrCrashed
		}
		return nil
	}
	var committed [][]byte
	s, err := Open(m, dir, storeID, x, small)
	if err == nil {
		committed = workload(s)
		err = s.Close()
	}
	over = err == nil && m.Ops() <= n

	x.fail = nil
	refused := map[string]bool{}
	there := map[string]bool{}
	names, _ := m.ReadDir(dir) // perhaps it is not there yet
	for _, name := range names {
		there[dir+"/"+name] = true
	}
	m.Inject(func(op disk.Op) *disk.Fault {
		if op.Kind != disk.OpSync || before || refused[op.Name] && !forever || forever && !there[op.Name] {
			return nil
		}
		refused[op.Name] = true
		return &disk.Fault{Err: syscall.EIO}
	})
	for range 3 {
		if s, err = Open(m, dir, storeID, x, small); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !forever {
		m.Inject(nil)
	}
	committed = append(committed, workload(s)...)

	c, y := m.CrashClone(nil), newIndex()
	if s, err = Open(c, dir, storeID, y, small); err != nil {
		t.Fatalf("%s: after the power cut: %v", what, err)
	}
	defer s.Close()
	for _, raw := range committed {
		if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%s: committed, and after the power cut %v\n%s", what, err, c)
		}
	}
	return over
}
