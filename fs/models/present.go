package models

import (
	"path"

	"ckptfs/fs/steps"
)

// present says where the files of all steps are, by their inodes: of several names the first.
type present struct {
	of    map[uint64]spot
	steps []stepIn
}

// spot is a file of a step, by their numbers.
type spot struct{ step, file int32 }

type stepIn struct {
	run  string
	step *steps.Step
}

func (p *present) add(run string, st *steps.Step) {
	p.steps = append(p.steps, stepIn{run, st})
	for i := range st.Files {
		if ino := st.Files[i].Ino; !p.has(ino) {
			p.of[ino] = spot{int32(len(p.steps) - 1), int32(i)}
		}
	}
}

func (p *present) has(ino uint64) bool {
	_, is := p.of[ino]
	return is
}

// path is where a file is; "": nowhere.
func (p *present) path(ino uint64) string {
	at, is := p.of[ino]
	if !is {
		return ""
	}
	of := p.steps[at.step]
	return path.Join(steps.Dir, of.run, of.step.Name, of.step.Files[at.file].Rel)
}
