package volume

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/fs/control"
)

// A file with a name that is not published keeps its bytes, whatever becomes of the published one.
func TestDropLinked(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	data := modelFile(t, "ABC")
	for _, q := range []string{"keep/model.safetensors", "runs/x/1/best.safetensors"} {
		c := newCloud(t)
		a := c.join("a")
		a.put(p, data)
		a.published("")
		a.mkdir("keep")
		a.link(p, q)
		a.dropped(p, p)
		a.prune(control.PruneOptions{})
		a.unlink(p)
		a.published("runs/x/2") // the removal alone
		c.collect(0)
		a.again()
		a.same(q, data)
		a.close()
	}
}

// What others removed or replaced since the last fetch is not dropped.
func TestDropAsksNow(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	for name, change := range map[string]func(a *machine){
		"removed":  func(a *machine) { a.unlink(p) },
		"replaced": func(a *machine) { a.put(p, modelFile(t, "XYZ")) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := shared(t, p, modelFile(t, "ABC"))
			a.put(q, modelFile(t, "DEF"))
			a.published("")
			b.pulled("")
			change(a)
			a.published("")
			if d := b.dropped(""); d.Files != 1 {
				t.Errorf("%+v", d)
			}
			b.stub(q, true)
		})
	}
}

// A folder that is moved out of runs while a file in it is dropped has no stubs: the remote keeps nothing for
// it. The move has looked at the one file when it becomes a stub, and waits for the other.
func TestDropBesideMove(t *testing.T) {
	const p, q = "runs/x/1/a.safetensors", "runs/x/1/b.safetensors"
	c := newCloud(t)
	a := c.join("a")
	a.put(p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.published("")
	a.mkdir("keep")
	moved, dropped := make(chan error, 1), make(chan struct{})
	looked := a.find(q)
	var once atomic.Bool
	a.content.Step = func(what string) error {
		if what != "drop: record" || once.Swap(true) {
			return nil
		}
		go func() { moved <- a.tryRename("runs/x/1", "keep/1", 0) }()
		time.Sleep(200 * time.Millisecond) // it waits for the file that is dropped, or for all that are
		go func() {
			defer close(dropped)
			_, _ = a.Requests.Drop(t.Context(), p, nil)
		}()
		select {
		case <-dropped:
		case <-time.After(time.Second):
		}
		return errors.New("a test's")
	}
	_, _ = a.Requests.Drop(t.Context(), q, nil)
	<-dropped
	err := <-moved
	a.forget(looked)
	if errors.Is(err, unix.EXDEV) {
		a.same(p, modelFile(t, "ABC"))
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	a.stub("keep/1/a.safetensors", false)
	a.stub("keep/1/b.safetensors", false)
}

// What is known of a file can be asked whose manifest and head are here yet, or again, and whose list of
// chunks is not.
func TestManifestWithoutList(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c := newCloud(t)
	a := c.join("a")
	a.put(p, weights(t, []string{"a"}, random(3<<20, 1)))
	a.published("")
	h, m := a.manifestOf(p)
	left := map[cas.Hash]cas.Kind{h: cas.Manifest, m.Objects[0].Digest: cas.Chunk}
	raw := map[cas.Hash][]byte{}
	for h := range left {
		var err error
		if raw[h], err = a.store.Get(h, nil); err != nil {
			t.Fatal(err)
		}
	}
	a.dropped("")
	a.prune(control.PruneOptions{})
	a.again()
	b := a.store.Begin()
	for h, kind := range left {
		if _, err := b.Put(kind, h, raw[h], codec.Hint{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b.Release()
	for range 2 { // the second one knows the artifact
		if file, err := a.Show(t.Context(), p, nil); err != nil || len(file.Tensors) != 1 {
			t.Errorf("show: %+v, %v", file, err)
		}
		a.again()
	}
	l, err := a.Log(t.Context(), "runs/x", nil)
	if err != nil || l.Steps[0].Problem != "" || l.Steps[0].NewBytes < 3<<20 {
		t.Errorf("log: %+v, %v", l, err)
	}
}

// A file that was left to the remote before, and was read since, lets go of its local copy.
func TestDropCopy(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	b.same(p, modelFile(t, "ABC"))
	b.hydrateAll()
	b.want(p, both)
	b.stub(p, true)
	if d := b.dropped(""); d.Files != 1 {
		t.Errorf("%+v", d)
	}
	b.want(p, packed)
	b.stub(p, true)
	if d := b.dropped(""); d.Files > 0 {
		t.Errorf("again: %+v", d)
	}
	b.same(p, modelFile(t, "ABC")) // which may make a local copy again
	a.same(p, modelFile(t, "ABC"))
}
