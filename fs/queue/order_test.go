package volume

import (
	"fmt"
	"slices"
	"testing"

	"ckptfs/fs/content"
	"ckptfs/index/runs"
)

// groups takes all groups that there are for the files in the queue.
func (r *rig) groups() (groups [][]string) {
	p := r.packer
	for {
		p.mu.Lock()
		positions := map[*content.File]runs.Position{}
		for _, n := range p.queue {
			positions[n] = runs.PositionOf(n.Path())
		}
		group := p.next(positions)
		p.mu.Unlock()
		if len(group) == 0 {
			return groups
		}
		var paths []string
		for _, n := range group {
			paths = append(paths, n.Path())
		}
		groups = append(groups, paths)
	}
}

// A step is packed when those before it are in the store, and other files meanwhile.
func TestOrder(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	r.mkdir("runs")
	r.mkdir("runs/r")
	for i := 8; i < 14; i++ {
		r.mkdir(fmt.Sprintf("runs/r/%d", i))
		r.write(fmt.Sprintf("runs/r/%d/model.pt", i), random(100<<10, 1))
	}
	r.write("other.pt", random(100<<10, 1))
	want := func(want ...[]string) {
		t.Helper()
		if got := r.groups(); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	put := func(p string) {
		n := r.find(p)
		defer r.forget(n)
		r.packer.put(n.file)
	}
	want([]string{"runs/r/8/model.pt", "runs/r/9/model.pt", "runs/r/10/model.pt", "runs/r/11/model.pt"}, []string{"other.pt"})
	for i := 8; i < 11; i++ {
		put(fmt.Sprintf("runs/r/%d/model.pt", i))
	}
	want()
	put("runs/r/11/model.pt")
	want([]string{"runs/r/12/model.pt"})
	n := r.find("runs/r/12/model.pt")
	defer r.forget(n)
	r.packer.finish(n.file, 0, false, nil) // it has failed, say
	want([]string{"runs/r/13/model.pt"})
	for n := range r.packer.busy {
		r.packer.finish(n, 0, false, nil)
	}
}

// Steps that are saved faster than they are packed take no more than others.
func TestQuickSeries(t *testing.T) {
	stored := func(quick bool) int64 {
		r := newRig(t)
		r.withoutPacking()
		for i := range 12 {
			r.write(fmt.Sprintf("model-%d.safetensors", i), trained(t, 1, i))
			if i == 0 && !quick {
				r.packer.start()
			}
			if !quick {
				r.sync()
			}
		}
		if quick {
			r.packer.start()
		}
		r.sync()
		return r.store.Stats().Bytes
	}
	if slow, quick := stored(false), stored(true); quick > slow {
		t.Errorf("%d bytes, and %d bytes when they are saved one after the other", quick, slow)
	}
}
