package volume

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
)

func (m *machine) exported(name, at string, serving bool) *control.Exported {
	m.t.Helper()
	e, err := m.Export(context.Background(), name, at, serving)
	if err != nil || len(e.Skipped) > 0 {
		m.t.Fatalf("export %s: %+v, %v", at, e, err)
	}
	return e
}

// objects are the data and meta objects that the names of writers need.
func (c *cloud) objects(w string) map[record.ID]bool {
	c.t.Helper()
	all := map[record.ID]bool{}
	for key, p := range c.heads(w) {
		id, _ := record.ParseHead(key)
		h, err := record.DecodeHead(id, p)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range h.Tail {
			if e.File != nil {
				for _, id := range e.File.Deps {
					all[id] = true
				}
			}
		}
	}
	return all
}

// What is exported is a run of its own, which any machine pulls and exports again; for serving it needs no
// object of others.
func TestExport(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	first, second := bytesOf(1, 200<<10), bytesOf(2, 200<<10)
	a.put("runs/x/1/f", first)
	a.put("runs/x/2/f", second)
	a.put("runs/x/2/note", []byte("n"))
	a.published("")
	if e := a.exported("base", "runs/x/1", false); e.Names != 2 || e.Bytes > 100<<10 {
		t.Errorf("%+v", e)
	}
	b.pulled("runs/base")
	b.same("runs/base/1/f", first)
	e := b.exported("base", "runs/x/2", true)
	if e.Names != 3 || e.Removed != 2 || e.Bytes < int64(len(second))/2 {
		t.Errorf("%+v", e)
	}
	others := c.objects("a")
	for id := range c.objects("@exports") {
		if others[id] {
			t.Errorf("it needs %s of others", id)
		}
	}
	if e := b.exported("base", "runs/x/2", false); e.Names != 3 || e.Removed != 0 {
		t.Errorf("again: %+v", e)
	}
	c.collect(0)
	d := c.join("d")
	d.pulled("runs/base")
	d.same("runs/base/2/f", second)
	d.same("runs/base/2/note", []byte("n"))
	d.conflictsAre()
	if _, err := d.Deleted(context.Background(), "runs/base"); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct {
		name, at string
		want     error
	}{{"x", "runs/x/1", unix.EEXIST}, {"a/b", "runs/x", unix.EINVAL}, {"", "runs/x", unix.EINVAL},
		{"..", "runs/x", unix.EINVAL}, {"n", "runs", unix.EINVAL}, {"n", "elsewhere", unix.EINVAL},
		{"n", "runs/none", unix.ENOENT}} {
		if _, err := a.Export(context.Background(), bad.name, bad.at, false); !errors.Is(err, bad.want) {
			t.Errorf("%q as %q: %v", bad.at, bad.name, err)
		}
	}
	if !strings.HasPrefix(record.HeadKey(record.ExportsWriter), "heads/@exports") {
		t.Error("no such head")
	}
}
