package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"ckptfs/cas/chunk"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
	"ckptfs/formats/safetensors"
)

// trainingSteps is how many checkpoints the section steps saves.
const trainingSteps = 20

// steps saves a training run from its first steps to convergence, and tells of each step what its chunks
// would take alone, as deltas of the step before, and as the better of the two against the base that the
// store's rule gives; what they take in the store; and what other rules for keys would have come to.
func (b *bench) steps() error {
	dir, err := os.MkdirTemp(b.dir, "steps-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out, err := b.pythonRun("converge.py", filepath.Join(dir, "plain"), fmt.Sprint(trainingSteps))
	if err != nil {
		return err
	}
	fresh, err := b.fresh(dir)
	if err != nil {
		return err
	}
	defer fresh.daemon.Clean()
	var all series
	var rows [][]string
	var sums [3]int
	for line := range strings.Lines(out) {
		var s savedStep
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return err
		}
		if err := fresh.saveStep(&s); err != nil {
			return err
		}
		if err := all.add(s.data); err != nil {
			return err
		}
		i := len(all.steps) - 1
		raw := float64(all.raw)
		share := func(n int) string { return digits(100 * float64(n) / raw) }
		alone, last := 0, 0
		for k := range all.steps[i] {
			alone += all.cost(k, i, i)
			if i > 0 {
				last += all.cost(k, i, i-1)
			}
		}
		best, deltas := all.simulate(i, storedRule)
		row := []string{fmt.Sprint(s.Step), fmt.Sprintf("%.3f", s.Loss), fmt.Sprintf("%.1f", 100*s.Accuracy),
			"–", "–", share(alone), "–", share(best),
			fmt.Sprintf("%d of %d", deltas, len(all.steps[i])), share(int(s.taken))}
		for n, v := range []int{alone, best, int(s.taken)} {
			sums[n] += v
		}
		if i > 0 {
			change, tau := tau(all.numbers(i-1), all.numbers(i))
			row[3], row[4], row[6] = fmt.Sprintf("%.1e", change), fmt.Sprintf("%.2f", tau), share(last)
		}
		rows = append(rows, row)
	}
	mean := func(n int) string {
		return digits(100 * float64(sums[n]) / float64(all.raw) / float64(len(all.steps)))
	}
	rows = append(rows, []string{"all", "", "", "", "", mean(0), "", mean(1), "", mean(2)})
	table(fmt.Sprintf("a network trained on handwritten digits until it converged, %d saves of %s; %% of raw", len(all.steps), bytesText(all.raw)),
		[]string{"save", "loss", "accuracy, %", "change, of the norm", "τ", "alone", "delta of the save before", "the better, by the rule", "deltas of chunks", "stored, with all else"}, rows)

	rows = nil
	for _, r := range []struct {
		name string
		rule rule
	}{
		{"alone", rule{cycle: 1, gain: 0.9}}, {"a key every 4", rule{cycle: 4, gain: 0.9}},
		{"every 8, as stored", storedRule}, {"every 16", rule{cycle: 16, gain: 0.9}},
		{"every 8, each against the one before", rule{cycle: 8, gain: 0.9, chain: true}}, {"every 8, or where less than a tenth of the first gain is left", rule{cycle: 8, gain: 0.9, shrunk: 0.1}},
		{"… half", rule{cycle: 8, gain: 0.9, shrunk: 0.5}},
		{"… three quarters", rule{cycle: 8, gain: 0.9, shrunk: 0.75}},
		{"every 8, any gain", rule{cycle: 8, gain: 1}}, {"every 8, a fifth gained", rule{cycle: 8, gain: 0.8}},
	} {
		total, deltas := 0, 0
		for i := range all.steps {
			n, d := all.simulate(i, r.rule)
			total += n
			deltas += d
		}
		rows = append(rows, []string{r.name,
			digits(100 * float64(total) / float64(all.raw) / float64(len(all.steps))), fmt.Sprint(deltas)})
	}
	table("the same under other rules for keys, by what each chunk takes; % of raw", []string{"a key", "stored", "deltas"}, rows)
	return nil
}

// savedStep is what the program says of a save.
type savedStep struct {
	Step           int
	File           string
	Loss, Accuracy float64
	data           []byte
	taken          int64 // what the store took for it
}

// saveStep saves on the mount what the program saved.
func (b *bench) saveStep(s *savedStep) (err error) {
	if s.data, err = os.ReadFile(s.File); err != nil {
		return err
	}
	before, err := b.storedBytes()
	if err != nil {
		return err
	}
	to := filepath.Join(b.daemon.Dir, "runs", "a", fmt.Sprint(s.Step), "model.safetensors")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, s.data, 0o644); err != nil {
		return err
	}
	if err := b.sync(); err != nil {
		return err
	}
	after, err := b.storedBytes()
	s.taken = after - before
	return err
}

