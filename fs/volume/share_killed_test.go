package volume

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/state"
)

// killed has a machine do something, and leaves its state of the remote as it was when the kernel was told of
// the last name: what the machine knew of that since is lost.
func (m *machine) killed(do func()) {
	m.t.Helper()
	var mu sync.Mutex
	var known []byte
	m.tells(func(string) {
		p, err := os.ReadFile(m.at(remoteState))
		mu.Lock()
		defer mu.Unlock()
		if known = p; err != nil {
			m.t.Error(err)
		}
	})
	do()
	m.close()
	mu.Lock()
	defer mu.Unlock()
	if known == nil {
		m.t.Fatal("nothing was brought")
	}
	if err := os.WriteFile(m.at(remoteState), known, 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.again()
}

// A pull that is killed before it noted what it brought leaves nothing that is taken for a change made here:
// others may have published another version since.
func TestKilledBeforeNoted(t *testing.T) { killedBeforeNoted(t, func(*machine) {}) }

// killedBeforeNoted has a machine look after it was killed and others published another version, and before
// it publishes.
func killedBeforeNoted(t *testing.T, look func(b *machine)) {
	t.Helper()
	const p, q = "runs/x/1/model.safetensors", "runs/x/1/metrics.json"
	for _, had := range []bool{true, false} {
		c := newCloud(t)
		a, b := c.join("a"), c.join("b")
		save := func(contents string) {
			a.put(p, modelFile(t, contents))
			a.put(q, []byte(contents))
			a.published("")
		}
		save("ABC")
		if had {
			b.pulled("")
			save("ABD")
		}
		b.killed(func() { b.pulled("") })
		save("XYZ")
		look(b)
		if got := b.published(""); got.Names != 0 {
			t.Errorf("had %v: published, though nothing was changed: %+v", had, got)
		}
		for _, m := range []*machine{a, b} {
			m.pulled("")
			m.conflictsAre()
			m.same(p, modelFile(t, "XYZ"))
			m.same(q, []byte("XYZ"))
		}
	}
}

// So it is where a program has open what is replaced while it is looked at to be published.
func TestKilledBeforeNotedWhileOpen(t *testing.T) {
	killedBeforeNoted(t, func(b *machine) {
		b.fetched()
		for _, p := range []string{"runs/x/1/model.safetensors", "runs/x/1/metrics.json"} {
			h := b.openKnown(p, unix.O_RDONLY)
			b.test.Cleanup(func() { b.release(h) })
		}
	})
}

// What others removed since goes, too.
func TestKilledBeforeNotedAndRemoved(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.published("")
	b.killed(func() { b.pulled("") })
	a.unlink(p)
	a.published("")
	b.fetched()
	if b.exists(p) {
		t.Error("what others removed is there")
	}
	if got := b.published(""); got.Names != 0 || got.Removed != 0 {
		t.Errorf("published, though nothing was changed: %+v", got)
	}
	b.same(q, modelFile(t, "DEF"))
}

// What a program changes after that is a change of what it saw.
func TestKilledBeforeNotedAndChanged(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.published("")
	b.killed(func() { b.pulled("") })
	b.put(p, modelFile(t, "own"))
	b.unlink(q)
	b.published("")
	a.pulled("")
	a.same(p, modelFile(t, "own"))
	b.same(p, modelFile(t, "own"))
}

// A pull that is killed when it has noted what it is about to bring leaves what a program did as it is.
func TestKilledBeforeBrought(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/1/other.safetensors"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, modelFile(t, "ABC"))
	a.published("")
	b.pulled("")
	b.killed(func() {
		b.put("runs/x/1/own", modelFile(t, "own"))
		a.put(p, modelFile(t, "ABD"))
		a.put(q, modelFile(t, "DEF"))
		a.published("")
		b.pulled("")
	})
	b.rename("runs/x/1/own", p) // in place of what was brought
	b.unlink(q)
	b.put(q, modelFile(t, "also"))
	b.published("")
	for _, m := range []*machine{a, b} {
		m.pulled("")
		m.same(p, modelFile(t, "own"))
		m.same(q, modelFile(t, "also"))
	}
}

// A push that is killed when its commit was made, and before that is noted, undoes nothing that others have
// published since.
func TestKilledPushBeforeNoted(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	b.put(p, modelFile(t, "ABD"))
	h := b.hook("hint")
	var known []byte
	h.call = func() {
		var err error
		if known, err = os.ReadFile(b.at(remoteState)); err != nil {
			t.Error(err)
		}
	}
	b.published("")
	b.close()
	if err := os.WriteFile(b.at(remoteState), known, 0o600); err != nil {
		t.Fatal(err)
	}
	a.pulled("")
	a.put(p, modelFile(t, "XYZ"))
	a.published("")
	b.again()
	b.published("")
	for _, m := range []*machine{a, b} {
		m.pulled("")
		m.conflictsAre()
		m.same(p, modelFile(t, "XYZ"))
	}
}

// ofRemote calls f with what a machine knows of its remote, while the store is not open.
func (m *machine) ofRemote(f func(db *state.DB)) {
	m.t.Helper()
	m.close()
	db, err := state.Open(m.at(remoteState), m.id)
	if err != nil {
		m.t.Fatal(err)
	}
	f(db)
	if err := db.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.again()
}

// A look that is killed when it put aside what others removed, and before it removed that, leaves nothing
// that somebody has to look at, unless a program changed it.
func TestKilledWhileRemoving(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/1/metrics.json"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, modelFile(t, "ABC"))
	a.put(q, []byte("{}"))
	a.put("runs/x/1/more", []byte("more"))
	a.published("")
	b.pulled("")
	var left []string
	for i, at := range []string{p, q} {
		left = append(left, fmt.Sprintf("runs/x/1/.ckptfs-aside-%d", b.stat(at).Ino))
		cp := exec.Command("cp", "-a", b.at("tree/"+at), b.at(fmt.Sprint(i)))
		if out, err := cp.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	known := map[string][]byte{}
	b.ofRemote(func(db *state.DB) {
		for _, at := range []string{p, q} {
			var err error
			if known[at], err = db.Name(at); err != nil || known[at] == nil {
				t.Fatal(at, err)
			}
		}
	})
	a.unlink(p)
	a.unlink(q)
	a.published("")
	b.fetched()
	if b.exists(p) || b.exists(q) {
		t.Fatal("what others removed is there")
	}
	b.ofRemote(func(db *state.DB) {
		if err := db.SetNames(known); err != nil {
			t.Fatal(err)
		}
		for i := range left {
			if err := os.Rename(b.at(fmt.Sprint(i)), b.at("tree/"+left[i])); err != nil {
				t.Fatal(err)
			}
		}
	})
	b.write(left[1], []byte("own"))
	b.published("", left[1])
	b.pulled("", left[1])
	if b.exists(left[0]) || b.exists(p) || b.exists(q) {
		t.Errorf("%q", b.names("runs/x/1"))
	}
	b.same(left[1], []byte("own"))
	a.pulled("")
	if a.exists(p) || a.exists(q) {
		t.Errorf("what was removed is published: %q", a.names("runs/x/1"))
	}
}
