package models

import (
	"cmp"
	"context"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
	"ckptfs/index/runs"
)

// departures are packed files that lost their last name since the last look. Those that the ledger never had
// become tombstones: what comes from them may say so.
type departures struct {
	mu    locks.Mutex[leafLock]
	files []departed
}

// departed is such a file.
type departed struct {
	path     string
	ino      uint64
	manifest cas.Hash
	mtime    int64
}

// maxDeparted bounds how many are remembered. A file is entered about a second after it was packed, so few
// are removed before.
const maxDeparted = 1 << 14

// Removed tells m that a packed file lost its last name. Its File.mu may be held. What lies in a remote alone
// is entered by what was told of it.
func Removed(m *Models, path string, ino uint64, r Record) {
	run, step, _ := steps.In(path)
	if step == "" || steps.Unfinished(run) || steps.Unfinished(step) || m.o.ReadOnly || r.Remote {
		return
	}
	m.departures.add(departed{path, ino, r.Manifest, r.Mtime})
	if m.version.Load() != 0 { // else what is not entered is stale already
		m.stale.Store(true)
	}
}

func (d *departures) add(files ...departed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = append(d.files, files[:min(len(files), maxDeparted-len(d.files))]...)
}

func (d *departures) take() []departed {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := d.files
	d.files = nil
	return files
}

// unknown are those of the departed files that the ledger has no entry of.
func (s *reconciler) unknown(gone []departed) []departed {
	return slices.DeleteFunc(gone, func(d departed) bool {
		return s.byManifest(record.Parent{Path: d.path, Manifest: d.manifest}) != nil
	})
}

// buryLocked makes tombstones of files that have no name any more.
func (s *reconciler) buryLocked(ctx context.Context, gone []departed) error {
	slices.SortStableFunc(gone, func(a, b departed) int { return cmp.Compare(a.mtime, b.mtime) })
	for _, d := range gone {
		if err := ctx.Err(); err != nil {
			return err
		}
		m := s.modelManifest(d.manifest)
		if m == nil {
			continue
		}
		e := &ledger.Entry{Manifest: d.manifest, Path: d.path, Time: d.mtime, Size: m.Size,
			Tensors: len(m.Tensors)}
		if e.Parent = s.predecessorLocked(&d); e.Parent != 0 {
			e.How = lineage.Previous
		}
		e.Seq = s.book.Next()
		if err := s.book.AddRetired(e, s.o.Now().UnixNano()); err != nil {
			return err
		}
	}
	return nil
}

// predecessorLocked is what a file was before it was written again, else its counterpart in the step before;
// 0: there is none. What its step declared went with the step.
func (s *reconciler) predecessorLocked(d *departed) uint64 {
	if e := s.book.ByIno(d.ino); e != nil && e.Path == d.path {
		return e.Seq
	}
	run, name, rel := steps.In(d.path)
	for _, st := range slices.Backward(s.found[run]) {
		if runs.Compare(st.Name, name) < 0 && s.o.Steps.State(st) == control.StepComplete {
			if seq := s.counterpartLocked(run, st, rel); seq != 0 {
				return seq
			}
		}
	}
	return 0
}
