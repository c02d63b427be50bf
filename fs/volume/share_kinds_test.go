package volume

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// kinds makes names of each kind, and otherKinds puts another kind in the place of each.
func kinds(m *machine) {
	t := m.test.(*testing.T)
	m.put("runs/x/1/model.safetensors", modelFile(t, "ABC"))
	m.put("runs/x/1/metrics.json", []byte(`{"loss": 0.25}`))
	m.put("runs/x/1/sub/deep/f", []byte("deep"))
	m.attr("runs/x/1", "user.metric.acc", "0.5")
	m.put("runs/x/2/part", bytes.Repeat([]byte("part"), 5000))
	m.put("runs/x/2/small", []byte("small"))
	m.put("runs/x/3/inner/a", []byte("a"))
	m.put("runs/x/3/inner/b/c", []byte("c"))
	m.mkdir("runs/x/3/empty")
	m.symlink("1", "runs/x/latest")
}

func otherKinds(m *machine) {
	t := m.test.(*testing.T)
	m.removeAll("runs/x/1")
	m.put("runs/x/1", modelFile(t, "DEF"))
	m.unlink("runs/x/2/part")
	m.put("runs/x/2/part/f", bytes.Repeat([]byte("f"), 5000))
	m.put("runs/x/2/part/g/h", []byte("h"))
	m.attr("runs/x/2/part", "user.a", "a")
	m.unlink("runs/x/2/small")
	m.mkdir("runs/x/2/small")
	m.removeAll("runs/x/3/inner")
	m.symlink("../2", "runs/x/3/inner")
	m.rmdir("runs/x/3/empty")
	m.put("runs/x/3/empty", nil)
	m.unlink("runs/x/latest")
	m.put("runs/x/latest/f", []byte("f"))
}

// removeAll removes a folder with all that is in it, as rm -r does.
func (m *machine) removeAll(p string) {
	m.t.Helper()
	for _, name := range m.names(p) {
		n := m.find(p + "/" + name)
		dir := n.IsDir()
		m.forget(n)
		if dir {
			m.removeAll(p + "/" + name)
		} else {
			m.unlink(p + "/" + name)
		}
	}
	m.rmdir(p)
}

// alike fails unless machines show the same, and none has anything to publish.
func alike(t *testing.T, all ...*machine) {
	t.Helper()
	for _, m := range all {
		looks(m)
	}
	want := all[0].view()
	for i, m := range all {
		if p := m.published(""); p.Names+p.Removed > 0 {
			t.Errorf("machine %d published %+v", i, p)
		}
		has := m.view()
		for p := range union(want, has) {
			if want[p] != has[p] {
				t.Errorf("%s: machine %d shows %v, the first %v", p, i, has[p], want[p])
			}
		}
	}
}

// What another machine put in the place of a folder is here as well, and so is a folder in the place of a
// file, however it comes.
func TestOtherKind(t *testing.T) {
	for name, comes := range map[string]struct{ first, then func(*machine) }{
		"looks": {looks, looks}, "pulls": {pulls, pulls}, "pulls, then looks": {pulls, looks},
		"looks, then pulls": {looks, pulls},
		"pulls after it began again": {pulls, func(b *machine) {
			b.again()
			pulls(b)
		}},
		"pulls a part": {pulls, func(b *machine) {
			b.again()
			for _, at := range []string{"runs/x/1", "runs/x/2/part", "runs/x/2/small", "runs/x/3", "runs/x"} {
				b.pulled(at)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			a, b := c.join("a"), c.join("b")
			kinds(a)
			a.published("")
			comes.first(b)
			otherKinds(a)
			a.published("")
			comes.then(b)
			d := c.join("d")
			alike(t, a, b, d)
			b.conflictsAre()
			for _, m := range []*machine{a, b, d} { // and back
				m.again()
			}
			for _, p := range []string{"runs/x/2", "runs/x/3", "runs/x/latest"} {
				b.removeAll(p)
			}
			b.unlink("runs/x/1")
			kinds(b)
			b.published("")
			comes.then(a)
			alike(t, b, a, d)
			a.conflictsAre()
		})
	}
}

// A folder that others replaced, and that holds something of this machine, stays. Once that is published the
// folder is there for all, and what replaced it is another version of its name.
func TestOtherKindBesideOwn(t *testing.T) {
	const dir, own, file = "runs/x/1", "runs/x/1/sub/own.bin", "runs/x/1/model.safetensors"
	for name, fetches := range map[string]bool{"seen": true, "unseen": false} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			a, b := c.join("a"), c.join("b")
			a.put(file, modelFile(t, "ABC"))
			a.put("runs/x/1/sub/f", []byte("f"))
			a.attr(dir, "user.a", "a")
			a.published("")
			pulls(b)
			a.removeAll(dir)
			a.write(dir, []byte("a file"))
			a.published("")
			b.put(own, []byte("own"))
			if fetches {
				looks(b)
				b.remoteIs(dir, "pending")
				if got := b.names(dir); !slices.Equal(got, []string{"sub"}) {
					t.Errorf("%q", got)
				}
				b.pulled("", dir)
				b.same(own, []byte("own"))
			}
			b.published("")
			looks(b)
			if p := b.published(""); p.Names > 0 == fetches { // it publishes the folder's attributes
				t.Errorf("%+v", p)
			}
			alike(t, b, a, c.join("d"))
			for _, m := range []*machine{a, b} {
				m.same(own, []byte("own"))
				m.conflictsAre(dir)
				m.inConflict(1)
				m.remoteIs(dir, "conflict")
				m.same(".ckptfs/conflicts/runs/x/1@"+a.writer(), []byte("a file"))
			}
			// Who has seen both says which is to stay.
			a.removeAll(dir)
			a.write(dir, []byte("the file"))
			a.published("")
			alike(t, a, b)
			b.conflictsAre()
			b.same(dir, []byte("the file"))
		})
	}
}

