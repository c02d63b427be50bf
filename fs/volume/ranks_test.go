package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Ranks of a distributed training save their shards into one folder. The first of them renames it when all
// are done. They read what the others saved, by handles from before the rename and after. Older steps are
// removed under readers. Files are packed, evicted, hydrated and swept meanwhile. Every byte is read as it
// was written.
func TestRanks(t *testing.T) {
	const ranks, steps = 4, 12
	r := newRig(t, hotSize(1<<20))
	shard := func(step, rank int) []byte { // most of it is frozen
		return weights(t, []string{"frozen", "trained"}, random(90<<10, uint64(rank)),
			random(60<<10, uint64(step*100+rank)))
	}
	r.mkdir("runs/a")
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() {
		g := rand.New(rand.NewPCG(1, 2))
		for ctx.Err() == nil {
			var err error
			switch g.IntN(4) {
			case 0:
				err = r.Sync(ctx, nil)
			case 1:
				_, err = r.Evict(ctx, "", nil)
			case 2:
				_, err = r.Hydrate(ctx, "runs/a", nil)
			case 3:
				err = r.sweep(ctx)
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) &&
				!errors.Is(err, unix.ESTALE) {
				t.Errorf("beside the ranks: %v", err)
			}
		}
	})
	for step := range steps {
		tmp, final := fmt.Sprintf("runs/a/%d.tmp", step), fmt.Sprintf("runs/a/%d", step)
		name := func(dir string, rank int) string { return fmt.Sprintf("%s/rank-%d.safetensors", dir, rank) }
		r.mkdir(tmp)
		each(ranks, func(rank int) { r.write(name(tmp, rank), shard(step, rank)) })
		before := make([]*Handle, ranks)
		each(ranks, func(rank int) { before[rank] = r.open(name(tmp, rank), unix.O_RDONLY) })
		r.rename(tmp, final)
		each(ranks, func(rank int) {
			of := (rank + 1) % ranks
			got, err := r.readHandle(before[of])
			if err != nil || !bytes.Equal(got, shard(step, of)) {
				t.Errorf("step %d, a handle from before the rename: %d bytes, %v", step, len(got), err)
			}
			got, err = r.tryRead(name(final, of))
			if err != nil || !bytes.Equal(got, shard(step, of)) {
				t.Errorf("step %d, after the rename: %d bytes, %v", step, len(got), err)
			}
		})
		each(ranks, func(rank int) { r.release(before[rank]) })
		if step < 2 {
			continue
		}
		// The step before the last is removed while a rank reads it.
		old := fmt.Sprintf("runs/a/%d", step-2)
		each(ranks, func(rank int) {
			h := r.open(name(old, rank), unix.O_RDONLY)
			r.unlink(name(old, rank))
			got, err := r.readHandle(h)
			if err != nil || !bytes.Equal(got, shard(step-2, rank)) {
				t.Errorf("step %d, removed under its reader: %d bytes, %v", step-2, len(got), err)
			}
			r.release(h)
		})
		dir, base := r.dirOf(old)
		if err := r.Rmdir(dir, base); err != nil {
			t.Errorf("rmdir: %v", err)
		}
		r.forget(dir)
	}
	cancel()
	background.Wait()
	r.sync()
	r.evicted()
	for step := steps - 2; step < steps; step++ {
		for rank := range ranks {
			r.same(fmt.Sprintf("runs/a/%d/rank-%d.safetensors", step, rank), shard(step, rank))
		}
	}
	r.noDeletedFiles()
	r.sound()
	if r.log.has("ERROR") {
		t.Error("something was found amiss")
	}
}

// each runs f for every number below n, all at once.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// Two processes save to the same path, with O_TRUNC and without, while others read. No reader sees bytes that
// neither wrote, and the file is whole when both are done.
func TestSamePath(t *testing.T) {
	r := newRig(t, hotSize(0))
	const n = 150 << 10
	of := func(writer byte) []byte { return bytes.Repeat([]byte{writer}, n) }
	r.write("f", of(1))
	var writers, others sync.WaitGroup
	done := make(chan struct{})
	for w := range byte(2) {
		writers.Go(func() {
			g := rand.New(rand.NewPCG(uint64(w), 1))
			for range 15 {
				flags := uint32(unix.O_RDWR)
				if g.IntN(2) == 0 {
					flags |= unix.O_TRUNC
				}
				h := r.open("f", flags)
				r.writeAt(h, of(w+1), 0)
				r.release(h)
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				got, err := r.tryRead("f")
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				for i, b := range got {
					if b > 2 { // zeros are what a truncation between two reads leaves
						t.Errorf("byte %d is %d, which no process wrote", i, b)
						return
					}
				}
			}
		})
	}
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := r.Sync(t.Context(), nil); err != nil {
				t.Errorf("sync: %v", err)
			}
			if _, err := r.Evict(t.Context(), "", nil); err != nil {
				t.Errorf("evict: %v", err)
			}
			if err := r.sweep(t.Context()); err != nil {
				t.Errorf("prune: %v", err)
			}
		}
	})
	writers.Wait()
	close(done)
	others.Wait()
	r.sync()
	r.evicted()
	got := r.read("f")
	if len(got) != n {
		t.Fatalf("%d bytes are left", len(got))
	}
	if i := bytes.IndexFunc(got, func(b rune) bool { return b != 1 && b != 2 }); i >= 0 {
		t.Errorf("byte %d is %d", i, got[i])
	}
}

// sweep removes at once what nothing needs.
func (r *rig) sweep(ctx context.Context) error {
	_, err := r.Prune(ctx, now, nil)
	return err
}
