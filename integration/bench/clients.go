package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// timedClients are the clients of programs/clients that are timed, with whether they are also at the size of
// checkpoints.
var timedClients = []struct {
	name  string
	large bool
}{
	{"torch_save", true}, {"safetensors_", true}, {"transformers_", true}, {"accelerate_", true},
	{"lightning_", true}, {"dcp", true},
	{"orbax_", true}, {"tensorstore_", true}, {"numpy_", true}, {"h5py_", true}, {"keras_", true},
	{"arrow_", true}, {"gguf_", true},
	{"onnx_", true}, {"sklearn_", true}, {"xgboost_", false}, {"sqlite_", false}, {"git_", false},
	{"tools", false}, {"mlflow_", false},
}

const smallClient = 1 << 20 // bytes that a client saves, the small way

// clients times real programs' save and load. Figures are seconds; the ratio is ours to the plain folder's, pair by pair.
func (b *bench) clients() error {
	sizes := []int64{smallClient, min(b.size, 160<<20)}
	for i, size := range sizes {
		if i > 0 && size <= smallClient {
			break
		}
		var rows [][]string
		for _, c := range timedClients {
			if i > 0 && !c.large || len(b.named) > 0 && !slices.Contains(b.named,
				strings.TrimSuffix(c.name, "_")) {
				continue
			}
			more, err := b.client(c.name, size)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			rows = append(rows, more...)
		}
		table(fmt.Sprintf("clients, seconds for some %s; ratio of the times, less is better", bytesText(size)),
			[]string{"", "plain", "ckptfs", "ratio"}, rows)
	}
	return nil
}

func (b *bench) client(name string, size int64) ([][]string, error) {
	out, err := b.pythonRun(filepath.Join("clients", "timing.py"), name, fmt.Sprint(b.rounds),
		fmt.Sprint(size),
		b.plain, b.daemon.Dir, b.daemon.Store, b.daemon.Bin)
	if err != nil {
		return nil, err
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
			return nil, err
		}
		p := figures[f.What]
		if p == nil {
			p = &pair{}
			figures[f.What] = p
			order = append(order, f.What)
		}
		if f.Ours {
			p.ours.add(f.Seconds)
		} else {
			p.plain.add(f.Seconds)
		}
	}
	var rows [][]string
	for _, what := range order {
		p := figures[what]
		rows = append(rows, []string{strings.TrimSuffix(name, "_") + ", " + what, p.plain.text(),
			p.ours.text(), p.ratio()})
	}
	return rows, nil
}