// A version of a name that was changed here is not lost to a folder that others made of it.
func TestOtherKindOfChanged(t *testing.T) {
	const p = "runs/x/1/part"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, []byte("first"))
	a.published("")
	pulls(b)
	a.unlink(p)
	a.put(p+"/f", []byte("f"))
	a.published("")
	b.write(p, []byte("changed"))
	b.pulled("", p, p+"/f")
	b.same(p, []byte("changed"))
	b.published("")
	alike(t, a, b, c.join("d"))
	b.same(p+"/f", []byte("f"))
	b.conflictsAre(p)
	a.same(".ckptfs/conflicts/"+p+"@"+b.writer(), []byte("changed"))
}

// What a program has open in a folder, or as the file, that others replaced is not taken from it.
func TestOtherKindWhileOpen(t *testing.T) {
	const p, q = "runs/x/1/sub/open.bin", "runs/x/1/file"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, []byte("first"))
	a.put(q, []byte("first"))
	a.published("")
	pulls(b)
	hs := []*Handle{b.open(p, unix.O_WRONLY), b.open(q, unix.O_WRONLY)}
	a.removeAll("runs/x/1/sub")
	a.write("runs/x/1/sub", []byte("sub"))
	a.unlink(q)
	a.put(q+"/f", []byte("f"))
	a.published("")
	looks(b)
	for _, h := range hs {
		b.writeAt(h, []byte("second"), 0)
		b.release(h)
	}
	b.same(p, []byte("second"))
	b.same(q, []byte("second"))
	b.published("")
	alike(t, b, a)
	a.same(p, []byte("second"))
	a.same(".ckptfs/conflicts/runs/x/1/sub@"+a.writer(), []byte("sub"))
	b.same(q+"/f", []byte("f"))
	b.same(".ckptfs/conflicts/"+q+"@"+b.writer(), []byte("second"))

	h := b.open(q+"/f", unix.O_RDONLY) // what is open to be read keeps its bytes
	defer b.release(h)
	a.removeAll(q)
	a.write(q, []byte("third"))
	a.published("")
	looks(b)
	b.same(q, []byte("third"))
	if got, err := b.readHandle(h); err != nil || string(got) != "f" {
		t.Errorf("%q, %v", got, err)
	}
}

// What is not shared keeps a folder that others replaced, and a push names that.
func TestOtherKindBesideUnshared(t *testing.T) {
	const dir = "runs/x/1/sub"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(dir+"/metrics.json", []byte(`{"loss": 0.25}`))
	a.published("")
	pulls(b)
	b.put(dir+"/.note", []byte("mine"))
	a.removeAll(dir)
	a.write(dir, []byte("a file"))
	a.published("")
	looks(b)
	for range 2 {
		if p := b.published("", dir); p.Names > 0 {
			t.Errorf("%+v", p)
		}
		b.pulled("", dir)
		b.same(dir+"/.note", []byte("mine"))
		b.again()
	}
	looks(b)
	b.published("", dir)
	if w := b.statusOf().Waiting; len(w) != 1 || w[0].Path != dir {
		t.Errorf("%+v", w)
	}
	b.unlink(dir + "/.note")
	alike(t, a, b)
	b.conflictsAre()
}

// A push that is to make no conflict makes none of a folder and a file.
func TestOtherKindRefused(t *testing.T) {
	for name, does := range map[string]func(a, b *machine){
		"file": func(a, b *machine) {
			a.put("runs/x/1/f/g", []byte("g"))
			b.put("runs/x/1/f", []byte("f"))
		},
		"folder": func(a, b *machine) {
			a.put("runs/x/1/f", []byte("f"))
			b.put("runs/x/1/f/g/h", []byte("g"))
		},
		"in a folder": func(a, b *machine) {
			a.put("runs/x/1/f/g", []byte("g"))
			a.published("")
			pulls(b)
			a.removeAll("runs/x/1/f")
			a.write("runs/x/1/f", []byte("f"))
			b.put("runs/x/1/f/h", []byte("h"))
		},
		"of its own": func(_, b *machine) {
			b.put("runs/x/1/f/g", []byte("g"))
			b.published("")
			b.removeAll("runs/x/1/f")
			b.write("runs/x/1/f", []byte("f"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			a, b := c.join("a"), c.join("b")
			does(a, b)
			a.published("")
			pushed := func() error {
				_, err := b.Push(context.Background(), "", control.PushOptions{NoConflict: true}, nil)
				return err
			}
			var refused *control.Error
			switch err := pushed(); {
			case name == "of its own" && err != nil:
				t.Error(err)
			case name == "of its own":
			case !errors.As(err, &refused) || refused.Code != control.CodeConflict ||
				!strings.Contains(refused.Message, "runs/x/1/f"):
				t.Error(err)
			default:
				b.published("")
				b.conflictsAre("runs/x/1/f")
			}
			b.put("runs/x/1/other", []byte("what is there already refuses nothing"))
			if err := pushed(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A folder that was removed here does not come back for what others have not seen removed in it.
func TestRemovedFolderStaysGone(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.mkdir("runs/x/1/a/f")
	a.published("")
	looks(b)
	a.removeAll("runs/x/1/a")
	a.put("runs/x/1/a", []byte("a"))
	a.published("")
	b.removeAll("runs/x/1")
	a.removeAll("runs/x/1")
	b.published("")
	a.pulled("", "runs/x/1", "runs/x/1/a")
	if a.exists("runs/x/1") {
		t.Error("the folder came back")
	}
	a.published("")
	b.pulled("")
	alike(t, a, b)
}
