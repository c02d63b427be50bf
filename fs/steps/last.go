package steps

import (
	"context"
	"path"
	"slices"
	"strings"

	"ckptfs/formats/dcp"
	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

// Last is the step that a run can be gone on from: of those with a number in their names, if there are any,
// the last one that is whole. nil: there is none. all are in the order of Of.
func (s *Steps) Last(all []*Step) *Step {
	if of := numbered(all); len(of) > 0 {
		all = of
	}
	for _, st := range slices.Backward(whole(all, s.States())) {
		if st != nil {
			return st
		}
	}
	return nil
}

// Hidden are the names, in the folder p of a run, of the steps that nobody is to go on from: of those with a
// number in their names the ones that are not complete, and, behind the last one that is whole, those that
// are not; and what a saver has not finished. A step whose files were just closed is waited for.
func (s *Steps) Hidden(ctx context.Context, p string) (map[string]bool, error) {
	_, all, err := s.Run(ctx, "list", p)
	if err != nil {
		return nil, err
	}
	hidden, state := map[string]bool{}, s.States()
	for _, st := range all {
		if Unfinished(st.Name) {
			hidden[st.Name] = true
		}
	}
	of := numbered(all)
	later := true
	for i, st := range slices.Backward(whole(of, state)) {
		later = later && st == nil
		if later || state(of[i]) != control.StepComplete {
			hidden[of[i].Name] = true
		}
	}
	return hidden, nil
}

// numbered are those of steps whose names have numbers.
func numbered(all []*Step) (some []*Step) {
	for _, st := range all {
		if _, numbers := runs.Numbers(st.Name); len(numbers) > 0 {
			some = append(some, st)
		}
	}
	return some
}

// before is how many complete steps tell what the next one has to have.
const before = 3

// whole are the steps that are complete, as state says, and have what most of the steps before them have, in
// their places; nil for the others. A program that was killed between two files left no file that is torn.
// Steps that lost their optimizer's state are none of those that tell what it saves.
func whole(all []*Step, state func(*Step) string) []*Step {
	whole := make([]*Step, len(all))
	var last, stripped []map[string]bool
	for i, st := range all {
		if state(st) != control.StepComplete {
			continue
		}
		has := st.kinds()
		if !lacks(has, last) && !lacks(has, stripped) {
			whole[i] = st
		}
		of := &last
		if st.stripped() {
			of = &stripped
		}
		*of = append((*of)[max(0, len(*of)-before+1):], has)
	}
	return whole
}

// stripped reports whether the step has weights that are left of a checkpoint.
func (st *Step) stripped() bool {
	return slices.ContainsFunc(st.Files.rels, func(rel string) bool {
		return strings.HasSuffix(rel, Weights)
	})
}

// Weights ends the name of what is left of a checkpoint without its optimizer's state. No saver writes it.
const Weights = ".weights.safetensors"

// DistributedWeights is that of a folder that torch.distributed.checkpoint wrote. Once it is there, the files
// go that .metadata names, and .metadata last of all.
const DistributedWeights = "model" + Weights

// kinds are the names of a step's files that savers write and that are not empty, numbers left out: there may
// be more or fewer ranks than before.
func (st *Step) kinds() map[string]bool {
	kinds := map[string]bool{}
	for _, f := range st.Files.All() {
		name := path.Base(f.Rel)
		if f.Size == 0 || strings.HasSuffix(name, Weights) {
			continue
		}
		if IsCheckpoint(name) || slices.Contains(states, name) || path.Ext(name) == ".pkl" {
			pattern, _ := runs.Numbers(f.Rel)
			kinds[pattern] = true
		}
	}
	return kinds
}

// states are the files that savers write when they have written the rest.
var states = []string{"trainer_state.json", dcp.Metadata, "_CHECKPOINT_METADATA", "latest"}

// lacks reports whether something that most of last have, or half of them, is not in has.
func lacks(has map[string]bool, last []map[string]bool) bool {
	count := map[string]int{}
	for _, kinds := range last {
		for kind := range kinds {
			count[kind]++
		}
	}
	for kind, n := range count {
		if 2*n >= len(last) && !has[kind] {
			return true
		}
	}
	return false
}
