package volume

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// latest is where the link of a run leads; "": nowhere.
func (r *rig) latest(run string) string {
	n, _, err := r.lookup(".ckptfs/latest/" + run)
	if err != nil {
		return ""
	}
	defer r.forget(n)
	to, err := r.Readlink(n)
	if err != nil {
		r.t.Fatal(err)
	}
	return to
}

// saveStep saves a step as Transformers does: these files of it, and a log that no saver writes.
func (r *rig) saveStep(step string, files ...string) {
	r.t.Helper()
	r.mkdir(step)
	for i, name := range files {
		r.write(step+"/"+name, random(1000, uint64(i)))
	}
}

// saved are the files of a step of Transformers, in their order.
var saved = []string{"config.json", "model.safetensors", "optimizer.pt", "rng_state_0.pth", "rng_state_1.pth",
	"trainer_state.json"}

// The link of a run leads to the last step that is complete and has what those before it have; with HideTorn
// a run's folder lists no later ones, and none that are torn.
func TestLatest(t *testing.T) {
	r := newRig(t).reopen(func(o *Options) { o.HideTorn = true })
	want := func(what string, last string, hidden ...string) {
		t.Helper()
		if last != "" {
			last = "../../runs/a/" + last
		}
		if got := r.latest("a"); got != last {
			t.Errorf("%s: it leads to %q, want %q", what, got, last)
		}
		listed := r.listing("runs/a")
		for _, step := range []string{"checkpoint-5", "checkpoint-10", "checkpoint-15", "checkpoint-20"} {
			is := slices.Contains(listed, step)
			if is != (r.exists("runs/a/"+step) && !slices.Contains(hidden, step)) {
				t.Errorf("%s: %s is listed: %v", what, step, is)
			}
		}
	}
	if r.latest("a") != "" || r.exists(".ckptfs/latest/a") {
		t.Error("there is no such run")
	}
	r.mkdir("runs/a")
	want("an empty run", "")
	r.saveStep("runs/a/checkpoint-5", saved...)
	want("one step", "checkpoint-5")
	if l := r.listing(".ckptfs/latest"); !slices.Contains(l, "a") {
		t.Errorf("listed are %q", l)
	}
	r.saveStep("runs/a/best", "model.safetensors")
	want("a step that is not one of the numbered", "checkpoint-5")
	r.saveStep("runs/a/checkpoint-10", saved...)
	want("two steps", "checkpoint-10")

	h := r.open("runs/a/checkpoint-10/optimizer.pt", unix.O_WRONLY)
	want("one that is being written", "checkpoint-5", "checkpoint-10")
	r.writeAt(h, random(1000, 1), 0)
	r.Flush(h, dying)
	h.Release()
	want("a torn one", "checkpoint-5", "checkpoint-10")
	r.write("runs/a/checkpoint-10/optimizer.pt", random(1000, 1))
	want("one that was written again", "checkpoint-10")

	r.saveStep("runs/a/checkpoint-15", saved[:3]...)
	want("one without the files that come last", "checkpoint-10", "checkpoint-15")
	r.saveStep("runs/a/checkpoint-15", saved[3:5]...)
	r.write("runs/a/checkpoint-15/trainer_state.json", nil)
	want("one whose last file is empty", "checkpoint-10", "checkpoint-15")
	r.saveStep("runs/a/checkpoint-20", saved[:5]...)
	want("another one", "checkpoint-10", "checkpoint-15", "checkpoint-20")
	r.saveStep("runs/a/checkpoint-20", "rng_state_7.pth", "trainer_state.json")
	want("a later one that has all", "checkpoint-20")
	r.write("runs/a/checkpoint-20/samples.png", random(1000, 1))
	r.write("runs/a/checkpoint-5/results.txt", random(1000, 1))
	want("files that savers do not write", "checkpoint-20")

	// What a saver has not finished is not listed either, but it is there.
	r.saveStep("runs/a/tmp-checkpoint-25", saved...)
	want("an unfinished one", "checkpoint-20")
	h = r.open("runs/a/best/model.safetensors", unix.O_WRONLY)
	if !slices.Contains(r.listing("runs/a"), "best") {
		t.Error("a step without a number is hidden while it is written")
	}
	r.release(h)
	if slices.Contains(r.listing("runs/a"), "tmp-checkpoint-25") || !r.exists("runs/a/tmp-checkpoint-25") {
		t.Error("the unfinished step")
	}
	if l := r.listing("runs"); !slices.Contains(l, "a") {
		t.Errorf("runs are %q", l)
	}
	r = r.reopen()
	l := r.listing("runs/a")
	if !slices.Contains(l, "checkpoint-15") || !slices.Contains(l, "tmp-checkpoint-25") {
		t.Errorf("without HideTorn listed are %q", l)
	}
}

// Savers change: what three steps do not have is not asked for any more, nor what not most of them had.
func TestLatestOfChangedSaver(t *testing.T) {
	r := newRig(t)
	for i, has := range []string{"111", "111", "110", "110", "110", "111", "110"} {
		r.saveStep(fmt.Sprint("runs/a/", i), "model.pt", "optimizer.pt", "ema.pt")
		for k, name := range []string{"model.pt", "optimizer.pt", "ema.pt"} {
			if has[k] == '0' {
				if err := r.remove(r.dirNode(fmt.Sprint("runs/a/", i)), name, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := []int{0, 1, 1, 1, 4, 5, 6}[i]
		if got := r.latest("a"); got != fmt.Sprint("../../runs/a/", want) {
			t.Errorf("step %d: %s, want %d", i, got, want)
		}
	}
}

// Steps that lost their optimizer's state do not have the later ones lack what they are left with.
func TestLatestAfterDrop(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.saveStep(fmt.Sprint("runs/a/", i), "model.weights.safetensors")
	}
	r.saveStep("runs/a/3", "model.pt")
	r.saveStep("runs/a/4", "model.pt")
	r.saveStep("runs/a/5", "config.json")
	if got := r.latest("a"); got != "../../runs/a/4" {
		t.Errorf("it leads to %q", got)
	}
}
