package volume

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file that waits to be hydrated waits no more when it loses its name or is to be evicted: prune frees its
// chunks.
func TestHydrationForgets(t *testing.T) {
	for what, gone := range map[string]func(r *rig){
		"removed":  func(r *rig) { r.unlink("f") },
		"replaced": func(r *rig) { r.write("g", nil); r.rename("g", "f") },
		"evicted, then removed": func(r *rig) {
			if _, err := r.Evict(t.Context(), "f", nil); err != nil {
				t.Fatal(err)
			}
			r.awaitHydrator()
			r.unlink("f")
		},
		"removed while it is read": func(r *rig) {
			h := r.open("f", unix.O_RDONLY)
			r.unlink("f")
			if _, err := r.readHandle(h); err != nil {
				t.Fatal(err)
			}
			r.release(h)
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.HydrateAfter = time.Hour })
			want := random(300<<10, 1)
			r.write("f", want)
			r.packOut("f")
			r.same("f", want)
			if r.hydrator.Pending() != 1 {
				t.Fatal("nothing waits")
			}
			r.want("f", packed)
			gone(r)
			r.wantNothing()
			r.awaitHydrator()
		})
	}
}

// The command, a writer and the end do not wait for HydrateAfter.
func TestHydratedAtOnce(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HydrateAfter = time.Hour })
	want := random(300<<10, 1)
	for _, p := range []string{"f", "g", "h"} {
		r.write(p, want)
		r.packOut(p)
	}
	for _, p := range []string{"f", "g", "h"} {
		r.same(p, want)
	}
	if _, err := r.Hydrate(t.Context(), "f", nil); err != nil {
		t.Fatal(err)
	}
	r.want("f", both)
	h := r.open("g", unix.O_WRONLY)
	r.want("g", resident)
	r.release(h)
	r.want("h", packed)
	r = r.reopen()
	r.same("h", want)
}
