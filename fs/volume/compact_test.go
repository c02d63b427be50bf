package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
)

func (r *rig) compact(o control.CompactOptions) *control.Compacted {
	r.t.Helper()
	c, err := r.Compact(context.Background(), o, nil)
	if err != nil {
		r.t.Fatalf("compact: %v", err)
	}
	return c
}

// What was stored without deltas takes as much less afterwards as if it had been stored with them, and
// nothing is lost by it: evicted, after a crash, without the index, and when steps are removed.
func TestCompact(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoDelta = true })
	const steps = 10
	step := func(i int) string { return fmt.Sprintf("%d.safetensors", 10*i) }
	text := random(300<<10, 7)
	r.write("text", text)
	for i := range steps {
		r.write(step(i), trained(t, 1, i))
		r.pack(step(i))
	}
	r.pack("text")
	r.close()
	r = openRig(t, r.dir)
	same := func(what string) {
		t.Helper()
		r.evictAll()
		for i := range steps {
			if r.exists(step(i)) {
				r.same(step(i), trained(t, 1, i))
			}
		}
		r.same("text", text)
		if r.sound(); t.Failed() {
			t.Fatal(what)
		}
	}
	full := r.segmentBytes()
	dry := r.compact(control.CompactOptions{DryRun: true})
	if dry.Chunks == 0 || dry.BytesAfter >= dry.BytesBefore || r.segmentBytes() != full {
		t.Errorf("dry run: %+v", dry)
	}
	var last control.Progress
	c, err := r.Compact(context.Background(), control.CompactOptions{}, func(p control.Progress) { last = p })
	if err != nil || c.Chunks < 2*(steps-2) || c.Files != steps+1 || c.Passed > 0 ||
		last.TotalFiles != c.Files || last.DoneFiles != c.Files-1 {
		t.Errorf("%+v, %v; %+v", c, err, last)
	}
	if now := r.segmentBytes(); now > full*2/3 || full-now < c.BytesBefore-c.BytesAfter-64<<10 {
		t.Errorf("%d bytes before, %d after: %+v", full, now, c)
	}
	same("compacted")
	if again := r.compact(control.CompactOptions{}); again.Chunks > 0 {
		t.Errorf("again: %+v", again)
	}
	for _, i := range []int{0, 3, 4, 8} {
		r.unlink(step(i))
	}
	r.prune(now)
	same("pruned")
	r = r.crashed()
	same("after a crash")
	r = r.withoutIndex()
	same("without index")
	r.write("new.safetensors", trained(t, 1, steps))
	r.pack("new.safetensors")
	r.same("new.safetensors", trained(t, 1, steps))
	same("goes on")
}

// One that is cut short anywhere loses nothing, and the next one finishes.
func TestCompactCutShort(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoDelta = true })
	const steps = 4
	step := func(i int) string { return fmt.Sprintf("%d.safetensors", 10*i) }
	for i := range steps {
		r.write(step(i), trained(t, 1, i))
		r.pack(step(i))
	}
	r.evictAll()
	r.close()
	r = openRig(t, r.dir)
	for k := range steps {
		ctx, cancel := context.WithCancel(context.Background())
		_, err := r.Compact(ctx, control.CompactOptions{}, func(p control.Progress) {
			if p.DoneFiles == k {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("at file %d: %v", k, err)
		}
		r = r.crashed()
		r.evictAll()
		for i := range steps {
			r.same(step(i), trained(t, 1, i))
		}
		r.sound()
	}
	r.compact(control.CompactOptions{})
	for i := 1; i < steps; i++ {
		if n := r.deltas(step(i)); n < 2 {
			t.Errorf("step %d: %d deltas", i, n)
		}
	}
	c, err := r.store.Compact(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Compact(t.Context(), control.CompactOptions{}, nil); !errors.Is(err, unix.EBUSY) {
		t.Errorf("two at a time: %v", err)
	}
	c.End()
}

// Of a run of small files whose tensors gain nothing few chunks are looked at; when later steps gain, that is
// found out.
func TestCompactSmall(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoDelta = true })
	const vain, pays = 100, 100
	same := random(4<<10, 1)
	weights := []safetensors.Entry{{Name: "w", DType: formats.F32, Shape: []int64{1024}}}
	r.mkdir("runs")
	r.mkdir("runs/r")
	for i := range vain + pays {
		p := fmt.Sprintf("runs/r/%d.safetensors", i)
		data := random(4<<10, uint64(i+2))
		if i >= vain {
			data = slices.Clone(same)
			data[4*i]++
		}
		r.write(p, typed(t, weights, data))
		r.pack(p)
	}
	r.close()
	r = openRig(t, r.dir)
	dry := r.compact(control.CompactOptions{DryRun: true})
	if dry.Files != vain+pays || dry.Chunks < pays*2/3 || dry.Looked > dry.Chunks+vain/3 {
		t.Errorf("%+v", dry)
	}
}

// A fine-tune of a model that lies elsewhere is stored against it, though more that are like it came later.
func TestCompactAlike(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoDelta = true })
	names := []string{"base.safetensors", "one.safetensors", "two.safetensors", "three.safetensors"}
	for i, p := range names {
		r.write(p, trained(t, 1, i))
		r.pack(p)
	}
	r.close()
	r = openRig(t, r.dir)
	r.compact(control.CompactOptions{})
	for i, p := range names {
		if n := r.deltas(p); (n < 2) != (i == 0) {
			t.Errorf("%s: %d deltas", p, n)
		}
	}
	r.evictAll()
	for i, p := range names {
		r.same(p, trained(t, 1, i))
	}
}
