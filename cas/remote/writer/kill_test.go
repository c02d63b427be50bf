package writer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// full are entries that fill a tail.
func full(step string) (entries []record.Entry) {
	text := strings.Repeat(step[:1], 1900)
	for i := range 70 {
		entries = append(entries, inline(fmt.Sprintf("runs/a/%s/%02d", step, i), text))
	}
	return entries
}

// story is what one process after the other has to publish.
func story(r *rig) (pushes [][]record.Entry, names []record.Entry) {
	a, b := r.store.Simple(3, 40_000), r.store.Simple(1, 40_000)
	chunks := r.store.Chunks(a)
	delta := r.store.File(nil, append(chunks[:2:2], r.store.Delta(2, 33_000, chunks[2])))
	pushes = [][]record.Entry{
		{fileOf("runs/a/1/m", a), inline("runs/a/1/c", "{}")},
		append(full("2"), fileOf("runs/a/2/m", delta)),
		{tombstone("runs/a/1/m"), fileOf("runs/a/3/m", b)},
		append(full("4"), inline("runs/a/1/c", "[]")),
	}
	names = append(append(full("2"), full("4")...), inline("runs/a/1/c", "[]"), tombstone("runs/a/1/m"),
		fileOf("runs/a/2/m", delta), fileOf("runs/a/3/m", b))
	return pushes, names
}

// A process dies at any request, which is done, or not, or done later. The next one goes on with what was
// acknowledged to nobody. All is there then, in as many commits as there were pushes.
func TestKilled(t *testing.T) {
	for name, what := range map[string]fault{"not done": dead, "done": lost, "done later": delayed} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for alive := false; !alive; {
				n++
				alive = killedAt(t, n, what)
			}
			if n < 20 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// killedAt is a story with a death at request n; true: there was none.
func killedAt(t *testing.T, n int, what fault) (alive bool) {
	mem := &bucket.Mem{}
	f := &faulty{Bucket: mem}
	r := newRig(t, f, 1)
	pushes, names := story(r)
	die := func(_, _ string, i int) fault {
		switch {
		case i == n:
			return what
		case i > n:
			return dead
		}
		return done
	}
	f.fault = die
	for k := 0; k < len(pushes); {
		_, err := r.push(pushes[k]...)
		if err == nil {
			k++
			continue
		}
		if !errors.Is(err, errDead) && f.n > n {
			t.Fatalf("request %d, push %d: %v\n%v", n, k, err, f.log)
		}
		f.fault = nil
		f.before("heads/", f.settle)
		r.restart()
	}
	f.settle()
	alive, f.fault = f.n < n, nil
	r.check(names...)
	if h, _ := namesOf(t, mem, r); h.Sequence != int64(len(pushes)) || len(h.Tables) != 2 {
		t.Errorf("request %d: sequence %d, %d tables", n, h.Sequence, len(h.Tables))
	}
	if t.Failed() {
		t.Fatalf("request %d\n%v", n, f.log)
	}
	return alive
}

func namesOf(t *testing.T, b bucket.Bucket, r *rig) (*record.Head, map[string]record.Entry) {
	return names(t, b, r.w.id.Writer)
}

// dying is a State whose process dies at the n-th change.
type dying struct {
	*Mem
	n int
}

func (d *dying) step() error {
	if d.n--; d.n <= 0 {
		return errDead
	}
	return nil
}

func (d *dying) SetIdentity(id Identity) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Mem.SetIdentity(id)
}

func (d *dying) Learn(o record.Object, records []objects.Placed) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Mem.Learn(o, records)
}

// The same where the process dies before the state has what was done.
func TestKilledAtState(t *testing.T) {
	for n, alive := 1, false; !alive; n++ {
		mem := &bucket.Mem{}
		r := newRig(t, mem, 1)
		pushes, names := story(r)
		state := &dying{r.state, n}
		o := r.options()
		o.State = state
		r.w = New(o)
		for k := 0; k < len(pushes); {
			_, err := r.push(pushes[k]...)
			switch {
			case err == nil:
				k++
			case !errors.Is(err, errDead):
				t.Fatal(err)
			default:
				r.restart()
			}
		}
		alive = state.n > 0
		r.check(names...)
		if h, _ := namesOf(t, mem, r); h.Sequence != int64(len(pushes)) {
			t.Errorf("sequence %d", h.Sequence)
		}
		if t.Failed() {
			t.Fatalf("change %d", n)
		}
	}
}
