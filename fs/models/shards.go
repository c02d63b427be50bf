package models

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/index/ledger"
	"ckptfs/index/manifest"
)

// Shards is a set of files by the index beside them. Each file has an entry in the ledger, but they have one
// architecture: the first file's entry has it, from a source that names the index, and the others say that
// they are parts.
type Shards struct {
	Index  string            // path, below the mount's root
	stamp  string            // changes with the index
	Files  []string          // names, ascending
	FileOf map[string]string // the file of each tensor
}

// partOf begins Entry.GraphFrom of the files of a set but the first.
const partOf = "part of "

// ReadShards reads an index; nil: it is none of several files.
func (m *Models) ReadShards(index string) *Shards {
	of, files, err := m.o.Inspect.ReadIndex(index)
	if err != nil || len(files) < 2 {
		return nil
	}
	return &Shards{Index: index, Files: files, FileOf: of}
}

// shardsOf finds the set that a file of a step is of; nil: it is of none.
func (s *reconciler) shardsOf(p *stepPlace) *Shards {
	for _, f := range p.step.Files.All() {
		if p.step.IsFile || !safetensors.IsIndex(f.Rel) || path.Dir(f.Rel) != path.Dir(p.rel) {
			continue
		}
		at := path.Join(path.Dir(p.path), path.Base(f.Rel))
		set, ok := s.sets[at]
		if !ok {
			if set = s.ReadShards(at); set != nil {
				set.stamp = fmt.Sprintf("%d:%d:%d", f.Ino, f.Mtime, f.Size)
			}
			s.sets[at] = set
		}
		if set != nil && slices.Contains(set.Files, path.Base(p.rel)) {
			return set
		}
	}
	return nil
}

// tensorsOf is the tensors of a set, of which m is the first file, and what is to stand behind the source of
// the set's architecture. False: some are not there, or not packed yet.
func (s *reconciler) tensorsOf(set *Shards,
	m *manifest.Manifest) (all []formats.Tensor, behind string, ok bool) {
	seen := cas.Sum([]byte(set.stamp))
	for i, file := range set.Files {
		if i > 0 {
			p := stepPlace{path: path.Join(path.Dir(set.Index), file)}
			if packed, err := s.lookAtPlace(&p); err != nil || !packed {
				return nil, "", false
			}
			if m = s.modelManifest(p.manifest); m == nil {
				return nil, "", false
			}
			seen = cas.Sum(append(seen[:], p.manifest[:]...))
		}
		for j := range m.Tensors {
			if set.FileOf[m.Tensors[j].Name] == file {
				all = append(all, m.Tensors[j])
			}
		}
	}
	return all, fmt.Sprintf(" of %q %x", path.Base(set.Index), seen[:8]), len(all) == len(set.FileOf)
}

// indexOf is the index of the set whose first file is at p, from its Entry.GraphFrom; "": it is a model by
// itself.
func indexOf(p, from string) string {
	if i := strings.LastIndex(from, ` of "`); i >= 0 && !strings.HasPrefix(from, partOf) {
		if quoted, err := strconv.QuotedPrefix(from[i+len(" of "):]); err == nil {
			name, _ := strconv.Unquote(quoted)
			return path.Join(path.Dir(p), name)
		}
	}
	return ""
}

// oneGraphLocked is oneModel, where a set is the model that has its architecture. A path may be that of a
// set's index, of any of its files, or of their folder.
func (m *Models) oneGraphLocked(p string) (*ledger.Entry, error) {
	m.mu.AssertHeld()
	if e := graphAt(m.atLocked, p); e != nil {
		return e, nil
	}
	return m.oneModelLocked("match", p)
}

// graphAt is the only model at or below a path, as oneGraphLocked has it, where at lists those at or below a
// path; nil when there is none, or there are several.
func graphAt(at func(p string) []*ledger.Entry, p string) *ledger.Entry {
	index := ""
	if safetensors.IsIndex(p) {
		index = p
	} else if all := at(p); len(all) == 1 && strings.HasPrefix(all[0].GraphFrom, partOf) {
		index = path.Join(path.Dir(all[0].Path), strings.TrimPrefix(all[0].GraphFrom, partOf))
	}
	if index != "" {
		p = path.Dir(index)
	}
	all := slices.DeleteFunc(at(p), func(e *ledger.Entry) bool {
		return strings.HasPrefix(e.GraphFrom, partOf) || index != "" && indexOf(e.Path, e.GraphFrom) != index
	})
	if len(all) == 1 {
		return all[0]
	}
	return nil
}
