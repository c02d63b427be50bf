package reuse

import (
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
)

const mb = 1 << 20

// The aim: the same base model from a second machine takes at most 0.5 % of its bytes and 40 requests.
func TestSameModel(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two := join(t, b, 1), join(t, b, 2)
	model := tensorsOf(1, 24, 4*mb)
	first, _ := one.push("runs/base/1/model", one.save("a", model...))
	one.index()
	b.reset()
	e, res := two.push("runs/other/1/model", two.save("a", model...))
	bytes := b.got + b.put
	if size := float64(e.File.Size); b.requests > 40 || float64(bytes) > 0.005*size || res.Bytes > 0 {
		t.Errorf("%d requests, %d bytes (%.3f %%), %d put: %v", b.requests, bytes, 100*float64(bytes)/size,
			res.Bytes, b.keys)
	}
	t.Logf("%d MB: %d requests, %d bytes", e.File.Size>>20, b.requests, bytes)
	if e.File.Plan != first.File.Plan {
		t.Error("another plan")
	}
	readable(t, b, e)
	// The model that was published first may go.
	one.remove("runs/base/1/model")
	one.collect()
	readable(t, b, e)
}

// Of a file that shares some tensors, the others are put.
func TestSharedTensors(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two := join(t, b, 1), join(t, b, 2)
	one.push("runs/base/1/model", one.save("a", tensorsOf(1, 24, 2*mb)...))
	one.index()
	f := two.save("a", append(tensorsOf(1, 22, 2*mb), tensorsOf(100, 2, 2*mb)...)...)
	b.reset()
	e, res := two.push("runs/tuned/1/model", f)
	if res.Bytes < 4*mb || res.Bytes > 4*mb+64<<10 || b.requests > 40 {
		t.Errorf("%d bytes put, %d requests: %v", res.Bytes, b.requests, b.keys)
	}
	readable(t, b, e)
	// What was learned stays known.
	b.reset()
	f = two.save("b", append(tensorsOf(1, 22, 2*mb), tensorsOf(110, 2, 2*mb)...)...)
	_, res = two.push("runs/tuned/2/model", f)
	if res.Bytes > 4*mb+64<<10 || b.asked("get d/") > 0 {
		t.Errorf("%d bytes put: %v", res.Bytes, b.keys)
	}
}

// Nothing that is there is asked for what has a version before of this store, or is small.
func TestNotAsked(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two := join(t, b, 1), join(t, b, 2)
	one.push("runs/base/1/model", one.save("a", tensorsOf(1, 4, 2*mb)...))
	one.index()
	small, pushed := two.save("a", tensorsOf(50, 100, 10<<10)...), two.save("a", tensorsOf(70, 4, mb)...)
	two.push("runs/x/1/y", pushed)
	for name, f := range map[string]*saved{"small": small, "pushed": pushed} {
		b.reset()
		two.push("runs/other/1/"+name, f)
		if b.asked("get heads/@index")+b.asked("get i/") > 0 {
			t.Errorf("%s: %v", name, b.keys)
		}
	}
}

// A version before that another writer published is relied on without an index.
func TestBefore(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two := join(t, b, 1), join(t, b, 2)
	first, _ := one.push("runs/a/1/model", one.save("a", tensorsOf(1, 8, 2*mb)...))
	b.reset()
	f := two.save("a", append(tensorsOf(1, 7, 2*mb), tensorsOf(100, 1, 2*mb)...)...)
	e, res := two.push("runs/a/2/model", f, first.File)
	if res.Bytes < 2*mb || res.Bytes > 2*mb+64<<10 {
		t.Errorf("%d bytes put: %v", res.Bytes, b.keys)
	}
	readable(t, b, e)
}

// collect deletes at once what nothing refers to.
func (m *machine) collect() sweep.Stats {
	m.t.Helper()
	stats, err := sweep.Collect(m.t.Context(), m.b, sweep.Options{Remote: remote, Collector: "test.00000001",
		Now: time.Now})
	if err != nil {
		m.t.Fatal(err)
	}
	return stats
}

