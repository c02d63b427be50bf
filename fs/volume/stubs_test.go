package volume

import (
	"bytes"
	"context"
	"testing"

	"ckptfs/fs/tree"
)

// fetched has a machine see what others published.
func (m *machine) fetched() {
	m.t.Helper()
	if _, err := m.Fetch(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

// stub fails unless a file is one whose bytes the remote has, or is none.
func (m *machine) stub(p string, want bool) {
	m.t.Helper()
	n := m.find(p)
	defer m.forget(n)
	f := n.File()
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		m.t.Fatal(err)
	}
	if is := f.StateLocked().Record; is.Remote != want {
		m.t.Errorf("%s: %+v, want a stub: %v", p, is, want)
	}
}

// names are what a folder lists.
func (m *machine) names(p string) (all []string) {
	m.t.Helper()
	n := m.find(p)
	defer m.forget(n)
	d, err := n.OpenDir()
	if err != nil {
		m.t.Fatal(err)
	}
	defer d.Release()
	list, err := m.Volume.Entries(tree.Caller{}, d, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range list {
		if e.Name != "." && e.Name != ".." {
			all = append(all, e.Name)
		}
	}
	return all
}

// What one machine published appears in the mount of another, which reads it.
func TestStubsAppear(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	files := map[string][]byte{
		"runs/x/1/model.safetensors": modelFile(t, "ABC"),
		"runs/x/1/metrics.json":      []byte(`{"loss": 0.25}`),
		"runs/x/1/empty":             nil,
		"runs/x/1/notes.txt":         bytes.Repeat([]byte("plain "), 5000),
		"runs/x/2/model.safetensors": modelFile(t, "ABD"),
	}
	for p, data := range files {
		a.put(p, data)
	}
	a.published("")
	b.fetched()
	for range 2 {
		for p, data := range files {
			b.stub(p, len(data) > 2048)
			b.same(p, data)
		}
		b.remoteIs("runs/x/1/model.safetensors", "remote")
		b.remoteIs("runs/x/1/metrics.json", "pushed")
		if got := b.names("runs/x"); len(got) != 2 {
			t.Errorf("%q", got)
		}
		b.again()
	}
	if p := b.published(""); p.Names != 0 {
		t.Errorf("what appeared is published: %+v", p)
	}
	if c := b.check(); c.Damaged != 0 {
		t.Errorf("%+v", c)
	}
}
