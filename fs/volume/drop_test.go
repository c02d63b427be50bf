package volume

import (
	"testing"

	"ckptfs/fs/control"
)

// A file with a name that is not published keeps its bytes, whatever becomes of the published one.
func TestDropLinked(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	data := modelFile(t, "ABC")
	for _, q := range []string{"keep/model.safetensors", "runs/x/1/best.safetensors"} {
		c := newCloud(t)
		a := c.join("a")
		a.put(p, data)
		a.published("")
		a.mkdir("keep")
		a.link(p, q)
		a.dropped(p, p)
		a.prune(control.PruneOptions{})
		a.unlink(p)
		a.published("runs/x/2") // the removal alone
		c.collect(0)
		a.again()
		a.same(q, data)
		a.close()
	}
}

// What others removed or replaced since the last fetch is not dropped.
func TestDropAsksNow(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	for name, change := range map[string]func(a *machine){
		"removed":  func(a *machine) { a.unlink(p) },
		"replaced": func(a *machine) { a.put(p, modelFile(t, "XYZ")) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := shared(t, p, modelFile(t, "ABC"))
			a.put(q, modelFile(t, "DEF"))
			a.published("")
			b.pulled("")
			change(a)
			a.published("")
			if d := b.dropped(""); d.Files != 1 {
				t.Errorf("%+v", d)
			}
			b.stub(q, true)
		})
	}
}
