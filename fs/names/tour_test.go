package names

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// many makes folders of different sizes, and returns the paths of the files, in order.
func (r *rig) many() (paths []string) {
	for d := range 20 {
		dir := fmt.Sprintf("%c/%c", 'a'+d%3, 'a'+d)
		r.mkdir(dir)
		for f := range 4 * d {
			paths = append(paths, fmt.Sprintf("%s/%d", dir, f))
		}
	}
	r.write(paths...)
	slices.Sort(paths)
	return paths
}

// Each file is met once, however many walk, and whenever they have their turns.
func TestTour(t *testing.T) {
	r := newRig(t)
	want := r.many()
	never := func(ctx context.Context) (func(), error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var turns, over atomic.Int64
	always := func(ctx context.Context) (func(), error) {
		turns.Add(1)
		return func() { over.Add(1) }, ctx.Err()
	}
	for name, turn := range map[string]func(context.Context) (func(), error){
		"never": never, "always": always, "none": nil,
	} {
		for workers := range 5 {
			var mu sync.Mutex
			var met []string
			behind := map[string]int{}
			r.must("walk", r.Tour(t.Context(), Tour{Workers: workers, Turn: turn,
				File: func(p string, n *Node, st *unix.Stat_t) error {
					mu.Lock()
					defer mu.Unlock()
					if met = append(met, p); n.Path() != p || st == nil || st.Ino != n.Ino() {
						t.Errorf("%s is %s, found as %+v", p, n.Path(), st)
					}
					return nil
				},
				AfterDir: func(p string) {
					mu.Lock()
					defer mu.Unlock()
					behind[p] = len(met)
				}}))
			if slices.Sort(met); !slices.Equal(met, want) || behind[""] != len(want) || len(behind) != 24 {
				t.Errorf("%s, %d workers: %d files of %d; %v", name, workers, len(met), len(want), behind)
			}
			r.onlyRoot()
		}
	}
	if turns.Load() != over.Load() {
		t.Errorf("%d turns, %d over", turns.Load(), over.Load())
	}
}

// As many files are looked at at a time as there are workers.
func TestTourSideBySide(t *testing.T) {
	r := newRig(t)
	r.many()
	const workers = 3
	var together sync.WaitGroup
	together.Add(workers)
	var met atomic.Int64
	r.must("walk", r.Tour(t.Context(), Tour{Workers: workers, File: func(string, *Node, *unix.Stat_t) error {
		if met.Add(1) <= workers {
			together.Done()
			together.Wait()
		}
		return nil
	}}))
}

// An error of whomever ends it, and so does the context; nothing stays pinned.
func TestTourEndsEarly(t *testing.T) {
	r := newRig(t)
	all := len(r.many())
	wrong := errors.New("wrong")
	for at := 1; at <= all; at += 151 {
		var met atomic.Int64
		file := func(string, *Node, *unix.Stat_t) error {
			if met.Add(1) == int64(at) {
				return wrong
			}
			return nil
		}
		if err := r.Tour(t.Context(), Tour{Workers: 4, File: file}); err != wrong {
			t.Errorf("at file %d: %v", at, err)
		}
		r.onlyRoot()
		ctx, cancel := context.WithCancel(t.Context())
		if err := r.Tour(ctx, Tour{Workers: 4, File: func(string, *Node, *unix.Stat_t) error {
			cancel()
			return nil
		}}); err != context.Canceled {
			t.Errorf("canceled: %v", err)
		}
		r.onlyRoot()
	}
}
