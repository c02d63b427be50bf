package volume

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
	"ckptfs/fs/control"
)

// heads are the bytes of the heads of writers whose names begin so.
func (c *cloud) heads(name string) map[string][]byte {
	c.t.Helper()
	all := map[string][]byte{}
	for info := range c.mu.List(context.Background(), record.Heads+name, "") {
		p, _, err := bucket.Read(context.Background(), &c.mu, info.Key, record.MaxHead, "")
		if err != nil {
			c.t.Fatal(err)
		}
		all[info.Key] = p
	}
	return all
}

func (m *machine) repaired(want int) *control.RemoteRepaired {
	m.t.Helper()
	r, err := m.RepairRemote(context.Background(), nil, nil)
	if err != nil || len(r.Heads) != want || len(r.Lost) > 0 {
		m.t.Fatalf("%+v, %v", r, err)
	}
	return r
}

// A head that was put back by hand stops its writer, which says what to do; what others read before stays
// visible to them. Either machine repairs it, and nothing is lost.
func TestHeadPutBack(t *testing.T) {
	for _, who := range []string{"a", "b", "a, after a start"} {
		t.Run(who, func(t *testing.T) {
			c := newCloud(t)
			a, b := c.join("a"), c.join("b")
			a.put("runs/x/1/f", []byte("one"))
			a.published("")
			early := c.heads("a")
			a.put("runs/x/2/f", []byte("two"))
			a.published("")
			b.Fetch(context.Background())
			for key, p := range early {
				if _, err := c.mu.Put(context.Background(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
					t.Fatal(err)
				}
			}
			a.again()
			a.put("runs/x/3/f", []byte("three"))
			if _, err := a.Push(context.Background(), "", control.PushOptions{}, nil); !errors.Is(err,
				writer.ErrRolledBack) ||
				!strings.Contains(err.Error(), "repair --remote") {
				t.Fatalf("pushed: %v", err)
			}
			b.pulled("")
			b.same("runs/x/2/f", []byte("two"))
			if f, err := b.Fetch(context.Background()); err != nil || len(f.Problems) != 1 {
				t.Errorf("%+v, %v", f, err)
			}
			switch who {
			case "a, after a start":
				a.again()
				a.repaired(1)
			case "a":
				a.repaired(1)
			case "b":
				b.repaired(1)
			}
			b.repaired(0)
			a.published("")
			b.pulled("")
			b.same("runs/x/3/f", []byte("three"))
			d := c.join("d")
			d.pulled("")
			for p, want := range map[string]string{"runs/x/1/f": "one", "runs/x/2/f": "two",
				"runs/x/3/f": "three"} {
				d.same(p, []byte(want))
			}
			if f, err := b.Fetch(context.Background()); err != nil || len(f.Problems) != 0 {
				t.Errorf("%+v, %v", f, err)
			}
			if len(c.heads("a")) != 1 {
				t.Error("the writer registered again")
			}
		})
	}
}

// What a collector condemned while a head was missing, and did not delete yet, is published again by the
// machine that repairs.
func TestRepairRevives(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	big := bytesOf(3, 300<<10)
	a.put("runs/x/1/f", big)
	a.published("")
	b.Fetch(context.Background())
	var e record.Epoch
	for info := range c.mu.List(context.Background(), "", "") {
		if class, id, ok := record.ParseObject(info.Key); ok {
			e.Objects = append(e.Objects, record.Key{Class: class, ID: id})
		}
	}
	e.Remote, e.Number, e.Collector, e.Time = c.id.ID, 1, "c.00000000", time.Now().UnixNano()
	p, err := e.Encode()
	put := func(key string, p []byte) {
		if _, err := c.mu.Put(context.Background(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	put(record.EpochKey(1), p)
	if p, err = (&record.State{Remote: c.id.ID, Epoch: 1}).Encode(); err != nil {
		t.Fatal(err)
	}
	put(record.StateKey, p)
	for key := range c.heads("a") {
		c.mu.Delete(context.Background(), []string{key})
	}
	if r := b.repaired(1); r.Revived != 1 {
		t.Errorf("%+v", r)
	}
	c.collect(0)
	d := c.join("d")
	d.pulled("")
	d.same("runs/x/1/f", big)
	a.put("runs/x/2/f", []byte("two")) // its head has another commit now
	a.published("")
	d.pulled("")
	d.same("runs/x/2/f", []byte("two"))
	d.conflictsAre()
}

// What was repaired appears on the machine that repaired it.
func TestRepairedAppears(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	if b.exists("runs/x") {
		t.Fatal("it is there already")
	}
	a.put("runs/x/1/f", bytesOf(3, 300<<10))
	a.published("")
	for key := range c.heads("a") {
		if err := c.mu.Delete(context.Background(), []string{key}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := b.RepairRemote(context.Background(), []string{a.writer()}, nil)
	if err != nil || len(r.Heads) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := os.Stat(b.at("tree/runs")); err != nil { // no lookup looks for it
		t.Error(err)
	}
	b.same("runs/x/1/f", bytesOf(3, 300<<10))
}
