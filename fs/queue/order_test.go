package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/fs/content"
	"ckptfs/index/runs"
)

// groups takes all groups that there are for the files in the queue.
func (r *rig) groups() (groups [][]string) {
	q := r.Queue
	for {
		q.mu.Lock()
		positions := map[*content.File]runs.Position{}
		for _, f := range q.queued {
			positions[f] = runs.PositionOf(f.Path())
		}
		group := q.nextLocked(positions, 1<<60)
		q.mu.Unlock()
		if len(group) == 0 {
			return groups
		}
		var paths []string
		for _, f := range group {
			paths = append(paths, f.Path())
		}
		groups = append(groups, paths)
	}
}

// A step is packed when those before it are in the store, and other files meanwhile.
func TestOrder(t *testing.T) {
	r := newRig(t)
	for i := 8; i < 14; i++ {
		r.write(fmt.Sprintf("runs/r/%d/model.pt", i), random(100<<10, 1))
	}
	r.write("other.pt", random(100<<10, 1))
	want := func(want ...[]string) {
		t.Helper()
		if got := r.groups(); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	put := func(name string) { r.stored(r.file(name)) }
	want([]string{"runs/r/8/model.pt", "runs/r/9/model.pt", "runs/r/10/model.pt", "runs/r/11/model.pt"},
		[]string{"other.pt"})
	for i := 8; i < 11; i++ {
		put(fmt.Sprintf("runs/r/%d/model.pt", i))
	}
	want()
	put("runs/r/11/model.pt")
	want([]string{"runs/r/12/model.pt"})
	r.finish(r.file("runs/r/12/model.pt"), 0) // it has failed, say
	want([]string{"runs/r/13/model.pt"})
	for f := range r.packing {
		r.finish(f, 0)
	}
}

// There is a group for four processors, two at least, and each takes its share of what is queued.
func TestShares(t *testing.T) {
	defer func(n int) { cas.Processors = n }(cas.Processors)
	for processors, want := range map[int][]int{1: {4, 2, 1, 1}, 8: {4, 2, 1, 1}, 16: {2, 2, 1, 1, 1, 1}} {
		cas.Processors = processors
		r := newRig(t)
		for i := range 8 {
			r.write(string(rune('a'+i)), random(100<<10, uint64(i)))
		}
		var got []int
		for _, group := range r.groups() {
			got = append(got, len(group))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d processors: groups of %d, want %d", processors, got, want)
		}
		for f := range r.packing {
			r.finish(f, 0)
		}
	}
}

// A file that is rewritten while a group packs it can be in two groups; a sync waits for both.
func TestSyncWaitsForRepack(t *testing.T) {
	r := newRig(t)
	r.write("f", random(100<<10, 1))
	f := r.file("f")
	first, _ := r.take()
	r.begin(f)
	f.Unpin()
	p, err := f.BeginPack(func() {})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	r.write("f", []byte("new"))
	r.Queue.mu.Lock()
	if again := r.nextLocked(map[*content.File]runs.Position{f: nil}, 1<<60); len(again) > 0 {
		t.Error("a file is in two groups at a time")
	}
	r.Queue.mu.Unlock()
	synced := make(chan error, 1)
	go func() { synced <- r.PackAll(context.Background(), nil) }()
	r.finish(first[0], 0)
	second, _ := r.take()
	select {
	case err := <-synced:
		t.Fatalf("sync returned (%v) while the file was packed", err)
	default:
	}
	r.finish(second[0], 0)
	if err := <-synced; err != nil {
		t.Error(err)
	}
}
