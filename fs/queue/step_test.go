package queue

import (
	"fmt"
	"testing"
	"time"

	"ckptfs/formats"
	"ckptfs/fs/content"
)

// clock is a time that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// inSteps is a rig whose clock stands, and whose programs write files of some steps.
func inSteps(t *testing.T) (r *rig, c *clock, writing map[string]bool) {
	c, writing = &clock{time.Unix(1<<30, 0)}, map[string]bool{}
	r = newRig(t, func(o *Options) {
		o.Now = c.now
		o.Writing = func(step string) bool { return writing[step] }
	})
	return r, c, writing
}

// lookAhead looks at what is queued, as take does.
func (r *rig) lookAhead() {
	r.Queue.mu.Lock()
	defer r.Queue.mu.Unlock()
	lookWithin(r.Queue, append([]*content.File{}, r.queued...))
}

func (r *rig) ends() {
	for f := range r.packing {
		r.begin(f)
		f.Unpin()
		r.finish(f, 0)
	}
	r.Queue.mu.Lock()
	defer r.Queue.mu.Unlock()
	if len(r.queued) == 0 && len(r.positions.places) > 0 {
		r.t.Errorf("%v are left", r.positions.places)
	}
}

// The files of a step are packed in the order of what they may be made of, whatever order they were closed
// in: each once those before it are in the store.
func TestStepsInTurns(t *testing.T) {
	r, c, _ := inSteps(t)
	single, half := weights(t, formats.F32), weights(t, formats.BF16)
	for i := range 2 {
		step := fmt.Sprintf("runs/r/%d/", i)
		r.write(step+"a_model_states.safetensors", half)
		r.write(step+"ema.safetensors", single)
		r.write(step+"z_optim_states.safetensors", single)
		r.write(step+"notes.txt", random(64<<10, 1))
	}
	r.write("models/half.safetensors", half) // in no step: in its own order
	c.at = c.at.Add(lingersFor)
	r.lookAhead()
	r.wantGroups([]string{"runs/r/0/z_optim_states.safetensors", "runs/r/0/notes.txt",
		"runs/r/1/z_optim_states.safetensors", "runs/r/1/notes.txt", "models/half.safetensors"})
	r.stored(r.file("runs/r/0/z_optim_states.safetensors"))
	r.wantGroups([]string{"runs/r/0/ema.safetensors"})
	r.stored(r.file("runs/r/0/ema.safetensors"))
	r.stored(r.file("runs/r/1/z_optim_states.safetensors"))
	r.wantGroups([]string{"runs/r/0/a_model_states.safetensors", "runs/r/1/ema.safetensors"})
	r.stored(r.file("runs/r/0/a_model_states.safetensors"))
	r.stored(r.file("runs/r/1/ema.safetensors"))
	r.wantGroups([]string{"runs/r/1/a_model_states.safetensors"})
	r.ends()
}

// What may be made of a file that is still to come waits a while for it: longer while programs write files of
// the step, and not at all for a sync.
func TestStepsLinger(t *testing.T) {
	r, c, writing := inSteps(t)
	const model, other = "runs/r/1/model.safetensors", "runs/r/1/optim.safetensors"
	r.write(model, weights(t, formats.BF16))
	r.lookAhead()
	r.wantGroups()
	writing["runs/r/1"] = true
	c.at = c.at.Add(lingersFor)
	r.lookAhead()
	r.wantGroups()
	r.write(other, weights(t, formats.F32))
	r.lookAhead()
	r.wantGroups([]string{other})
	r.stored(r.file(other))
	r.wantGroups()
	writing["runs/r/1"] = false
	r.lookAhead()
	r.wantGroups([]string{model})
	r.ends()

	r.write(model, weights(t, formats.F16)) // again
	writing["runs/r/1"] = true
	r.lookAhead()
	r.wantGroups()
	c.at = c.at.Add(lingersMost)
	r.lookAhead()
	r.wantGroups([]string{model})
	r.ends()

	r.write(model, weights(t, formats.BF16))
	r.lookAhead()
	r.wantGroups()
	end := hurry(r.Queue)
	r.wantGroups([]string{model})
	end()
	r.ends()
}

// A file that lingers is packed without another event, and one that is removed meanwhile leaves nothing.
func TestStepsLingerEnds(t *testing.T) {
	r := newRig(t)
	r.Start()
	r.write("runs/r/1/model.safetensors", weights(t, formats.BF16))
	r.write("runs/r/1/gone.safetensors", weights(t, formats.BF16))
	r.remove("runs/r/1/gone.safetensors", 0)
	r.eventually("it is packed", func() bool { return r.packed("runs/r/1/model.safetensors") })
	r.eventually("nothing is left", func() bool {
		r.Queue.mu.Lock()
		defer r.Queue.mu.Unlock()
		return len(r.positions.places) == 0
	})
}
