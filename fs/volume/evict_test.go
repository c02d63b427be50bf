package volume

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/index/manifest"
)

// listOf is the first object that has a list.
func listOf(r *rig, objects []manifest.Object) manifest.Object {
	r.t.Helper()
	for _, o := range objects {
		if o.List {
			return o
		}
	}
	r.t.Fatal("no object has a list")
	return manifest.Object{}
}

// dropEntry takes the entry of a record out of the index.
func (r *rig) dropEntry(h cas.Hash) {
	r.t.Helper()
	var loc [1]cas.Location
	if err := r.store.Locate([]cas.Hash{h}, loc[:]); err != nil || loc[0].Segment == 0 {
		r.t.Fatalf("%s: %v, %v", h, loc, err)
	}
	if err := r.index.Remove([]cas.Entry{{Hash: h, Location: loc[0]}}); err != nil {
		r.t.Fatal(err)
	}
}

// losses are what a file's manifest may lack when the file is to be evicted. Eviction notices each of them.
var losses = map[string]func(r *rig, p string){
	"the manifest": func(r *rig, p string) {
		h, _ := r.manifestOf(p)
		r.damage(h)
	},
	"the manifest's entry": func(r *rig, p string) {
		h, _ := r.manifestOf(p)
		r.dropEntry(h)
	},
	"a chunk list": func(r *rig, p string) {
		_, m := r.manifestOf(p)
		r.damage(listOf(r, m.Objects).Digest)
	},
	"a chunk's entry": func(r *rig, p string) {
		_, m := r.manifestOf(p)
		spans, err := listOf(r, m.Objects).Spans(r.store.Get)
		if err != nil {
			r.t.Fatal(err)
		}
		r.dropEntry(spans[1].Hash)
	},
}

// Eviction drops a local copy only if the file can be read without it. Otherwise the local copy is kept, and
// the file is packed again.
func TestEvictKeepsWhatIsLost(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			want := weights(t, []string{"a", "b"}, random(1<<20, 1), random(300<<10, 2))
			r.write("f.safetensors", want)
			r.write("g", random(300<<10, 3))
			r.sync()
			reader := r.open("f.safetensors", unix.O_RDONLY)
			lose(r, "f.safetensors")
			m, err := r.Evict(context.Background(), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Skipped) != 1 || m.Skipped[0].Path != "f.safetensors" ||
				!strings.Contains(m.Skipped[0].Reason, "packed again") {
				t.Errorf("%+v", m)
			}
			r.want("g", packed)
			if got, err := r.readHandle(reader); err != nil {
				t.Error(err)
			} else {
				r.equal("who has it open", got, want)
			}
			r.release(reader)
			if !r.log.has("ERROR", "path f.safetensors ") || r.Counters().Errors["evict"] != 1 {
				t.Errorf("reported: %s", r.log)
			}
			r.packOut("f.safetensors")
			r.same("f.safetensors", want)
			r.unhurt()
		})
	}
}

// unhurt fails if a check finds a file to suffer. The record that was damaged lies where it lay.
func (r *rig) unhurt() {
	r.t.Helper()
	for _, p := range r.check().Problems {
		if p.Path != "" {
			r.t.Errorf("check: %+v", p)
		}
	}
}

// So it is when room is needed.
func TestRoomIsNotMadeOfWhatIsLost(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			want := weights(t, []string{"a", "b"}, random(1<<20, 1), random(300<<10, 2))
			r.write("f.safetensors", want)
			r.sync()
			lose(r, "f.safetensors")
			r = r.reopen(hotSize(0))
			r.eventually("f is evicted", func() bool { return r.state("f.safetensors") == packed })
			if !r.log.has("ERROR", "path f.safetensors ") {
				t.Errorf("reported: %s", r.log)
			}
			r.same("f.safetensors", want)
		})
	}
}

// Status lists an eviction as long as it fails. It is not tried all the time.
func TestFailingEvictionIsTold(t *testing.T) {
	r := newRig(t)
	want := random(300<<10, 1)
	r.write("f", want)
	r.sync()
	var broken atomic.Bool
	broken.Store(true)
	r.content.Step = func(what string) error {
		if what == "hollow: record" && broken.Load() {
			return unix.EIO
		}
		return nil
	}
	n := r.find("f")
	r.hot.Want(n.File())
	r.hot.Wake()
	failures := func() []control.Failure {
		s, err := r.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return s.Failures
	}
	r.eventually("status lists the failure", func() bool { return len(failures()) == 1 })
	for range 20 {
		r.hot.Shrink()
	}
	if f := failures()[0]; f.Path != "f" || f.Attempts > 10 || !strings.Contains(f.Reason, "could not be evicted") {
		t.Errorf("%+v", f)
	}
	broken.Store(false)
	r.evictAll()
	if f := failures(); len(f) != 0 {
		t.Errorf("%+v", f)
	}
	r.forget(n)
	r.same("f", want)
}

// TestVainEviction: where what is to go stays, the tree is not looked through for it all the time, but for
// what came since, and again in a while.
func TestVainEviction(t *testing.T) {
	var ahead atomic.Int64 // of the clock
	r := newRig(t, hotSize(0), func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	r.hot.Stop()
	held := map[string]*os.File{}
	save := func(name string) {
		r.write(name, random(100<<10, uint64(len(held))))
		r.sync()
		f, err := os.Open(r.at("tree", name)) // as a backup program has it
		if err != nil {
			t.Fatal(err)
		}
		held[name] = f
	}
	save("a")
	save("b")
	seeks := 0
	seek := r.hot.Seek
	r.hot.Seek = func(_ context.Context, wanted func(uint64) bool, found func(*content.File) bool) error {
		seeks++
		return seek(context.Background(), wanted, found) // what was stopped has ended
	}
	shrink := func(when string, want int) {
		t.Helper()
		seeks = 0
		for range 10 {
			r.hot.Shrink()
		}
		if seeks != want {
			t.Errorf("%s: looked through the tree %d times, want %d", when, seeks, want)
		}
	}
	shrink("held", 1)
	save("c")
	shrink("another came", 1)
	ahead.Add(int64(time.Hour))
	shrink("in a while", 1)
	for _, f := range held {
		f.Close()
	}
	shrink("let go", 0)
	ahead.Add(int64(time.Hour))
	shrink("let go, in a while", 1)
	for name := range held {
		if got := r.state(name); got != packed {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// A copy is made by the manifest if that can be read, otherwise from the resident bytes.
func TestCloneOfWhatIsLost(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			want := weights(t, []string{"a", "b"}, random(1<<20, 1), random(300<<10, 2))
			r.write("f.safetensors", want)
			r.sync()
			lose(r, "f.safetensors")
			dst := r.open("g", unix.O_RDWR|unix.O_CREAT)
			r.copyTo("f.safetensors", dst, int64(len(want)))
			r.release(dst)
			r.same("g", want)
			r.same("f.safetensors", want)
		})
	}
}

// What evict leaves as it is says what to do, or what becomes of it.
func TestSkippedSaysWhatToDo(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	r.write("plain", random(100<<10, 2))
	m, err := r.Evict(context.Background(), "plain", nil)
	if err != nil || len(m.Skipped) != 1 || !strings.Contains(m.Skipped[0].Reason, "`ckptfs sync` packs it") {
		t.Errorf("%+v, %v", m, err)
	}
}
