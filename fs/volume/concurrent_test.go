package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/store"
)

// A file that is cut short while the background packs it is no failure: it is packed when it is closed.
func TestTruncatedWhilePacking(t *testing.T) {
	r := newRig(t)
	data := random(4<<20, 1)
	for i := range 30 {
		r.write("f", data)
		r.write("g", data)
		for range i { // a different moment of the packing each time
			r.stat("f")
		}
		r.write("f", data[:100<<10])
		r.truncate("g", 100<<10)
	}
	r.pack("f")
	r.same("f", data[:100<<10])
	r.same("g", data[:100<<10])
	if r.log.has("failed") {
		t.Error("a change was taken for a failure")
	}
	s, err := r.Status(context.Background())
	if err != nil || len(s.Failures) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Everything at once. A file's bytes contain their version, so that a reader recognises a mixture: a name is
// only ever replaced whole, by rename.
func TestConcurrent(t *testing.T) {
	r := newRig(t, hotSize(1<<20), func(o *Options) { o.SumAfter = time.Millisecond })
	r.names.KeepOpen(3)
	const dirs, names = 3, 4
	for i := range dirs {
		r.mkdir(fmt.Sprintf("runs/%d/x", i))
	}
	version := func(n uint64) []byte {
		p := random(100<<10+int(n%7)*10_000, n)
		if n%4 == 0 { // stays plain
			p = p[:2000]
		}
		return append(fmt.Appendf(nil, "%020d", n), p...)
	}
	var versions sync.Map
	var seed uint64
	var mu sync.Mutex
	fresh := func() []byte {
		mu.Lock()
		defer mu.Unlock()
		seed++
		p := version(seed)
		versions.Store(string(p[:20]), p)
		return p
	}
	file := func(g *rand.Rand) string { return fmt.Sprintf("runs/%d/x/f%d", g.IntN(dirs), g.IntN(names)) }
	gone := func(err error) bool {
		return err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESTALE) ||
			errors.Is(err, unix.EEXIST)
	}
	flat := fixture(t, "flat.pt")

	acts := []func(w *rig, g *rand.Rand, id int){
		func(w *rig, g *rand.Rand, id int) { // save
			tmp := fmt.Sprintf("tmp%d", id)
			w.write(tmp, fresh())
			w.rename(tmp, file(g))
		},
		func(w *rig, g *rand.Rand, id int) { // read
			got, err := w.tryRead(file(g))
			if err != nil {
				if !gone(err) {
					t.Errorf("read: %v", err)
				}
				return
			}
			if want, ok := versions.Load(string(got[:min(20, len(got))])); !ok ||
				!bytes.Equal(got, want.([]byte)) {
				t.Errorf("read %d bytes that no writer wrote so", len(got))
			}
		},
		func(w *rig, g *rand.Rand, id int) { // list, with what readdirplus does
			dir := fmt.Sprintf("runs/%d/x", g.IntN(dirs))
			for _, name := range w.listing(dir) {
				if n, _, err := w.lookup(dir + "/" + name); err == nil {
					w.forget(n)
				} else if !gone(err) {
					t.Errorf("stat: %v", err)
				}
			}
		},
		func(w *rig, g *rand.Rand, id int) { // exchange, link
			if err := w.tryRename(file(g), file(g), unix.RENAME_EXCHANGE); !gone(err) {
				t.Errorf("exchange: %v", err)
			}
			n, _, err := w.lookup(file(g))
			if err != nil {
				return
			}
			dir, name := w.dirOf(file(g))
			if _, err := w.Link(n, dir, name); err == nil {
				w.forget(n)
			} else if !gone(err) {
				t.Errorf("link: %v", err)
			}
			w.forget(dir)
			w.forget(n)
		},
		func(w *rig, g *rand.Rand, id int) {
			dir, name := w.dirOf(file(g))
			if err := w.Unlink(dir, name); !gone(err) {
				t.Errorf("unlink: %v", err)
			}
			w.forget(dir)
		},
		func(w *rig, g *rand.Rand, id int) { // a checkpoint with its view, moved about
			p := fmt.Sprintf("runs/%d/x/m%d.pt", g.IntN(dirs), id)
			w.write(p, flat)
			view := strings.TrimSuffix(p, ".pt") + ".safetensors"
			if h, err := w.openFile(view, unix.O_RDONLY); err == nil {
				if _, err := w.readHandle(h); !gone(err) {
					t.Errorf("view: %v", err)
				}
				h.Release()
			} else if !gone(err) {
				t.Errorf("view: %v", err)
			}
			w.unlink(p)
		},
		func(w *rig, g *rand.Rand, id int) { // directories
			a, b := fmt.Sprintf("runs/%d", g.IntN(dirs)), fmt.Sprintf("runs/away%d", id)
			p := a + fmt.Sprint("/d", id)
			w.mkdir(p)
			w.rename(p, b)
			dir, name := w.dirOf(b)
			if err := w.Rmdir(dir, name); err != nil {
				t.Errorf("rmdir: %v", err)
			}
			w.forget(dir)
		},
		func(w *rig, g *rand.Rand, id int) { // commands
			ctx := context.Background()
			var err error
			switch g.IntN(8) {
			case 0:
				_, err = w.Evict(ctx, "", nil)
			case 1:
				_, err = w.Hydrate(ctx, fmt.Sprintf("runs/%d", g.IntN(dirs)), nil)
			case 2:
				_, err = w.Stats(ctx)
			case 3:
				_, err = w.Status(ctx)
			case 4:
				_, err = w.Show(ctx, file(g), nil)
			case 5:
				err = w.Sync(ctx, nil)
			case 6:
				if err = w.sweep(ctx); errors.Is(err, store.ErrSweeping) {
					err = nil
				}
			case 7:
				err = w.sumAll(ctx)
			}
			if !gone(err) {
				t.Errorf("command: %v", err)
			}
		},
	}
	end := time.Now().Add(2 * time.Second)
	var all sync.WaitGroup
	for id := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			g := rand.New(rand.NewPCG(1, uint64(id)))
			for time.Now().Before(end) && !t.Failed() {
				acts[g.IntN(len(acts))](r, g, id)
			}
		}()
	}
	all.Wait()
	for _, n := range r.listing("") {
		if n != "runs" {
			t.Errorf("left: %s", n)
		}
	}
	r.onlyRoot()
	r.noDeletedFiles()
	r.sound()
}
