package volume

import (
	"os"
	"testing"
)

// What a killed pull brought and did not note is replaced by what others published since, also if a
// pull or a look comes first.
func TestKilledBeforeNotedThenLooked(t *testing.T) {
	for name, look := range map[string]func(b *machine){
		"pull":  func(b *machine) { b.pulled("") },
		"fetch": func(b *machine) { b.fetched(); b.names("runs/x/1") },
	} {
		t.Run(name, func(t *testing.T) { killedBeforeNoted(t, look) })
	}
}

// A crash long after a pull takes nothing of what the pull noted: what a program did since is done to that.
func TestKilledLongAfterPull(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	for name, look := range map[string]func(b *machine){
		"pull":  func(b *machine) { b.pulled("") },
		"fetch": func(b *machine) { b.fetched(); b.stub(p, true); b.stub(q, true) },
	} {
		c := newCloud(t)
		a, b := c.join("a"), c.join("b")
		a.put(p, modelFile(t, "ABC"))
		a.put(q, modelFile(t, "DEF"))
		a.published("")
		look(b)
		b.put(p, modelFile(t, "own"))
		b.unlink(q)
		known, err := os.ReadFile(b.at(remoteState))
		if err != nil {
			t.Fatal(err)
		}
		b.close()
		if err := os.WriteFile(b.at(remoteState), known, 0o600); err != nil {
			t.Fatal(err)
		}
		b.again()
		b.published("")
		b.fetched()
		if b.names("runs/x/1"); b.exists(q) {
			t.Errorf("%s: what was removed is there again", name)
		}
		a.pulled("")
		b.conflictsAre()
		a.same(p, modelFile(t, "own"))
	}
}

// A link that was changed here is not removed because others removed what it was.
func TestChangedLinkStays(t *testing.T) {
	const p = "runs/x/latest"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("1"))
	a.symlink("1", p)
	a.published("")
	b.pulled("")
	b.unlink(p)
	b.symlink("2", p)
	a.unlink(p)
	a.published("")
	b.fetched()
	if !b.exists(p) {
		t.Error("it was removed")
	}
}

// What was about to come, never did and is gone by now does not make what a program makes of the name that.
func TestNeverCame(t *testing.T) {
	const p, l = "runs/x/2", "runs/x/latest"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("1"))
	a.published("")
	b.pulled("")
	b.killed(func() {
		a.put(p+"/f", []byte("2"))
		a.symlink("2", l)
		a.published("")
		b.pulled("")
	})
	b.rig.close()
	if err := os.RemoveAll(b.at("tree/" + p)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.at("tree/" + l)); err != nil {
		t.Fatal(err)
	}
	b.again()
	a.unlink(p + "/f")
	a.rmdir(p)
	a.unlink(l)
	a.published("")
	b.mkdir(p)
	b.symlink("1", l)
	b.fetched()
	b.names("runs/x")
	if !b.exists(p) || !b.exists(l) {
		t.Errorf("what a program made is gone: %q", b.names("runs/x"))
	}
}

func (m *machine) symlink(target, p string) {
	m.t.Helper()
	dir, name := m.dirOf(p)
	defer m.forget(dir)
	n, _, err := m.Symlink(dir, name, target, m.me)
	if err != nil {
		m.t.Fatal(err)
	}
	m.forget(n)
}

func (m *machine) rmdir(p string) {
	m.t.Helper()
	dir, name := m.dirOf(p)
	defer m.forget(dir)
	if err := m.Rmdir(dir, name); err != nil {
		m.t.Fatal(err)
	}
}

// What a killed pull left keeps no name from appearing where nobody pulls or pushes.
func TestLeftIsCleared(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, modelFile(t, "ABC"))
	a.published("")
	b.pulled("")
	a.put(p, modelFile(t, "ABD"))
	a.published("")
	b.killedPull(p, false)
	a.put(p, modelFile(t, "XYZ"))
	a.published("")
	b.fetched()
	b.names("runs/x/1")
	b.fetched()
	b.same(p, modelFile(t, "XYZ"))
}
