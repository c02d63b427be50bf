package pages

import (
	"bytes"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Slots begin at pages and none lies in another; what is mapped is told, and goes when nothing of it is used.
func TestSlots(t *testing.T) {
	const size = 260 << 10
	var told []int64
	p := NewSlots(size, func(mapped int64) { told = append(told, mapped) })
	n := SlabSize / size
	var all []*Slot
	for i := range n + 1 {
		b := p.Get()
		if len(b.Bytes) != size || cap(b.Bytes) != size || uintptr(unsafe.Pointer(&b.Bytes[0]))%4096 != 0 {
			t.Fatalf("%d bytes, room for %d, at %p", len(b.Bytes), cap(b.Bytes), b.Bytes)
		}
		for k := range b.Bytes {
			b.Bytes[k] = byte(i)
		}
		all = append(all, b)
	}
	if mapped, free := p.Room(); mapped != 2*SlabSize || free != n-1 {
		t.Fatalf("%d bytes mapped, %d slots free", mapped, free)
	}
	for i, b := range all {
		if !bytes.Equal(b.Bytes, bytes.Repeat([]byte{byte(i)}, size)) {
			t.Fatal("written over", i)
		}
	}
	if p.Emptiest() != all[n].Of() || all[0].Of() == all[n].Of() {
		t.Error("the second slab is not the emptiest")
	}
	// One of the first slab is returned and used again before the second's.
	at := &all[3].Bytes[0]
	p.Put(all[3])
	if all[3] = p.Get(); &all[3].Bytes[0] != at {
		t.Error("not the first that is free")
	}
	last := unsafe.Pointer(&all[n].Bytes[0])
	p.Put(all[n])
	p.Trim()
	if mapped, free := p.Room(); mapped != SlabSize || free != 0 {
		t.Errorf("%d bytes mapped, %d slots free", mapped, free)
	}
	if unix.Msync(unsafe.Slice((*byte)(last), 4096), unix.MS_ASYNC) == nil {
		t.Error("still mapped")
	}
	for _, b := range all[:n] {
		p.Put(b)
	}
	p.sweep()
	if mapped, _ := p.Room(); mapped != SlabSize {
		t.Errorf("%d bytes mapped of what was used just now", mapped)
	}
	p.mu.Lock()
	p.now = func() time.Time { return time.Now().Add(idle) }
	p.mu.Unlock()
	p.sweep()
	if mapped, _ := p.Room(); mapped != 0 {
		t.Errorf("%d bytes mapped that are not used", mapped)
	}
	if want := []int64{SlabSize, 2 * SlabSize, SlabSize, 0}; len(told) != 4 || told[0] != want[0] ||
		told[1] != want[1] || told[2] != want[2] || told[3] != want[3] {
		t.Errorf("told %v, want %v", told, want)
	}
}
