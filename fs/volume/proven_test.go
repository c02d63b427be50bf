package volume

import (
	"testing"

	"ckptfs/cas"
)

// A good file is saved whose bytes the store has already, damaged: whatever is known of the damage, and
// however room is made, its local copy is not dropped for them.
func TestSavedOverDamage(t *testing.T) {
	a, b := random(600<<10, 1), random(600<<10, 2)
	for _, c := range []struct {
		name string
		know func(r *rig) *rig // what happens after the damage
		hot  bool              // room is made by itself
	}{
		{"nobody knows", func(r *rig) *rig { return r }, false},
		{"another daemon", func(r *rig) *rig { return r.reopen() }, false},
		{"another daemon makes room", func(r *rig) *rig { return r.reopen(hotSize(0)) }, true},
		{"a check found it", func(r *rig) *rig {
			if len(r.check().Problems) == 0 {
				r.t.Error("the check found nothing")
			}
			return r
		}, false},
		{"a check found it, then another daemon", func(r *rig) *rig { r.check(); return r.reopen() }, false},
		{"it was read, then another daemon", func(r *rig) *rig {
			if _, err := r.tryRead("old.safetensors"); err == nil {
				r.t.Error("the damage is read as if it were right")
			}
			return r.reopen()
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			want := weights(t, []string{"fc.bias", "fc.weight"}, a, b)
			r.write("old.safetensors", want)
			r.packOut("old.safetensors")
			r = r.reopen() // what this process wrote it takes for written
			r.damage(cas.Sum(b[256<<10 : 512<<10]))
			r = c.know(r)
			r.write("new.safetensors", want)
			r.sync()
			if c.hot {
				r.eventually("room is made", func() bool { return r.state("new.safetensors") == packed })
			} else {
				r.evictNew()
			}
			r.same("new.safetensors", want)
			r.same("old.safetensors", want)
			r.unhurt()
		})
	}
}

// evictNew evicts what can be evicted until all is: a file that was kept is packed again.
func (r *rig) evictNew() {
	r.t.Helper()
	r.eventually("all is evicted", func() bool {
		n := r.find("new.safetensors")
		defer r.forget(n)
		if _, err := n.File().Evict(); err != nil {
			r.t.Fatal(err)
		}
		r.sync()
		return r.state("new.safetensors") == packed
	})
}
