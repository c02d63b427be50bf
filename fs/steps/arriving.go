package steps

import (
	"errors"
	"maps"
	"path"

	"ckptfs/formats/dcp"
	"ckptfs/formats/safetensors"
)

// readNamed notes whether all files are there that a file of the step names: ranks on other machines may have
// parts of it, which are published when these are whole. What cannot be read names nothing.
func (s *Steps) readNamed(runName string, st *Step) {
	for _, f := range st.Files.All() {
		named, err := s.named(path.Join(Dir, runName, st.Name), f)
		if errors.Is(err, ErrRemote) {
			st.remote = true
		}
		for rel := range named {
			st.arriving = st.arriving || !st.Files.Has(path.Join(path.Dir(f.Rel), rel))
		}
	}
}

// named are the files that a file of a step names, from its folder on.
func (s *Steps) named(step string, f File) (map[string]bool, error) {
	named := map[string]bool{}
	switch {
	case dcp.IsMetadata(f.Rel):
		b, err := s.Files.ReadSmall(path.Join(step, f.Rel), dcp.MaxMetadata)
		if err != nil {
			return nil, err
		}
		items, err := dcp.Parse(b)
		if err != nil {
			return nil, err
		}
		for rel := range maps.Keys(items) {
			named[rel] = true
		}
	case safetensors.IsIndex(f.Rel):
		b, err := s.Files.ReadSmall(path.Join(step, f.Rel), safetensors.MaxIndex)
		if err != nil {
			return nil, err
		}
		of, err := safetensors.ParseIndex(b)
		if err != nil {
			return nil, err
		}
		for rel := range maps.Values(of) {
			named[rel] = true
		}
	}
	return named, nil
}
