package volume

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// manyTensors is a safetensors file of n tensors of a byte each.
func manyTensors(n int) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"a%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, i, i, i+1)
	}
	b.WriteByte('}')
	p := append(binary.LittleEndian.AppendUint64(nil, uint64(b.Len())), b.Bytes()...)
	return append(p, make([]byte, n)...)
}

// TestManyTensors: to look at one tensor of very many costs neither memory for all of them, nor seconds; what
// is kept of many files is bounded.
func TestManyTensors(t *testing.T) {
	if raceDetector {
		t.Skip("measures")
	}
	const files, tensors = 4, 1_000_000
	r := newRig(t)
	p := manyTensors(tensors)
	for f := range files { // past the mount, so that nobody packs them
		if err := os.WriteFile(r.at("tree", fmt.Sprintf("f%d.safetensors", f)), p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, start := m.HeapAlloc, used()
	for f := range files {
		n, a, err := r.lookup(fmt.Sprintf(".ckptfs/tensors/f%d.safetensors/a5.npy", f))
		if err != nil || a.Size != 128+1 {
			t.Fatalf("%d bytes, %v", a.Size, err)
		}
		defer r.forget(n)
	}
	took := used() - start
	runtime.GC()
	runtime.ReadMemStats(&m)
	stay := int64(m.HeapAlloc) - int64(before)
	t.Logf("%v of processor, %d MiB stay", took, stay>>20)
	if took > 6*time.Second || stay > 16<<20 {
		t.Errorf("%v of processor, %d MiB stay", took, stay>>20)
	}
}
