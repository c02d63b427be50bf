package volume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nearlyFull is a store on a disk of 64 MiB that is nearly full, and what its files hold.
type nearlyFull struct {
	t     *testing.T
	r     *rig
	leave func(n int64)
	rng   *rand.Rand
	files map[string][]byte
}

// free is how many bytes of the disk are free, and how many of these are for packing.
func (d *nearlyFull) free() (free, room int64) {
	st, err := d.r.names.StatFS()
	if err != nil {
		d.t.Fatal(err)
	}
	free = int64(st.Bavail) * st.Bsize
	return free, free - int64(st.Blocks)*st.Bsize/100
}

// fill writes files until so many bytes are free, or the program is told that the disk is full.
func (d *nearlyFull) fill(free int64) {
	d.t.Helper()
	for i := 0; ; i++ {
		got, _ := d.free()
		if got <= free {
			return
		}
		data := random(int(min(got-free, 1<<20+d.rng.Int64N(14<<20)))+1, d.rng.Uint64())
		if d.rng.IntN(3) == 0 && len(d.files) > 0 { // mostly what another file is
			for _, other := range d.files {
				data = append(other[:len(other)*3/4:len(other)*3/4], data[:min(len(data), 1<<19)]...)
				break
			}
		}
		p := fmt.Sprint("f", len(d.files))
		if err := d.tryWrite(p, data); err != nil {
			if err != unix.ENOSPC {
				d.t.Fatal(err)
			}
			d.r.unlink(p)
			return
		}
		d.files[p] = data
	}
}

func (d *nearlyFull) tryWrite(p string, data []byte) error {
	h := d.r.open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	defer d.r.release(h)
	for off := 0; off < len(data); {
		n, err := h.Write(data[off:min(len(data), off+1<<17)], int64(off))
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// sync packs what fits, and fails unless that is all that fits. It returns the files that are not packed.
func (d *nearlyFull) sync(when string) (left []string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := d.r.Sync(ctx, nil)
	free, room := d.free()
	for p, data := range d.files {
		if d.r.state(p) != resident {
			continue
		}
		left = append(left, p)
		if need := int64(len(data) + len(data)/50 + 256<<10); need < room {
			d.t.Errorf("%s: %s of %d bytes is not packed, and %d are free: %v", when, p, len(data), free, err)
		}
	}
	if (err != nil) != (len(left) > 0) {
		d.t.Errorf("%s: %d files left: %v", when, len(left), err)
	}
	if err != nil && (!strings.Contains(err.Error(), "free at least ") ||
		!strings.Contains(err.Error(), "then `ckptfs sync`")) {
		d.t.Errorf("%s: it does not say what to do: %v", when, err)
	}
	return left
}

func (d *nearlyFull) whole(when string) {
	d.t.Helper()
	for p, data := range d.files {
		d.r.same(p, data)
	}
	if d.r.sound(); d.t.Failed() {
		d.t.Fatal(when)
	}
}

// TestNearlyFullDisk: from any state of a store on a disk that is nearly full, a sync packs all that fits, in
// whatever order the files came, also after the daemon was killed while it packed. Deleting enough always
// helps. Nothing is lost.
func TestNearlyFullDisk(t *testing.T) {
	seeds := 8
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 5))
			hot := []int64{0, 4 << 20, 1 << 40}[rng.IntN(3)]
			r, leave := onDiskOf(t, "64m", hotSize(hot))
			d := &nearlyFull{t, r, leave, rng, map[string][]byte{}}
			if rng.IntN(2) == 0 { // what is packed beside them
				d.files["first"] = random(1+rng.IntN(8<<20), 77)
				r.write("first", d.files["first"])
				r.sync()
			}
			if rng.IntN(2) == 0 {
				r.withoutPacking()
			}
			d.fill(64 << 20 / 20 * int64(1+rng.IntN(6)))
			leave(64 << 20 / 20)
			if rng.IntN(2) == 0 { // an attempt that a kill cuts short: its records stay in the segments
				f := fmt.Sprint("f", rng.IntN(len(d.files)))
				if n, _, err := r.lookup(f); err == nil {
					b := r.store.Begin()
					_, _ = r.packFile(b, n.File())
					b.Release()
					_ = r.store.Flush()
					r.forget(n)
				}
			}
			r = r.reopen(hotSize(hot)) // which queues what is not packed, in no order
			d.r = r
			t.Cleanup(r.close)
			left := d.sync("nearly full")
			d.whole("nearly full")

			// Deleting helps: what is packed, what is not, or what others have.
			for i := 0; len(left) > 0; i++ {
				switch {
				case rng.IntN(3) == 0:
					leave(func() int64 { free, _ := d.free(); return free + 4<<20 }())
				default:
					for p := range d.files {
						r.unlink(p)
						delete(d.files, p)
						break
					}
				}
				left = d.sync("something was deleted")
				if i > 20 {
					t.Fatalf("jammed: %v", left)
				}
			}
			d.whole("everything is packed")
		})
	}
}
