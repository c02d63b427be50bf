package prefix

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
)

func tagOf(seq uint64) (t Tag) {
	binary.LittleEndian.PutUint64(t[:], seq)
	return t
}

// again is a catalogue made of the snapshot of another.
func again(t *testing.T, c *Catalogue) *Catalogue {
	t.Helper()
	got, err := Restore(c.Snapshot(tagOf), func(m Model, tag Tag) bool {
		if tag != tagOf(m.Seq) {
			t.Errorf("model %d is tagged %x", m.Seq, tag)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	models, archs := c.Len()
	if m, a := got.Len(); m != models || a != archs {
		t.Fatalf("%d models of %d architectures, want %d of %d", m, a, models, archs)
	}
	return got
}

func TestRestoreKeeps(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	c := New()
	for seq := range uint64(100) {
		if err := c.Add(Model{Seq: seq}, randomGraph(r, 8)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Restore(c.Snapshot(tagOf), func(m Model, _ Tag) bool { return m.Seq%2 == 0 })
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := got.Len(); n != 50 {
		t.Errorf("%d models", n)
	}
	if _, err := Restore(New().Snapshot(tagOf), nil); err != nil {
		t.Errorf("an empty one: %v", err)
	}
}

// A damaged snapshot is refused, and so is one that was put together wrong.
func TestRestoreRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 10))
	c := New()
	for seq := range uint64(200) {
		if err := c.Add(Model{Seq: seq}, randomGraph(r, 8)); err != nil {
			t.Fatal(err)
		}
	}
	whole := c.Snapshot(tagOf)
	keep := func(Model, Tag) bool { return true }
	for range 2000 {
		p := append([]byte(nil), whole...)
		i := r.IntN(len(p))
		p[i] ^= 1 << r.IntN(8)
		if _, err := Restore(p, keep); !errors.Is(err, cas.ErrCorrupt) &&
			!(i == 3 && errors.Is(err, cas.ErrNewer)) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, err := Restore(p[:r.IntN(len(p))], keep); !errors.Is(err, cas.ErrCorrupt) &&
			!errors.Is(err, cas.ErrNewer) {
			t.Fatalf("cut short: %v", err)
		}
		h := cas.Sum(p[4+32:])
		copy(p[4:], h[:])
		if _, err := Restore(p, keep); err != nil && !errors.Is(err, cas.ErrCorrupt) &&
			!errors.Is(err, cas.ErrNewer) {
			t.Fatalf("error of no kind: %v", err)
		}
	}
}
