package pages

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffers begin at pages, have the pool's size and nothing beyond it, and none lies in another.
func TestBuffers(t *testing.T) {
	for _, size := range []int{4 << 10, 256 << 10, hugePage} {
		p := NewPool(size)
		var all []*Buffer
		for i := range 2*hugePage/size + 1 {
			b := p.Get()
			if len(b.Bytes) != size || cap(b.Bytes) != size ||
				uintptr(unsafe.Pointer(&b.Bytes[0]))%uintptr(os.Getpagesize()) != 0 {
				t.Fatalf("%d bytes, room for %d, at %p", len(b.Bytes), cap(b.Bytes), b.Bytes)
			}
			for k := range b.Bytes {
				b.Bytes[k] = byte(i)
			}
			all = append(all, b)
		}
		for i, b := range all {
			if !bytes.Equal(b.Bytes, bytes.Repeat([]byte{byte(i)}, size)) {
				t.Fatal("written over", i)
			}
			p.Put(b)
		}
	}
}

// A huge page of which nothing is used goes back to the host, and one of which something is used does not.
func TestGivesBack(t *testing.T) {
	p := NewPool(hugePage)
	mapped := func(at unsafe.Pointer) bool {
		return unix.Msync(unsafe.Slice((*byte)(at), os.Getpagesize()), unix.MS_ASYNC) == nil
	}
	kept, b := p.Get(), p.Get()
	at := unsafe.Pointer(&b.Bytes[0])
	if !mapped(at) {
		t.Fatal("not mapped")
	}
	p.Put(b)
	b = nil
	for end := time.Now().Add(10 * time.Second); mapped(at); runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("still mapped")
		}
	}
	kept.Bytes[0] = 1
	runtime.KeepAlive(kept)
}
