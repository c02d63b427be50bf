package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// refuses expects that a call was told to copy.
func (m *machine) refuses(what string, err error) {
	m.t.Helper()
	if !errors.Is(err, unix.EXDEV) {
		m.t.Errorf("%s: %v", what, err)
	}
}

// copied copies a file as cp does.
func (m *machine) copied(from, to string) {
	m.t.Helper()
	h := m.open(to, unix.O_WRONLY|unix.O_CREAT)
	m.copyTo(from, h, 1<<30)
	m.release(h)
}

// A file that a program moved, linked or copied to where nothing is shared keeps its bytes, whatever becomes
// of the published name.
func TestStubLeavesRuns(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "keep/model.safetensors"
	data := modelFile(t, "ABC")
	for name, do := range map[string]func(a, b *machine){
		"renamed": func(a, b *machine) {
			b.refuses("rename", b.tryRename(p, q, 0))
			b.copied(p, q)
			b.unlink(p)
			b.published("")
		},
		"folder": func(a, b *machine) {
			b.refuses("rename of the folder", b.tryRename("runs/x/1", "keep/1", 0))
			b.refuses("rename to a dot name", b.tryRename("runs/x/1", "runs/x/.old", 0))
			b.copied(p, q)
		},
		"linked": func(a, b *machine) {
			n, dir := b.find(p), b.find("keep")
			_, err := b.Link(n, dir, "model.safetensors")
			b.forget(n)
			b.forget(dir)
			b.refuses("link", err)
			b.copied(p, q)
			a.unlink(p)
			a.published("")
			b.fetched()
		},
		"copied": func(a, b *machine) {
			b.copied(p, q)
			a.unlink(p)
			a.published("")
			b.fetched()
		},
		"own, linked, dropped": func(a, b *machine) {
			b.pulled("")
			b.link(p, q)
			b.published("")
			b.dropped(p, p)
			b.prune(control.PruneOptions{})
			b.unlink(p)
			b.published("")
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := shared(t, p, data)
			b.mkdir("keep")
			do(a, b)
			a.fetched()
			a.c.collect(0)
			b.again()
			h := b.open(q, unix.O_RDONLY)
			defer b.release(h)
			got := make([]byte, len(data))
			if n, err := h.Read(got, 0); err != nil || n != len(data) || string(got) != string(data) {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}

// One content of which two names have plans of their own: what one name needs going does not take the other.
func TestTwoPlans(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/y/1/model.safetensors"
	data := modelFile(t, "ABC")
	c := newCloud(t)
	a, d, b := c.join("a"), c.join("d"), c.join("b")
	a.put(p, data)
	a.published("")
	d.put(q, data)
	d.published("")
	b.fetched()
	b.stub(p, true)
	b.stub(q, true)
	b.same(q, data)
	d.unlink(q)
	d.published("")
	c.collect(0)
	b.fetched()
	_ = os.RemoveAll(filepath.Join(b.dir, "cache"))
	b.same(p, data)
	b.again()
	b.same(p, data)
}