// What an index names that was condemned, or deleted, is not relied on: as a whole, nor record by record.
// Nothing is lost by an index that is out of date.
func TestCondemned(t *testing.T) {
	for name, f := range map[string]func(m *machine) *saved{
		"whole": func(m *machine) *saved { return m.save("a", tensorsOf(1, 8, 2*mb)...) },
		"some":  func(m *machine) *saved { return m.save("b", tensorsOf(1, 8, 2*mb)...) },
	} {
		t.Run(name, func(t *testing.T) {
			b := &counting{Mem: &bucket.Mem{}}
			one, two := join(t, b, 1), join(t, b, 2)
			one.push("runs/base/1/model", one.save("a", tensorsOf(1, 8, 2*mb)...))
			one.index()
			one.remove("runs/base/1/model")
			deleted := b.has(t, "d/")
			if stats := one.collect(); stats.Deleted == 0 || len(b.has(t, "d/")) > 0 {
				t.Fatalf("%+v", stats)
			}
			if len(b.has(t, "i/")) == 0 {
				t.Fatal("the index was deleted")
			}
			e, res := two.push("runs/other/1/model", f(two))
			if res.Bytes < 16*mb {
				t.Errorf("%d bytes put", res.Bytes)
			}
			for _, id := range e.File.Deps {
				for _, key := range deleted {
					if record.ClassData.Key(id) == key {
						t.Errorf("%s is relied on", key)
					}
				}
			}
			readable(t, b, e)
		})
	}
}

// An epoch condemns what is still there: that is not relied on either.
func TestCondemnedAndThere(t *testing.T) {
	for _, format := range []string{"a", "b"} {
		b := &counting{Mem: &bucket.Mem{}}
		one, two := join(t, b, 1), join(t, b, 2)
		one.push("runs/base/1/model", one.save("a", tensorsOf(1, 8, 2*mb)...))
		one.index()
		condemn(t, b, 1)
		e, res := two.push("runs/other/1/model", two.save(format, tensorsOf(1, 8, 2*mb)...))
		if res.Bytes < 16*mb {
			t.Errorf("%s: %d bytes put", format, res.Bytes)
		}
		readable(t, b, e)
	}
}

// condemn publishes an epoch with all data objects.
func condemn(t *testing.T, b *counting, n uint32) {
	t.Helper()
	e := &record.Epoch{Remote: remote, Number: n, Collector: "test.00000001"}
	for _, key := range b.has(t, "d/") {
		c, id, _ := record.ParseObject(key)
		e.Objects = append(e.Objects, record.Key{Class: c, ID: id})
	}
	p, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	state, err := (&record.State{Remote: remote, Epoch: n}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for key, p := range map[string][]byte{record.EpochKey(n): p, record.StateKey: state} {
		if _, err := b.Put(t.Context(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
			t.Fatal(err)
		}
	}
}

// An index that is older than the epochs that are kept is not asked: what it names may be gone, and nobody
// says so.
func TestIndexTooOld(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two := join(t, b, 1), join(t, b, 2)
	one.push("runs/base/1/model", one.save("a", tensorsOf(1, 8, 2*mb)...))
	one.index()
	one.remove("runs/base/1/model")
	one.collect()
	one.push("runs/base/2/model", one.save("a", tensorsOf(90, 1, 2*mb)...))
	condemn(t, b, 2)
	if err := b.Delete(t.Context(), []string{record.EpochKey(1)}); err != nil {
		t.Fatal(err)
	}
	b.reset()
	e, res := two.push("runs/other/1/model", two.save("a", tensorsOf(1, 8, 2*mb)...))
	if res.Bytes < 16*mb || b.asked("get i/") > 0 {
		t.Errorf("%d bytes put: %v", res.Bytes, b.keys)
	}
	readable(t, b, e)
}

// A plan that says of its objects what they do not have is not relied on, and neither is one of which an
// object is gone that nobody condemned.
func TestPlanDoubted(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, b *counting){
		"an object is gone": func(t *testing.T, b *counting) {
			if err := b.Delete(t.Context(), b.has(t, "d/")[:1]); err != nil {
				t.Fatal(err)
			}
		},
		"an object is another": func(t *testing.T, b *counting) {
			keys := b.has(t, "d/")
			p, _, err := bucket.Read(t.Context(), b, keys[0], record.MaxObject, "")
			if err == nil {
				p[len(p)-1-160] ^= 1 // of the footer
				_, err = b.Mem.Put(t.Context(), keys[0], bucket.Bytes(p), bucket.Cond{})
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"the plan is gone": func(t *testing.T, b *counting) {
			if err := b.Delete(t.Context(), b.has(t, "m/")); err != nil {
				t.Fatal(err)
			}
		},
		"the shards are gone": func(t *testing.T, b *counting) {
			if err := b.Delete(t.Context(), b.has(t, "i/")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &counting{Mem: &bucket.Mem{}}
			one, two := join(t, b, 1), join(t, b, 2)
			one.push("runs/base/1/model", one.save("a", tensorsOf(1, 8, 2*mb)...))
			one.index()
			spoil(t, b)
			e, res := two.push("runs/other/1/model", two.save("a", tensorsOf(1, 8, 2*mb)...))
			if res.Bytes < 16*mb {
				t.Errorf("%d bytes put", res.Bytes)
			}
			readable(t, b, e)
		})
	}
}
