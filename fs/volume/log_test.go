package volume

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/inspect"
)

// walked counts the steps that are looked through.
type walked struct {
	files
	n *atomic.Int64
}

func (w walked) Walk(ctx context.Context, p string, do func(path string, f inspect.File) error) error {
	w.n.Add(1)
	return w.files.Walk(ctx, p, do)
}

// A log reads the steps that came since the last one and those that are not complete, and all where another
// one changed. It says the same as one that reads all.
func TestLogGoesOn(t *testing.T) {
	r := newRig(t)
	var n atomic.Int64
	o := inspect.Options{
		Files: walked{files{r.Volume}, &n}, Store: stored{r.store, r.asm, r.reads}, Steps: r.steps,
	}
	fresh := inspect.New(o)
	o.KeepLog = 1 << 20
	kept := inspect.New(o)
	o.KeepLog = 100
	small := inspect.New(o)
	walks := func(ins *inspect.Inspector) (*control.RunLog, int64) {
		t.Helper()
		before := n.Load()
		l, err := ins.Log(context.Background(), "runs/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		return l, n.Load() - before
	}
	want := func(what string, looks int64) {
		t.Helper()
		all, _ := walks(fresh)
		steps := len(all.Steps)
		if got, looked := walks(kept); looked != looks || !reflect.DeepEqual(got, all) {
			t.Errorf("%s: %d of %d steps were read, want %d\n%+v\nwant %+v", what, looked, steps, looks, got, all)
		}
		if _, looked := walks(small); int(looked) != steps {
			t.Errorf("%s: with hardly any memory %d of %d steps were read", what, looked, steps)
		}
	}
	for _, s := range []string{"1 ABCD", "2 ABCE", "3 ABXE"} {
		r.save("a/"+s[:1], s[2:])
	}
	want("at first", 3)
	want("again", 0)
	r.save("a/4", "ABCY")
	r.write("runs/a/4/plain", random(100, 1))
	want("a step came", 1)
	want("again", 0)
	r.unlink("runs/a/4/plain")
	want("a plain file of it went", 1)
	r.setMetric("runs/a/2", "loss", "1")
	want("it was judged", 1)

	r.mkdir("runs/a/5")
	h := r.open("runs/a/5/m.safetensors", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, modelFile(t, "ABCE"), 0)
	want("a step is being written", 1)
	r.writeAt(h, modelFile(t, "PBCE"), 0)
	want("it grows", 1)
	r.release(h)
	r.sync()
	want("it is complete", 1)

	h = r.open("runs/a/2/m.safetensors", unix.O_WRONLY|unix.O_TRUNC)
	want("another is being written", 1+5)
	want("still", 4)
	r.writeAt(h, modelFile(t, "PQRS"), 0)
	r.release(h)
	r.sync()
	want("it was", 4)
	r.removeStep("runs/a/1")
	want("the first went", 4)
	r.save("b/1", "ABCD")
	other := func(what string, looks int64) {
		t.Helper()
		before := n.Load()
		if _, err := kept.Log(context.Background(), "runs/b", nil); err != nil || n.Load()-before != looks {
			t.Errorf("%s: %d steps of the other run were read, want %d (%v)", what, n.Load()-before, looks, err)
		}
	}
	other("at first", 1)
	want("another run was asked for", 0)
	other("again", 0)
}

// unpacked passes files of the steps 5 and 6 off as such that wait to be packed.
type unpacked struct {
	walked
	wait *atomic.Bool
}

func (u unpacked) Walk(ctx context.Context, p string, do func(path string, f inspect.File) error) error {
	return u.walked.Walk(ctx, p, func(path string, f inspect.File) error {
		if u.wait.Load() && (p == "runs/a/5" || p == "runs/a/6") {
			f = waiting{f}
		}
		return do(path, f)
	})
}

type waiting struct{ inspect.File }

func (waiting) Manifest() (cas.Hash, error) { return cas.Hash{}, nil }

func (w waiting) Info() (inspect.Info, error) {
	i, err := w.File.Info()
	i.Waits = true
	return i, err
}

// A log reads a step again that changed, and no other, where the tensors of the step are its own; all where
// others have some of them. It says the same as one that reads all.
func TestLogCountsWhatChanged(t *testing.T) {
	r := newRig(t)
	var n atomic.Int64
	var wait atomic.Bool
	o := inspect.Options{
		Files: unpacked{walked{files{r.Volume}, &n}, &wait},
		Store: stored{r.store, r.asm, r.reads}, Steps: r.steps,
	}
	fresh := inspect.New(o)
	o.KeepLog = 1 << 20
	kept := inspect.New(o)
	want := func(what string, looks int64) {
		t.Helper()
		all, err := fresh.Log(t.Context(), "runs/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		before := n.Load()
		got, err := kept.Log(t.Context(), "runs/a", nil)
		if looked := n.Load() - before; err != nil || looked != looks || !reflect.DeepEqual(got, all) {
			t.Errorf("%s: %d steps were read, want %d (%v)\n%+v\nwant %+v", what, looked, looks, err, got, all)
		}
	}
	const large = 3 << 20 // more than one chunk: a list
	tensor := func(seed uint64) []byte { return random(300<<10, seed) }
	frozen, same := random(large, 100), tensor(101)
	save := func(step, file string, tensors ...[]byte) {
		t.Helper()
		names := []string{"a", "b", "c", "d"}[:len(tensors)]
		r.write("runs/a/"+step+"/"+file+".safetensors", weights(t, names, tensors...))
		r.sync()
	}
	for i, step := range []string{"1", "2", "3", "4"} {
		r.mkdir("runs/a/" + step)
		save(step, "m", tensor(uint64(i)), same, frozen)
	}
	want("at first", 4)
	save("2", "m", tensor(10), same, frozen)
	want("a tensor of the second is another", 1)
	save("2", "m", tensor(11), same, frozen)
	save("3", "n", random(large, 21))
	want("of two, and a large one came", 2)
	save("3", "n", random(large, 22))
	want("which is another", 1)
	save("2", "n", tensor(13), random(large, 14), same)
	want("a file came", 1)
	r.unlink("runs/a/2/n.safetensors")
	want("it went", 1)
	save("1", "m", tensor(15), same, frozen)
	want("of the first, which the others have the frozen one of", 1+4)
	save("3", "m", tensor(16), tensor(17), frozen)
	want("one is no longer the same", 1+4)
	save("3", "m", tensor(16), tensor(17), tensor(18))
	want("the frozen one neither", 1+4)
	save("4", "m", tensor(11), same, frozen)
	want("what was the second's alone is in the fourth", 1+4)
	save("2", "m", tensor(11), same, frozen, tensor(23))
	want("and in the second again", 1+4)
	save("4", "m", tensor(19), tensor(19), random(large, 20))
	save("3", "m", tensor(19), same, random(large, 20))
	want("two got the same", 2+4)
	want("again", 0)
	for i, step := range []string{"5", "6"} {
		r.mkdir("runs/a/" + step)
		save(step, "m", tensor(30+uint64(i)), frozen)
	}
	wait.Store(true)
	want("two came", 2)
	want("they wait", 2)
	wait.Store(false)
	want("they are packed", 2)
	want("again", 0)
	save("5", "m", tensor(32))
	save("6", "m", tensor(33), tensor(40))
	want("they have nothing in common with others", 2+6)
	save("5", "m", tensor(34))
	save("6", "m", tensor(35), tensor(41))
	wait.Store(true)
	want("they changed and wait", 2)
	want("they wait still", 2)
	wait.Store(false)
	want("they are packed again", 2)
	want("again", 0)
}
