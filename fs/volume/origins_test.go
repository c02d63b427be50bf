package volume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ckptfs/fs/control"
)

// origins are what is told of all runs within a time, as text.
func (r *rig) origins(within time.Duration) (models, reproduced string, left int) {
	r.t.Helper()
	o, err := r.Origins(context.Background(), within)
	if err != nil {
		r.t.Fatal(err)
	}
	short := func(p string) string {
		return strings.TrimSuffix(strings.TrimPrefix(p, "runs/"), "/m.safetensors")
	}
	var all, follow []string
	for i := range o.Models {
		m := &o.Models[i]
		of := short(m.Path)
		if m.Chain[0].Seq != m.Seq || len(m.Chain) > 2 {
			r.t.Errorf("%s has a chain of %d models", of, len(m.Chain))
		}
		if len(m.Chain) == 2 {
			of += " " + m.How + " " + short(m.Chain[1].Path)
		}
		for k := range m.Merged {
			of += " + " + short(m.Merged[k].Path)
		}
		all = append(all, of)
	}
	for i := range o.Reproduced {
		what := strings.ReplaceAll(o.Reproduced[i].What, "runs/", "")
		follow = append(follow, short(o.Reproduced[i].Path)+": "+what)
	}
	return strings.Join(all, ", "), strings.Join(follow, ", "), o.Left
}

// Of each run are told the first model and the last, and those that come from elsewhere; of files what they
// follow from, once they were looked at.
func TestOrigins(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		r.save(fmt.Sprint("a/", i+1), "pqr"+string(rune('s'+i)))
	}
	r.save("b/1", "xy")
	r.mkdir("runs/b/2")
	r.write("runs/b/2/lineage.json", []byte(`{"parent": "runs/a/2", "merged_from": ["runs/a/3"]}`))
	r.save("b/2", "xz")
	r.save("b/3", "xw")
	c := singles(30, elems)
	r.mkdir("runs/c/1")
	r.write("runs/c/1/m.safetensors", fileOf(t, tensor{"y.1.w", "F32", c}))
	r.sync()
	codes, scale := eights(t, c)
	r.mkdir("runs/q/1")
	r.write("runs/q/1/m.safetensors",
		fileOf(t, tensor{"y.1.w", "F8_E4M3", codes}, tensor{"y.1.w_scale", "F32", scale}))
	r.sync()
	const models = "a/1, a/4 previous step a/3, b/1, b/2 declared a/2 + a/3, b/3 previous step b/2, c/1, q/1 reproduced c/1"
	const follow = "q/1: F8_E4M3 of c/1/m.safetensors"
	if m, f, left := r.origins(0); m != models || f != "" || left != 9 {
		t.Errorf("%s; %s; %d left", m, f, left)
	}
	for _, within := range []time.Duration{time.Hour, 0} { // it is found, and known from then on
		if m, f, left := r.origins(within); m != models || f != follow || left != 0 {
			t.Errorf("within %v: %s; %s; %d left", within, m, f, left)
		}
	}
	// Another file has that name: what follows is looked for again.
	r.write("runs/c/1/m.safetensors", fileOf(t, tensor{"y.1.w", "F32", singles(31, elems)}))
	r.sync()
	if _, f, left := r.origins(0); f != "" || left != 2 {
		t.Errorf("%s; %d left", f, left)
	}
	if _, f, left := r.origins(time.Hour); f != "" || left != 0 {
		t.Errorf("%s; %d left", f, left)
	}
}

// BenchmarkOrigins is 1,000 runs of ten models.
func BenchmarkOrigins(b *testing.B) {
	r := newRig(b)
	rand := rand.New(rand.NewPCG(1, 2))
	for run := range 1000 {
		for step := range 10 {
			r.mkdir(fmt.Sprintf("runs/r%d/%d", run, step))
			p := make([]byte, 4096)
			for i := range p {
				p[i] = byte(rand.Uint32())
			}
			r.write(fmt.Sprintf("runs/r%d/%d/m.safetensors", run, step), weights(b, []string{"a"}, p))
		}
	}
	r.sync()
	var o *control.Origins
	for b.Loop() {
		var err error
		if o, err = r.Origins(context.Background(), 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(o.Models)), "models")
}
