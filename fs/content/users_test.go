package content

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A further open gets the mode of those that are open; the first gets the best that there is.
func TestMode(t *testing.T) {
	const r, w, rw = unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR
	for _, c := range []struct {
		what               string
		users              users
		access             uint32
		local, passthrough bool
		want               Mode
	}{
		{"the first reader", users{}, r, true, true, Passthrough},
		{"the first writer", users{}, w, true, true, Passthrough},
		{"a reader of a packed file", users{}, r, false, true, Cached},
		{"a reader without passthrough", users{}, r, true, false, Cached},
		{"a writer without passthrough", users{}, w, true, false, Direct},
		{"one that may map it, without passthrough", users{}, rw, true, false, Cached},
		{"beside passthrough", users{pass: 1}, r, true, true, Passthrough},
		{"served beside passthrough", users{pass: 1}, w, true, false, Passthrough},
		{"beside a cached reader", users{cached: 1}, w, true, true, Cached},
		{"beside a direct writer", users{direct: 1}, r, true, true, Cached},
		{"a second direct writer", users{direct: 1}, w, true, false, Direct},
		{"beside a reader of this process", users{inside: 1}, r, true, true, Passthrough},
	} {
		if got := c.users.mode(c.access, c.local, c.passthrough); got != c.want {
			t.Errorf("%s: mode %d, want %d", c.what, got, c.want)
		}
	}
}

// What the kernel has of a file is kept unless it was written past the page cache meanwhile.
func TestKeepCache(t *testing.T) {
	r := passthroughRig(t)
	r.write("f", random(100<<10, 1)) // in passthrough
	r.packOut("f")
	for i, want := range []bool{false, true} {
		h := r.open("f", unix.O_RDONLY)
		if h.Mode != Cached || h.KeepCache != want {
			t.Errorf("open %d: mode %d, keep %v", i, h.Mode, h.KeepCache)
		}
		h.Release()
	}
	if len(r.kernel.open) > 0 {
		t.Error("a backing file is left registered")
	}
}

// A running program is not truncated by a reader, which the kernel would let through.
func TestRunningProgramIsNotTruncated(t *testing.T) {
	for _, state := range []string{"plain", "packed"} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			data := random(100<<10, 1)
			r.write("prog", data)
			if state == "packed" {
				r.packOut("prog")
			}
			runs := r.open("prog", unix.O_RDONLY|openedToExecute)
			if _, err := r.file("prog").Open(unix.O_RDONLY|unix.O_TRUNC, 0); err != unix.ETXTBSY {
				t.Errorf("truncate: %v", err)
			}
			r.same("prog", data)
			runs.Release()
			r.open("prog", unix.O_RDONLY|unix.O_TRUNC).Release()
			r.same("prog", nil)
		})
	}
}
