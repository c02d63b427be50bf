//go:build locktime

package volume

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

const coresRuns, coresSize = 4, 32 << 20

// BenchmarkCores packs and reads what four runs save, and many small files, and prints how often each lock is
// taken for a chunk, and how long it is held for it. Meanwhile no other goroutine can hold it. So as many
// processors as a chunk's processor time is longer than that use the lock all the time: more of them are of
// no use. That is computed, and the cost of handing a lock from one processor to another is not in it.
//
//	GOMAXPROCS=16 go test ./fs/volume -tags locktime -run - -bench Cores -benchtime 8x
func BenchmarkCores(b *testing.B) {
	var first, next [coresRuns][]byte
	for i := range first {
		w := singles(uint64(i), coresSize/4)
		first[i] = fileOf(b, tensor{"w", "F32", w})
		next[i] = fileOf(b, tensor{"w", "F32", nudged(w)})
	}
	var small [256][]byte
	for i := range small {
		var ts []tensor
		for k := range 20 {
			ts = append(ts, tensor{fmt.Sprint(k), "F32", singles(uint64(20*i+k), 256)})
		}
		small[i] = fileOf(b, ts...)
	}
	var all phases
	for b.Loop() {
		r := newRig(b, func(o *Options) { o.PackWorkers = cas.Processors })
		const chunks = coresRuns * coresSize / cas.ChunkSize
		all.measure(b, "new weights, a chunk", chunks, r.saving("new", first[:]))
		all.measure(b, "the next step of each, a chunk", chunks, r.saving("next", next[:]))
		all.measure(b, "the first step again, a chunk", chunks, r.saving("again", first[:]))
		all.measure(b, "small files of 20 tensors, a file", len(small), r.saving("small", small[:]))
		r.evictAll()
		all.measure(b, "reads of new weights, a chunk", chunks, r.reading("new", coresRuns))
		all.measure(b, "reads of the next step, a chunk", chunks, r.reading("next", coresRuns))
		r.close()
	}
	all.print()
}

// nudged are weights after a step.
func nudged(w []byte) []byte {
	p := slices.Clone(w)
	for i := 0; i < len(p); i += 4 {
		p[i] ^= byte(i * 7 >> 3)
		p[i+1] ^= byte(i>>5) & 3
	}
	return p
}

func coresFile(step string, i int) string { return fmt.Sprintf("runs/%d/%s/m.safetensors", i, step) }

// saving returns what saves a step of as many runs as there are files, and packs it.
func (r *rig) saving(step string, files [][]byte) func() {
	for i := range files {
		r.mkdir(fmt.Sprintf("runs/%d/%s", i, step))
	}
	return func() {
		for i, p := range files {
			r.write(coresFile(step, i), p)
		}
		r.sync()
	}
}

// reading returns what reads a step of n runs at the same time.
func (r *rig) reading(step string, n int) func() {
	return func() {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { r.read(coresFile(step, i)) })
		}
		wg.Wait()
	}
}

// phases are by name, in order. Each has the least that was seen of every figure: what else the machine does
// adds to them.
type phases struct {
	names []string
	all   map[string]*phase
}

type phase struct {
	n    float64
	cpu  time.Duration
	uses map[string]locks.Use
}

// measure measures f, which does n things.
func (ps *phases) measure(b *testing.B, name string, n int, f func()) {
	before, cpu := locks.Uses(), processorTime(b)
	f()
	cpu = processorTime(b) - cpu
	p, seen := ps.all[name]
	if !seen {
		p = &phase{float64(n), cpu, map[string]locks.Use{}}
		ps.names = append(ps.names, name)
		if ps.all == nil {
			ps.all = map[string]*phase{}
		}
		ps.all[name] = p
	}
	p.cpu = min(p.cpu, cpu)
	for lock, u := range locks.Uses() {
		u = u.Since(before[lock])
		if had, ok := p.uses[lock]; ok {
			u = u.Least(had)
		}
		p.uses[lock] = u
	}
}

func (ps *phases) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	for _, name := range ps.names {
		ps.all[name].print(w, name)
	}
}

// print lists the locks that fewer than a thousand processors would use all the time, and those that are
// taken for each thing.
func (p *phase) print(w *tabwriter.Writer, name string) {
	fmt.Fprintf(w, "\n%s: %.0f µs of processor time\n", name, p.cpu.Seconds()*1e6/p.n)
	fmt.Fprint(w, "takes\tshared\tfound it held\theld, ns\tlonger than 100 µs\tprocessors\t  lock\n")
	byHeld := func(a, b string) int { return cmp.Compare(p.uses[b].Brief, p.uses[a].Brief) }
	for _, lock := range slices.SortedFunc(maps.Keys(p.uses), byHeld) {
		u := p.uses[lock]
		most := p.cpu.Seconds() / max(u.Brief.Seconds(), 1e-12)
		if float64(u.Takes) < p.n && most > 1000 {
			continue
		}
		fmt.Fprintf(w, "%.2f\t%.2f\t%.3f\t%.0f\t%.3f\t%.0f\t  %s\n", float64(u.Takes)/p.n, float64(u.Shared)/p.n,
			float64(u.Waited)/p.n, float64(u.Brief)/p.n, float64(u.Long)/p.n, most, lock)
	}
}
