package record

import (
	"fmt"
	"slices"
	"strings"

	"ckptfs/cas"
)

const (
	// MaxInline bounds the bytes of a file that its entry holds.
	MaxInline = 2 << 10

	maxHow    = 32      // bytes of Model.How
	maxMerged = 1024    // of a model
	maxGraph  = 1024    // records of a graph
	maxSource = 8 << 10 // bytes of Model.Source
)

// File is what an entry says of a file.
type File struct {
	Size     int64
	Inline   string   // all bytes of a file without Manifest
	Manifest cas.Hash // zero: the file is inline
	Plan     Ref      // the record of its Plan
	Deps     []ID     // objects, ascending: Plan's, those of the plan, and those of Model.Graph
	Model    *Model   // of a file that is one and not inline; else nil
}

// Plain is a file without what says where it lies. What says so of a model's graph goes, too: it is made
// again where the model is read.
func (f *File) Plain() *File {
	out := &File{Size: f.Size, Inline: f.Inline, Manifest: f.Manifest}
	if f.Model != nil {
		m := *f.Model
		m.Graph, m.Source = nil, ""
		out.Model = &m
	}
	return out
}

// Ref is where a record lies in a meta object.
type Ref struct {
	Object ID
	Off    int64  // of the record's header, in bytes; a multiple of 8
	Stored uint32 // bytes of the payload
}

// Model is what the ledger of models says of a file.
type Model struct {
	Parent Parent // zero: there is none
	How    string // how Parent is known; "" exactly if there is none
	Merged []Parent
	Graph  []Part
	Source string // what Graph was read from, as the ledger has it
}

// Parent is a model by its file.
type Parent struct {
	Path     string   // where it was
	Manifest cas.Hash // zero: not known
}

// Part is a record of a graph.
type Part struct {
	Hash cas.Hash
	Ref
}

func (f *File) check() error {
	if f.Manifest.IsZero() {
		if f.Size != int64(len(f.Inline)) || f.Size > MaxInline || f.Plan != (Ref{}) || len(f.Deps) > 0 ||
			f.Model != nil {
			return fmt.Errorf("inline file of %d bytes", f.Size)
		}
		return nil
	}
	if f.Size < 0 || f.Inline != "" {
		return fmt.Errorf("file of %d bytes, %d of them inline", f.Size, len(f.Inline))
	}
	for i, id := range f.Deps {
		if i > 0 && compareIDs(f.Deps[i-1], id) >= 0 {
			return fmt.Errorf("dep %s after %s", id, f.Deps[i-1])
		}
	}
	if err := f.checkRef(f.Plan); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if f.Model == nil {
		return nil
	}
	for _, part := range f.Model.Graph {
		if err := f.checkRef(part.Ref); err != nil {
			return fmt.Errorf("graph: %w", err)
		}
	}
	return f.Model.Check()
}

// checkRef holds that a record can lie there, and that its object is one that the file keeps.
func (f *File) checkRef(r Ref) error {
	if _, ok := slices.BinarySearchFunc(f.Deps, r.Object, compareIDs); !ok {
		return fmt.Errorf("in object %s, which is not among the deps", r.Object)
	}
	return checkRange(r.Off, int64(r.Stored), MaxObject)
}

// Check returns an error unless an entry may have such a model, wherever its graph lies.
func (m *Model) Check() error {
	if len(m.Merged) > maxMerged || len(m.Graph) > maxGraph {
		return fmt.Errorf("model merged from %d, graph of %d records: %w", len(m.Merged), len(m.Graph),
			cas.ErrTooLarge)
	}
	if (m.Parent == Parent{}) != (m.How == "") || len(m.How) > maxHow ||
		strings.ContainsFunc(m.How, func(r rune) bool { return r < ' ' || r > '~' }) ||
		len(m.Source) > maxSource {
		return fmt.Errorf("model: parent %.60q, how %.60q, source of %d bytes", m.Parent.Path, m.How,
			len(m.Source))
	}
	if m.How != "" {
		if err := CheckPath(m.Parent.Path); err != nil {
			return fmt.Errorf("parent: %w", err)
		}
	}
	for _, p := range m.Merged {
		if err := CheckPath(p.Path); err != nil {
			return fmt.Errorf("merged from: %w", err)
		}
	}
	return nil
}
