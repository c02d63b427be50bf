package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/spilled"
)

// spill is a folder for what passes note.
func spill(t *testing.T) *disk.Folder {
	t.Helper()
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// keepMany marks n records that the store does not have.
func keepMany(m *Marking, n int) {
	for i := range n {
		m.Keep(cas.Sum(binary.BigEndian.AppendUint32(nil, uint32(i))))
	}
}

// liveHeap is what lives on the heap.
func liveHeap() int64 {
	runtime.GC()
	var st runtime.MemStats
	runtime.ReadMemStats(&st)
	return int64(st.HeapAlloc)
}

// What is wanted takes next to no memory, however much it is.
func TestSweepMemory(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{Spill: spill(t)})
	before, took := liveHeap(), int64(0)
	_, err := s.Sweep(context.Background(), SweepOptions{}, func(_ context.Context, m *Marking) error {
		keepMany(m, 1<<20)
		took = liveHeap() - before
		return nil
	})
	if most := int64(2 << 20); err != nil || took > most {
		t.Errorf("a million marks take %d bytes, at most %d are allowed; %v", took, most, err)
	}
}

// unread makes the files of tables below dir unreadable, as on a disk that does not give them back.
func unread(t *testing.T, dir *disk.Folder) {
	t.Helper()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x", &from, &to); err != nil ||
			!strings.Contains(lines.Text(), dir.Join("")) {
			continue
		}
		found = true
		if _, _, no := unix.Syscall(unix.SYS_MPROTECT, from, to-from, unix.PROT_NONE); no != 0 {
			t.Fatal(no)
		}
	}
	if !found {
		t.Fatal("no table lies in a file")
	}
}

// A sweep whose marks are lost, while they are made or behind that, takes nothing.
func TestSweepLosesMarks(t *testing.T) {
	for _, late := range []bool{false, true} {
		dir := spill(t)
		s := open(t, newMem(), newIndex(), Options{Spill: dir})
		b := s.Begin()
		for i := range 100 {
			put(t, b, cas.Chunk, chunk(i))
		}
		commit(t, b)
		opt := SweepOptions{}
		if late { // when the segments are looked at; the first is without anything
			s.opt.MakeRoom = func() bool { unread(t, dir); return false }
		}
		_, err := s.Sweep(context.Background(), opt, func(_ context.Context, m *Marking) error {
			for i := range 100 {
				m.Keep(cas.Sum(chunk(i)))
			}
			keepMany(m, 1<<17)
			if !late {
				unread(t, dir)
				m.Keep(cas.Sum(nil))
			}
			return nil
		})
		if !errors.Is(err, spilled.ErrLost) {
			t.Errorf("late %v: %v", late, err)
		}
		for i := range 100 {
			wantGet(t, s, chunk(i))
		}
	}
}
