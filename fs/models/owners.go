package models

import (
	"context"

	"ckptfs/fs/control"
)

// Owners are the models that first stored tensors of a file or a set, each once; and of each tensor which of
// them did, -1 where that is not known.
func Owners(ctx context.Context, m *Models, p string, tensors []string) (of []int, all []control.Model) {
	of, all = make([]int, len(tensors)), []control.Model{}
	held := m.o.Inspect.Holders(ctx, m.o.Files.Source(p), tensors)
	by := map[string]map[string][]int{} // files, what tensors are called there, and where they are in tensors
	for i, h := range held {
		of[i] = -1
		if by[h.File] == nil {
			by[h.File] = map[string][]int{}
		}
		by[h.File][h.Tensor] = append(by[h.File][h.Tensor], i)
	}
	places := map[uint64]int{}
	_ = m.withAfterSave(ctx, func() error { // where it fails nothing is known
		for file, want := range by {
			e, err := m.oneModelLocked("owner", file)
			if err != nil || e.RetiredAt != 0 {
				continue
			}
			doc, err := m.o.Manifest(e.Manifest)
			if err != nil {
				continue
			}
			for k := range doc.Tensors {
				if k >= len(e.Owners) {
					break
				}
				name := doc.Tensors[k].Name
				for _, i := range want[name] {
					of[i] = placeLocked(m, e.Owners[k], places, &all)
				}
				delete(want, name) // the first of a name is meant
			}
		}
		return nil
	})
	return of, all
}

// placeLocked is where a model is in all, to which it is added; -1: it is not known any more.
func placeLocked(m *Models, seq uint64, places map[uint64]int, all *[]control.Model) int {
	m.mu.AssertHeld()
	if at, ok := places[seq]; ok {
		return at
	}
	e := m.book.Get(seq)
	if e == nil {
		return -1
	}
	places[seq] = len(*all)
	*all = append(*all, describe(e))
	return places[seq]
}
