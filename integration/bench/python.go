package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// torch times real torch.save, torch.load and load_file of a state dict of 500 MB, or half of -size where
// that is less.
func (b *bench) torch() error {
	n := min(500_000_000, b.size/2)
	out, err := b.pythonRun("time_torch.py", fmt.Sprint(n), fmt.Sprint(b.rounds), b.plain, b.daemon.Dir,
		b.daemon.Store, b.daemon.Bin)
	if err != nil {
		return err
	}
	figures := map[string]*pair{}
	var order []string
	for line := range strings.Lines(out) {
		var f struct {
			What    string
			Ours    bool
			Seconds float64
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			return err
		}
		p := figures[f.What]
		if p == nil {
			p = &pair{}
			figures[f.What] = p
			order = append(order, f.What)
		}
		if f.Ours {
			p.ours.add(float64(n) / 1e9 / f.Seconds)
		} else {
			p.plain.add(float64(n) / 1e9 / f.Seconds)
		}
	}
	var rows [][]string
	for _, what := range order {
		p := figures[what]
		rows = append(rows, []string{what, p.plain.text(), p.ours.text(), p.ratio()})
	}
	table(fmt.Sprintf("torch, a state dict of %d MB, GB/s", n/1e6), []string{"", "plain", "ckptfs", "ratio"}, rows)
	return nil
}

// resnet saves 20 checkpoints of a ResNet-18 whose backbone is frozen.
func (b *bench) resnet() error {
	const steps = 20
	type stats struct {
		Logical int64 `json:"logical_bytes"`
		Stored  int64 `json:"stored_bytes"`
	}
	// A store of its own: another run's chunks are not counted.
	if err := b.daemon.Stop(); err != nil {
		return err
	}
	if err := os.RemoveAll(b.daemon.Store); err != nil {
		return err
	}
	if err := b.mount(); err != nil {
		return err
	}
	out, err := b.pythonRun("finetune.py", filepath.Join(b.daemon.Dir, "runs", "resnet18"), fmt.Sprint(steps))
	if err != nil {
		return err
	}
	if err := b.sync(); err != nil {
		return err
	}
	var one int64
	if _, err := fmt.Sscan(out, &one); err != nil {
		return err
	}
	var s stats
	if err := b.json(&s, "stats", "--json", b.daemon.Dir); err != nil {
		return err
	}
	table(fmt.Sprintf("%d checkpoints of a ResNet-18 (122 tensors), backbone frozen", steps),
		[]string{"", "bytes", "of one file"}, [][]string{
			{"one file", fmt.Sprint(one), "1.00x"},
			{"logical", fmt.Sprint(s.Logical), fmt.Sprintf("%.2fx", float64(s.Logical)/float64(one))},
			{"stored", fmt.Sprint(s.Stored), fmt.Sprintf("%.2fx", float64(s.Stored)/float64(one))},
		})
	return nil
}
