package volume

import (
	"os"
	"path/filepath"
	"testing"
)

// loseState has a machine lose STORE/remote.db, while others do something.
func loseState(b *machine, meanwhile func()) {
	b.t.Helper()
	b.close()
	meanwhile()
	if err := os.Remove(filepath.Join(b.dir, remoteState)); err != nil {
		b.t.Fatal(err)
	}
	b.again()
	b.fetched()
}

// remote.db is lost while others replaced, and removed, what is a stub here.
func TestStateLost(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.published("")
	b.fetched()
	b.stub(q, true)
	loseState(b, func() {
		a.put(p, modelFile(t, "XYZ"))
		a.unlink(q)
		a.published("")
	})
	b.same(p, modelFile(t, "XYZ"))
	if b.exists(q) {
		t.Error("a stub that others removed is there")
	}
}

// What a program put in the place of a stub stays, though nothing is known of it.
func TestStateLostKeepsOthers(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.published("")
	b.fetched()
	b.stub(p, true)
	b.put(q, modelFile(t, "own"))
	loseState(b, func() {
		a.put(p, modelFile(t, "XYZ"))
		a.unlink(q)
		a.published("")
	})
	b.same(p, modelFile(t, "XYZ"))
	b.same(q, modelFile(t, "own"))
}

// A stub that has another name by now is no lost one: its bytes are known.
func TestMovedStubStays(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/1/best.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.published("")
	a.unlink(q)
	a.published("")
	b.fetched()
	b.stub(p, true)
	b.rename(p, q)
	b.fetched()
	a.put("runs/x/3/model.safetensors", modelFile(t, "more"))
	a.published("")
	b.fetched()
	b.same(q, modelFile(t, "ABC"))
}

// A store that leaves its remote for another publishes to that what it has, also what the first one has.
func TestAnotherRemote(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c, other := newCloud(t), newCloud(t)
	a := c.join("a")
	a.put(p, modelFile(t, "ABC"))
	a.published("")
	a.again() // with what is known of the remote
	a.remoteIs(p, "pushed")
	a.close()
	if err := os.Remove(a.at("remote")); err != nil {
		t.Fatal(err)
	}
	other.joins(a.rig, "a")
	a.c = other
	a.again()
	a.remoteIs(p, "pending")
	if out := a.published(""); out.Names != 3 {
		t.Errorf("%+v", out)
	}
	d := other.join("d")
	d.pulled("")
	d.same(p, modelFile(t, "ABC"))
}
