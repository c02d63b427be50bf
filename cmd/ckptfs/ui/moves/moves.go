// Package moves tells which layers of a model moved in which step of a run, and how far: |Δ|/|A| of each
// layer, between each step and the one before it.
//
// Tensors of equal hashes are not read. Of the others a sample is (control.DiffOptions), so that a step takes
// about a second for each thousand tensors that changed. What was compared once is kept.
package moves

import (
	"context"
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/cmd/ckptfs/ui/layers"
	"ckptfs/fs/control"
)

// Source compares steps: a control.Client.
type Source interface {
	Diff(ctx context.Context, o control.DiffOptions, parts control.Differences,
		progress func(control.Progress)) (*control.Diff, error)
}

const (
	// MostSteps is how many steps of a run are shown: of a longer one as many, spread over it.
	MostSteps = 60
	// MostLayers is how many layers are; those behind it are one, Others.
	MostLayers = 300
	// Others is what is called so.
	Others = "other layers"

	sample   = 1 << 20          // bytes of a tensor that are read
	patience = 30 * time.Second // a run that nobody looked at for so long is not gone on with
	kept     = 1 << 12          // pairs
	retry    = 10 * time.Minute // after so long a comparison that failed is tried again
)

// Map is what is known of a run so far.
type Map struct {
	Run    string   `json:"run"`
	Steps  []string `json:"steps"`  // each compared with the one before it; the first with Before
	Before string   `json:"before"` // "": there are not two steps
	Layers []string `json:"layers"` // in the order of the model
	// Cells are a step, a layer, and |Δ|/|A| over the layer's tensors that changed, of those that had other
	// elements than zeros before, and whose norms are finite. A layer without such tensors has none. 0: the
	// sample has no difference.
	Cells   [][3]float64 `json:"cells"`
	Done    int          `json:"done"` // steps that were compared
	Every   bool         `json:"every"`
	Problem string       `json:"problem,omitempty"` // of the last step that could not be compared
}

// Moves compares steps in the background, one run at a time.
type Moves struct {
	from  Source
	life  context.Context
	turn  chan struct{} // of one: held by who compares
	pairs *lru.Cache[pair, *moved]

	mu   sync.Mutex
	jobs map[string]*job // by run; those that are under way
}

// pair is two steps, as they were then.
type pair struct {
	a, b   string // paths
	at, bt int64  // when they were written
}

// moved is what moved between two steps.
type moved struct {
	layers   []string
	by, from []float64 // squares of |Δ| and |A|
	problem  string
	at       time.Time
}

// add adds to a layer; at has the places of layers. Where there is no room for one more it is another.
func (x *moved) add(at map[string]int, layer string, by, from float64) {
	k, ok := at[layer]
	if !ok && len(x.layers) >= MostLayers {
		layer = Others
		k, ok = at[layer]
	}
	if !ok {
		k = len(x.layers)
		at[layer] = k
		x.layers, x.by, x.from = append(x.layers, layer), append(x.by, 0), append(x.from, 0)
	}
	x.by[k], x.from[k] = x.by[k]+by, x.from[k]+from
}

type job struct{ asked time.Time }

// New makes one; what is begun ends with life.
func New(life context.Context, from Source) *Moves {
	pairs, _ := lru.New[pair, *moved](kept) // fails for sizes below 1 alone
	return &Moves{from: from, life: life, turn: make(chan struct{}, 1), pairs: pairs, jobs: map[string]*job{}}
}

// Of is what is known of a run by now. What is not is found out behind the answer: ask again.
func (m *Moves) Of(l *known.Log) *Map {
	of := chosen(l)
	out := &Map{Run: l.Run, Steps: []string{}, Layers: []string{}, Cells: [][3]float64{},
		Every: len(of) <= MostSteps}
	if !out.Every {
		of = spread(of)
	}
	var todo []pair
	row := map[string]int{}
	for i := 1; i < len(of); i++ {
		a, b := &l.Steps[of[i-1]], &l.Steps[of[i]]
		if i == 1 {
			out.Before = a.Name
		}
		out.Steps = append(out.Steps, b.Name)
		p := pair{"runs/" + l.Run + "/" + a.Name, "runs/" + l.Run + "/" + b.Name, a.Time.UnixNano(),
			b.Time.UnixNano()}
		x, ok := m.pairs.Get(p)
		if !ok || x.problem != "" && time.Since(x.at) > retry {
			todo = append(todo, p)
			continue
		}
		out.Done++
		if x.problem != "" {
			out.Problem = x.problem
		}
		out.cells(x, i-1, row)
	}
	if len(todo) > 0 {
		m.begin(l.Run, todo)
	}
	return out
}

// cells adds what moved between a step and the one before it; row has the places of layers.
func (out *Map) cells(x *moved, step int, row map[string]int) {
	n := len(out.Layers)
	one := &moved{layers: out.Layers, by: make([]float64, n), from: make([]float64, n)}
	for k, name := range x.layers {
		one.add(row, name, x.by[k], x.from[k])
	}
	out.Layers = one.layers
	for k := range one.layers {
		if far := math.Sqrt(one.by[k] / one.from[k]); one.from[k] > 0 && finite(far) {
			out.Cells = append(out.Cells, [3]float64{float64(step), float64(k), far})
		}
	}
}

// chosen are the steps that can be compared.
func chosen(l *known.Log) (of []int) {
	for i := range l.Steps {
		if l.Steps[i].State == control.StepComplete {
			of = append(of, i)
		}
	}
	return of
}

// spread are MostSteps+1 of them, the last among them.
func spread(of []int) []int {
	out := make([]int, 0, MostSteps+1)
	for k := range MostSteps + 1 {
		out = append(out, of[k*(len(of)-1)/MostSteps])
	}
	return out
}

// begin compares in the background, unless that is under way.
func (m *Moves) begin(run string, todo []pair) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j := m.jobs[run]; j != nil {
		j.asked = time.Now()
		return
	}
	j := &job{asked: time.Now()}
	m.jobs[run] = j
	go func() {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.jobs, run)
		}()
		select {
		case m.turn <- struct{}{}:
			defer func() { <-m.turn }()
		case <-m.life.Done():
			return
		}
		for _, p := range todo {
			m.mu.Lock()
			left := time.Since(j.asked) > patience
			m.mu.Unlock()
			if left || m.life.Err() != nil {
				return
			}
			x, err := m.compare(p)
			if known.Away(err) {
				return // who asks again has the next daemon asked
			}
			m.pairs.Add(p, x)
		}
	}()
}

// compare finds what moved between two steps.
func (m *Moves) compare(p pair) (*moved, error) {
	out := &moved{}
	at := map[string]int{}
	_, err := m.from.Diff(m.life, control.DiffOptions{A: p.a, B: p.b, Sample: sample},
		func(some control.TensorLists) error {
			for i := range some.Changed {
				c := &some.Changed[i]
				if by, from, ok := layers.Squares(c); ok {
					out.add(at, layers.Of(c.Name), by, from)
				}
			}
			return nil
		}, nil)
	if err != nil {
		out.problem = err.Error()
	}
	out.at = time.Now()
	return out, err
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
