package volume

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
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
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, start := m.HeapAlloc, processorTime(t)
	for f := range files {
		n, a, err := r.lookup(fmt.Sprintf(".ckptfs/tensors/f%d.safetensors/a5.npy", f))
		if err != nil || a.Size != 128+1 {
			t.Fatalf("%d bytes, %v", a.Size, err)
		}
		defer r.forget(n)
	}
	took := processorTime(t) - start
	runtime.GC()
	runtime.ReadMemStats(&m)
	stay := int64(m.HeapAlloc) - int64(before)
	t.Logf("%v of processor, %d MiB stay", took, stay>>20)
	if took > 6*time.Second || stay > 16<<20 {
		t.Errorf("%v of processor, %d MiB stay", took, stay>>20)
	}
}

// TestManyPlans: what a look at a view, or an open one, needs of very many tensors is kept of a bounded
// number of views: not as long as the kernel knows their nodes, nor as long as they are open.
func TestManyPlans(t *testing.T) {
	if raceDetector {
		t.Skip("measures")
	}
	const files, tensors = 8, 60_000
	r := newRig(t)
	p := manyTensors(tensors)
	var ids []string
	for f := range files { // past the mount, so that nobody packs them
		p[len(p)-1] = byte(f)
		name := fmt.Sprintf("f%d.safetensors", f)
		if err := os.WriteFile(r.at("tree", name), p, 0o644); err != nil {
			t.Fatal(err)
		}
		n := r.find(name) // an id leads to files that are known
		defer r.forget(n)
		id, err := r.artifact(name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	var m runtime.MemStats
	stays := func() int64 {
		runtime.GC()
		runtime.GC() // what a pool keeps for one
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := stays()
	check := func(what string) {
		t.Helper()
		stay := stays() - before
		t.Logf("%s: %d MiB stay", what, stay>>20)
		if stay > 20<<20 {
			t.Errorf("%s: %d MiB stay", what, stay>>20)
		}
	}
	want := int64(0)
	for _, id := range ids {
		n, a, err := r.lookup(artifactsDir + id + ".safetensors")
		if err != nil || want != 0 && a.Size != want {
			t.Fatalf("%d bytes, %v", a.Size, err)
		}
		want = a.Size
		defer r.forget(n)
	}
	check("looked at")
	var open []*Handle
	for _, id := range ids {
		open = append(open, r.open(artifactsDir+id+".safetensors", unix.O_RDONLY))
	}
	check("opened")
	var got [1]byte
	for i, h := range open {
		if k, err := h.Read(got[:], want-1); err != nil || k != 1 {
			t.Errorf("%d, %v", k, err)
		}
		if i%3 == 0 {
			r.release(h)
		} else {
			defer r.release(h)
		}
	}
	check("read")
	runtime.KeepAlive(r)
}

// TestLargeHeaders: of many large headers that are asked for at once one is parsed at a time.
func TestLargeHeaders(t *testing.T) {
	r := newRig(t)
	var now, most, all atomic.Int64
	r.content.Step = func(what string) error {
		if what == "parse" {
			all.Add(1)
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(50 * time.Millisecond)
			now.Add(-1)
		}
		return nil
	}
	const files = 4
	p := manyTensors(30_000)
	for f := range files {
		if err := os.WriteFile(r.at("tree", fmt.Sprintf("f%d.safetensors", f)), p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var asked sync.WaitGroup
	for f := range files {
		asked.Go(func() {
			if got := r.listing(fmt.Sprintf(".ckptfs/tensors/f%d.safetensors", f)); len(got) != 30_000 {
				t.Errorf("%d tensors", len(got))
			}
		})
	}
	asked.Wait()
	if most.Load() != 1 || all.Load() != files {
		t.Errorf("%d at a time, %d in all", most.Load(), all.Load())
	}
}

// TestShowInPasses: what is told of very many tensors is not all in memory at once.
func TestShowInPasses(t *testing.T) {
	if raceDetector {
		t.Skip("measures")
	}
	const tensors, perTensor = 200_000, 220
	r := newRig(t)
	// past the mount, so that nobody packs it
	if err := os.WriteFile(r.at("tree", "f.safetensors"), manyTensors(tensors), 0o644); err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, most, told, last := m.HeapAlloc, uint64(0), 0, int64(-1)
	f, err := r.Show(t.Context(), "f.safetensors", func(some []control.Tensor) error {
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc-before)
		for _, x := range some {
			if x.Offset <= last {
				return fmt.Errorf("%s at %d after %d", x.Name, x.Offset, last)
			}
			last = x.Offset
		}
		told += len(some)
		return nil
	})
	if err != nil || f.Tensors != nil || told != tensors {
		t.Fatalf("%d told, %v", told, err)
	}
	t.Logf("%d bytes a tensor", most/tensors)
	if most > tensors*perTensor {
		t.Errorf("%d bytes of memory for each tensor", most/tensors)
	}
}
