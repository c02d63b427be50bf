package models

import (
	"cmp"
	"path"
	"slices"

	"ckptfs/fs/steps"
)

// present says where the files of all steps are, by their inodes: of several names the first.
type present struct {
	of    []spot // sorted, once all were added
	steps []stepIn
}

// spot is a file of a step, by their numbers.
type spot struct {
	ino        uint64
	step, file int32
}

type stepIn struct {
	run  string
	step *steps.Step
}

// newPresent makes one that has room for the files of steps.
func newPresent(found map[string][]*steps.Step) *present {
	n := 0
	for _, all := range found {
		for _, st := range all {
			n += st.Files.Len()
		}
	}
	return &present{of: make([]spot, 0, n)}
}

func (p *present) add(run string, st *steps.Step) {
	p.steps = append(p.steps, stepIn{run, st})
	for i, f := range st.Files.All() {
		p.of = append(p.of, spot{f.Ino, int32(len(p.steps) - 1), int32(i)})
	}
}

// sort has what was added be found.
func (p *present) sort() {
	slices.SortFunc(p.of, func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.ino, b.ino), cmp.Compare(a.step, b.step), cmp.Compare(a.file, b.file))
	})
}

// find is the first place of a file; nil: it is nowhere.
func (p *present) find(ino uint64) *spot {
	i, is := slices.BinarySearchFunc(p.of, ino, func(s spot, ino uint64) int {
		return cmp.Compare(s.ino, ino)
	})
	if !is {
		return nil
	}
	return &p.of[i]
}

func (p *present) has(ino uint64) bool { return p.find(ino) != nil }

// first reports whether file i of a step is the first place of its inode.
func (p *present) first(ino uint64, st *steps.Step, i int) bool {
	at := p.find(ino)
	return at != nil && p.steps[at.step].step == st && int(at.file) == i
}

// path is where a file is; "": nowhere.
func (p *present) path(ino uint64) string {
	at := p.find(ino)
	if at == nil {
		return ""
	}
	of := p.steps[at.step]
	return path.Join(steps.Dir, of.run, of.step.Name, of.step.Files.At(int(at.file)).Rel)
}
