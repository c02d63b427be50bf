package dry

import (
	"ckptfs/cas"
	"ckptfs/cas/recipe"
)

// maxPrograms bounds how many programs are remembered: those of the averages of a step or two.
const maxPrograms = 1 << 14

// remember keeps the program of a chunk if another may go on from it.
func (s *Store) remember(h cas.Hash, r *cas.Recipe) {
	prog, _, err := recipe.Parse(r.Program)
	if err != nil {
		return
	}
	if c, ok := prog[len(prog)-1].(recipe.Combine); !ok || !c.Form.Goes() {
		return
	}
	s.locked(func() {
		if s.programs == nil || len(s.programs) == maxPrograms {
			s.programs = map[cas.Hash]*cas.Recipe{}
		}
		s.programs[h] = r
	})
}

// Program is the bases of a chunk that is computed, and its program, where another may go on from it.
func (s *Store) Program(h cas.Hash) (bases []cas.Hash, program []byte, ok bool) {
	s.locked(func() {
		if r := s.programs[h]; r != nil {
			bases, program, ok = r.Bases, r.Program, true
		}
	})
	return bases, program, ok
}