func (b *bench) storedBytes() (int64, error) {
	var st struct {
		Stored int64 `json:"stored_bytes"`
	}
	err := b.json(&st, "stats", "--json", b.daemon.Dir)
	return st.Stored, err
}

// series are the chunks of the tensors of successive saves.
type series struct {
	steps [][][]byte // by step and chunk
	hints []codec.Hint
	raw   int64
	costs map[[3]int]int
}

func (s *series) add(data []byte) error {
	l, err := safetensors.Parser{}.Parse(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	var chunks [][]byte
	s.hints, s.raw = nil, 0
	for i := range l.Tensors {
		t := &l.Tensors[i]
		r := l.Regions[t.Region]
		for k := range chunk.GridLen(r.Len) {
			off, n := chunk.GridSpan(r.Len, k)
			chunks = append(chunks, data[r.Off+off:][:n])
			s.hints = append(s.hints, codec.Hint{DType: string(t.DType), Elem: t.DType.Bits() / 8})
			s.raw += int64(n)
		}
	}
	if s.costs == nil {
		s.costs = map[[3]int]int{}
	}
	s.steps = append(s.steps, chunks)
	return nil
}

// cost is what chunk k of a step takes against that of another, or alone where the two are one.
func (s *series) cost(k, step, base int) int {
	key := [3]int{k, step, base}
	if n, ok := s.costs[key]; ok {
		return n
	}
	raw := s.steps[step][k]
	n := segment.RecordHeaderSize
	switch {
	case step == base:
		_, p := codec.Encode(nil, raw, s.hints[k])
		n += len(p)
	case bytes.Equal(raw, s.steps[base][k]):
		n = 0 // it is held
	default:
		_, p, ok := codec.EncodeAgainst(nil, raw, s.steps[base][k], s.hints[k], 2*len(raw))
		n += segment.BaseSize + len(p)
		if !ok {
			n = s.cost(k, step, step) // too short to be a delta
		}
	}
	s.costs[key] = n
	return n
}

// rule says when a chunk is stored alone.
type rule struct {
	cycle int     // saves from key to key
	gain  float64 // the share of what it takes alone from which on it is
	// each is written against the one before it, else against that with the lowest bit of its number cleared
	chain  bool
	shrunk float64 // of the gain of the first after the key: what is less makes a key; 0: no such rule
}

// storedRule is the store's.
var storedRule = rule{cycle: segment.MaxNumber + 1, gain: 0.9}

// simulate tells what a step takes by a rule that chooses by what each chunk takes, and how many of its
// chunks are deltas.
func (s *series) simulate(step int, r rule) (total, deltas int) {
	for k := range s.steps[step] {
		number, first := 0, 0.0
		var at []int // the saves since the key, by number
		for i := range step + 1 {
			n := s.cost(k, i, i)
			delta := false
			if i > 0 && bytes.Equal(s.steps[i][k], s.steps[i-1][k]) {
				n = 0
			} else {
				if number++; at != nil && number < r.cycle {
					base := at[number&(number-1)]
					if r.chain {
						base = at[number-1]
					}
					d := s.cost(k, i, base)
					gained := 1 - float64(d)/float64(n)
					if number == 1 {
						first = gained
					}
					if delta = float64(d) <= r.gain*float64(n) && gained >= r.shrunk*first; delta {
						n = d
					}
				}
				if !delta {
					number, at = 0, nil
				}
				at = append(at, i)
			}
			if i == step {
				total += n
				if delta {
					deltas++
				}
			}
		}
	}
	return total, deltas
}

// numbers are the weights in single precision of a step.
func (s *series) numbers(step int) (w []float32) {
	for k, p := range s.steps[step] {
		if s.hints[k].DType != "F32" {
			continue
		}
		for i := 0; i < len(p); i += 4 {
			w = append(w, math.Float32frombits(binary.LittleEndian.Uint32(p[i:])))
		}
	}
	return w
}

// tau is the norm of the change from a to b over that of b, and what zstd makes of their difference b−a, over
// b's size.
func tau(a, b []float32) (change, tau float64) {
	var diff, norm float64
	p := make([]byte, 0, 4*len(b))
	for i := range b {
		d := b[i] - a[i]
		diff += float64(d) * float64(d)
		norm += float64(b[i]) * float64(b[i])
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(d))
	}
	w, err := zstd.NewWriter(nil)
	if err != nil {
		return 0, 0 // cannot be: no option can be wrong
	}
	return math.Sqrt(diff / norm), float64(len(w.EncodeAll(p, nil))) / float64(4*len(b))
}
