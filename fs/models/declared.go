package models

import (
	"fmt"
	"path"

	"ckptfs/formats/safetensors"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
)

// saying is what a step says of its parents, as far as it counts.
type saying struct {
	ledger.Declared        // its Tensors by the names that they have in the step's files
	problem         string // why it does not count, or not all of it
}

// says is what the step of p says of its parents. What names tensors that no model has is refused as a whole,
// once all files of the step are packed; until then it is as if nothing was said.
func (s *reconciler) says(p *stepPlace) ledger.Declared {
	said, ok := s.said[p.step]
	if !ok {
		said = s.judge(p)
		s.said[p.step] = said
	}
	if said.problem != "" {
		s.problems[path.Join(steps.Dir, p.run, p.step.Name)] = said.problem
	}
	return said.Declared
}

func (s *reconciler) judge(p *stepPlace) saying {
	said := saying{Declared: p.step.Declared()}
	if len(said.Tensors) == 0 {
		return said
	}
	to, err := ledger.Resolve(said.Parent, p.step.From(p.run), s.o.Mountpoint())
	if err != nil { // which the search for it says
		return said
	}
	ours, whole := s.tensorNames(p.run, p.step, "")
	var theirs map[string]bool
	if run, st, rel := s.stepOf(to); st != nil {
		if safetensors.IsIndex(rel) {
			rel = path.Dir(rel)
		}
		if names, whole := s.tensorNames(run, st, rel); whole {
			theirs = names
		}
	}
	bound, err := said.Bind(ours, theirs)
	switch {
	case err == nil:
		said.Declared.Tensors = bound
	case whole:
		return saying{problem: fmt.Sprintf("%s: %v", steps.LineageFile, err)}
	default:
		return saying{}
	}
	return said
}

// tensorNames is the names of the tensors in the files of a step at or below rel ("" and ".": all), and
// whether it is all of them: some may not be packed yet.
func (s *reconciler) tensorNames(run string, st *steps.Step, rel string) (names map[string]bool, whole bool) {
	names, whole = map[string]bool{}, true
	for _, f := range st.Files.All() {
		if rel != "" && rel != "." && f.Rel != rel && path.Dir(f.Rel) != rel {
			continue
		}
		p := stepPlace{path: path.Join(steps.Dir, run, st.Name, f.Rel)}
		packed, err := s.lookAtPlace(&p)
		if err != nil || p.waits {
			whole = false
		}
		if !packed {
			continue
		}
		if m := s.modelManifest(p.manifest); m != nil {
			for i := range m.Tensors {
				names[m.Tensors[i].Name] = true
			}
		}
	}
	return names, whole
}
