package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"time"

	"ckptfs/integration/recipe"
)

const (
	keptSteps   = 5 // of a machine's run, before the oldest is removed
	sharedSteps = 8 // that all machines write into
)

// save works on a machine until stop, as a training program does, and publishes.
func (m *machine) save(rng *rand.Rand, stop <-chan struct{}) {
	for pause(rng, 300*time.Millisecond, stop) {
		switch rng.IntN(12) {
		case 0, 1, 2:
			m.saveStep(rng)
		case 3, 4:
			m.saveRank(rng)
		case 5, 6:
			m.saveCommon(rng)
		case 7:
			m.saveLast(rng)
		case 8:
			m.rotate()
		case 9, 10:
			m.sync()
		case 11:
			m.sync("--newest")
		}
	}
}

// surely does something until it is done: a daemon that is killed fails it.
func (m *machine) surely(what string, do func() error) {
	var err error
	for begun := time.Now(); time.Since(begun) < commandTime; time.Sleep(20 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	m.r.lose("machine %d: %s: %v", m.number, what, err)
}

// write writes a file by its path, or first by another name beside it.
func (m *machine) write(p string, data []byte, direct, several bool) {
	ended := m.r.ledger.begin(m.number, p, data, several)
	m.surely("write "+p, func() error {
		if err := m.mkdirs(path.Dir(p)); err != nil {
			return err
		}
		if direct {
			return os.WriteFile(m.at(p), data, 0o644)
		}
		next := m.at(path.Join(path.Dir(p), ".next-"+path.Base(p)))
		if err := os.WriteFile(next, data, 0o644); err != nil {
			return err
		}
		return os.Rename(next, m.at(p))
	})
	ended()
	m.r.saves.Add(1)
}

// mkdirs makes folders below runs/, which is there as long as the store is mounted.
func (m *machine) mkdirs(dir string) error {
	if dir == "runs" {
		return nil
	}
	if err := m.mkdirs(path.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(m.at(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// remove removes a folder, and fails unless the store is mounted.
func (m *machine) remove(dir string) error {
	if err := os.RemoveAll(m.at(dir)); err != nil {
		return err
	}
	if _, err := os.Stat(m.at("runs")); err != nil {
		return err
	}
	if _, err := os.Lstat(m.at(dir)); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it is there: %v", err)
	}
	_, err := os.Stat(m.at("runs"))
	return err
}

func (m *machine) bytes(rng *rand.Rand, seed, step uint64) []byte {
	kinds := []recipe.Kind{recipe.Torch, recipe.Safetensors, recipe.Noise, recipe.Text, recipe.Half,
		recipe.Quant, recipe.Merge}
	return recipe.Recipe{Kind: kinds[rng.IntN(len(kinds))], Seed: 1 + seed, Step: step,
		Size: 1 + rng.IntN(m.r.size)}.Bytes()
}

func (m *machine) ownRun() string { return fmt.Sprintf("runs/m%d", m.number) }

// saveStep saves a step of the machine's own run.
func (m *machine) saveStep(rng *rand.Rand) {
	m.step++
	dir := fmt.Sprintf("%s/%d", m.ownRun(), m.step)
	m.kept = append(m.kept, dir)
	model := recipe.Recipe{Kind: recipe.Safetensors, Seed: uint64(m.number), Step: uint64(m.step),
		Size: m.r.size / 2}
	m.write(dir+"/model.safetensors", model.Bytes(), rng.IntN(2) == 0, false)
	metrics := fmt.Appendf(nil, `{"loss": %g, "step": %d}`, rng.Float64(), m.step)
	m.write(dir+"/metrics.json", metrics, true, false)
	if rng.IntN(2) == 0 {
		optimizer := m.bytes(rng, uint64(m.number), uint64(m.step))
		m.write(dir+"/sub/optimizer.pt", optimizer, rng.IntN(2) == 0, false)
	}
}

// saveRank writes the machine's own file into a step that all share.
func (m *machine) saveRank(rng *rand.Rand) {
	p := fmt.Sprintf("runs/shared/%d/rank-%d.pt", rng.IntN(sharedSteps), m.number)
	m.write(p, m.bytes(rng, 100, rng.Uint64N(50)), rng.IntN(2) == 0, false)
}

// saveCommon writes a file that the others write, too. Its versions are told apart by their sizes.
func (m *machine) saveCommon(rng *rand.Rand) {
	p := fmt.Sprintf("runs/shared/%d/common.bin", rng.IntN(sharedSteps/2))
	size := int(m.r.next.Add(1)) + []int{10, 5000}[rng.IntN(2)]
	m.write(p, recipe.Recipe{Kind: recipe.Noise, Seed: rng.Uint64(), Size: size}.Bytes(), false, true)
}

// saveLast writes a file over that is there always.
func (m *machine) saveLast(rng *rand.Rand) {
	model := m.bytes(rng, uint64(m.number), rng.Uint64N(50))
	m.write(m.ownRun()+"/last/model.pt", model, rng.IntN(2) == 0, false)
}

// rotate removes the oldest step, or gives it another name.
func (m *machine) rotate() {
	if len(m.kept) < keptSteps {
		return
	}
	dir := m.kept[0]
	m.kept = m.kept[1:]
	var ended []func()
	for _, p := range m.r.ledger.below(dir) {
		ended = append(ended, m.r.ledger.begin(m.number, p, nil, false))
	}
	m.surely("remove "+dir, func() error { return m.remove(dir) })
	for _, f := range ended {
		f()
	}
	m.r.removals.Add(1)
}
