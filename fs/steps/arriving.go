package steps

import (
	"errors"
	"iter"
	"maps"
	"path"

	"ckptfs/formats/dcp"
	"ckptfs/formats/safetensors"
)

// readNamed notes whether all files are there that a file of the step names: ranks on other machines may have
// parts of it, which are published when these are whole. What cannot be read names nothing.
func (s *Steps) readNamed(runName string, st *Step) {
	for _, f := range st.Files.All() {
		most, names := namer(f.Rel)
		if names == nil {
			continue
		}
		if dcp.IsMetadata(f.Rel) && st.replaced(&f) {
			continue
		}
		b, err := s.Files.ReadSmall(path.Join(Dir, runName, st.Name, f.Rel), most)
		if errors.Is(err, ErrRemote) {
			st.remote = true
		}
		if err != nil {
			continue
		}
		named := map[string]bool{} // once each: a file has many tensors
		for rel := range names(b) {
			named[rel] = true
		}
		for rel := range named {
			st.arriving = st.arriving || !st.Files.Has(path.Join(path.Dir(f.Rel), rel))
		}
	}
}

// replaced reports whether weights were made of a .metadata, so that the files may go which it names. They
// have its time: of one that was saved to their folder later they are not.
func (st *Step) replaced(metadata *File) bool {
	rel := path.Join(path.Dir(metadata.Rel), DistributedWeights)
	for _, f := range st.Files.All() {
		if f.Rel == rel {
			return f.Mtime == metadata.Mtime
		}
	}
	return false
}

// namer is what tells the files, from its folder on, that a file at rel names, which has so many bytes at
// most; nil: it names none.
func namer(rel string) (most int64, names func([]byte) iter.Seq[string]) {
	switch {
	case dcp.IsMetadata(rel):
		return dcp.MaxMetadata, func(b []byte) iter.Seq[string] {
			items, _ := dcp.Parse(b)
			return maps.Keys(items)
		}
	case safetensors.IsIndex(rel):
		return safetensors.MaxIndex, func(b []byte) iter.Seq[string] {
			places, _ := safetensors.ParseIndex(b)
			return maps.Values(places)
		}
	}
	return 0, nil
}
