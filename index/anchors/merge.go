package anchors

import (
	"fmt"
	"os"
	"path"
	"slices"

	"ckptfs/cas"
)

// growth is how many times as many entries a run has at least as what comes behind it.
const growth = 4

// flush makes a run of the log, and of the runs before it that are not much larger, or of all. What is noted
// meanwhile goes to the next log. The caller has the value of merging.
func (x *Index) flush(all bool) error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return errClosed
	}
	x.dropBadLocked()
	old := x.log
	next, err := newLog(x.fs, x.dir, x.opt.Store, old.number+1)
	if err != nil {
		x.mu.Unlock()
		return err
	}
	old.sort()
	from, sum, tensors := len(x.runs), int64(len(old.entries)), int64(len(old.tensors))
	for ; from > 0; from-- {
		r := x.runs[from-1]
		if tensors += r.tensors.n; tensors > maxTensors || !all && r.entries.n >= growth*sum {
			break
		}
		sum += r.entries.n
	}
	merged := slices.Clone(x.runs[from:])
	x.log, x.frozen = next, old
	x.mu.Unlock()
	r, err := x.write(merged, old)
	for err != nil && slices.ContainsFunc(merged, func(r *run) bool { return r.bad.Load() }) {
		merged = slices.DeleteFunc(merged, func(r *run) bool { return r.bad.Load() })
		r, err = x.write(merged, old)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.frozen = nil
	x.dropBadLocked()
	if err != nil {
		// What it had is noted again when it is looked for again.
		x.dropped.Store(true)
		old.remove(x.fs)
		return err
	}
	x.runs = slices.DeleteFunc(x.runs, func(r *run) bool { return slices.Contains(merged, r) })
	if r != nil {
		x.runs = append(x.runs, r)
	}
	for _, r := range merged {
		r.remove(x.fs)
	}
	old.remove(x.fs)
	return nil
}

// dropBadLocked removes the runs that are damaged.
func (x *Index) dropBadLocked() {
	x.mu.AssertHeld()
	x.runs = slices.DeleteFunc(x.runs, func(r *run) bool {
		bad := r.bad.Load()
		if bad {
			x.dropped.Store(true)
			r.remove(x.fs)
		}
		return bad
	})
}

// source is a run, or the log, that is merged.
type source struct {
	to   []uint32 // the new numbers of its tensors; gone: they are left out
	next func() (entry uint64, ok bool, err error)
	each func(f func(m cas.Hash, tensor uint32) bool) error
	r    *run // nil: the log

	entry uint64 // the next one
	ok    bool   // there is one
}

const gone = ^uint32(0)

// step goes to the next entry of a tensor that there is.
func (s *source) step() error {
	for {
		was := s.entry
		var err error
		if s.entry, s.ok, err = s.next(); err != nil || !s.ok {
			return err
		}
		if s.entry < was {
			return corrupt("entries out of order")
		}
		if o := s.entry & (maxTensors - 1); o < uint64(len(s.to)) && s.to[o] != gone {
			return nil
		}
	}
}

func sourceOfLog(l *log) *source {
	at := 0
	return &source{
		to: make([]uint32, len(l.tensors)),
		next: func() (uint64, bool, error) {
			if at == len(l.entries) {
				return 0, false, nil
			}
			at++
			return l.entries[at-1], true, nil
		},
		each: func(f func(m cas.Hash, tensor uint32) bool) error {
			l.each(f)
			return nil
		},
	}
}

func sourceOfRun(r *run) *source {
	in := reader{f: r.f, s: r.entries}
	return &source{
		to: make([]uint32, r.tensors.n),
		next: func() (uint64, bool, error) {
			p, err := in.next()
			if err != nil || p == nil {
				return 0, false, err
			}
			return be.Uint64(p), true, nil
		},
		each: func(f func(m cas.Hash, tensor uint32) bool) error {
			_, err := r.each(f)
			return err
		},
		r: r,
	}
}

// write makes one run of some that come one behind the other, and of a log; nil when nothing is left.
func (x *Index) write(runs []*run, l *log) (*run, error) {
	h := header{store: x.opt.Store, first: l.number, last: l.number}
	var sources []*source
	for _, r := range runs {
		h.first = min(h.first, r.first)
		sources = append(sources, sourceOfRun(r))
	}
	sources = append(sources, sourceOfLog(l))
	for _, s := range sources {
		if err := s.failed(x.number(s, &h)); err != nil {
			return nil, err
		}
	}
	if h.tensors == 0 {
		return nil, nil
	}
	name := path.Join(x.dir, fmt.Sprintf(runName, h.first, h.last))
	tmp := name + ".new"
	f, err := x.fs.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	r := &run{f: f, path: name, first: h.first, last: h.last}
	w := &writer{f: f, page: 1}
	err = r.writeAll(w, sources, &h)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = x.fs.Rename(tmp, name)
	}
	if err == nil {
		err = x.fs.SyncDir(x.dir)
	}
	if err != nil {
		f.Close()
		x.fs.Remove(tmp)
		return nil, err
	}
	r.size = w.page * pageSize
	return r, nil
}

// failed marks a run that cannot be read.
func (s *source) failed(err error) error {
	if err != nil && s.r != nil {
		s.r.bad.Store(true)
	}
	return err
}

// number gives the tensors of s that are still there new numbers, and counts them.
func (x *Index) number(s *source, h *header) error {
	var of cas.Hash
	var first, alive = true, false
	o := 0
	return s.each(func(m cas.Hash, _ uint32) bool {
		if first || m != of {
			if of, first, alive = m, false, x.opt.Alive == nil || x.opt.Alive(m); alive {
				h.manifests++
			} else {
				x.dropped.Store(true)
			}
		}
		s.to[o] = gone
		if alive {
			s.to[o] = h.tensors
			h.tensors++
		}
		o++
		return o < len(s.to)
	})
}

func (r *run) writeAll(w *writer, sources []*source, h *header) error {
	w.begin(8)
	for _, s := range sources {
		if err := s.failed(s.step()); err != nil {
			return err
		}
	}
	for w.err == nil {
		var least *source
		var entry uint64
		for _, s := range sources {
			if !s.ok {
				continue
			}
			e := s.entry&^(maxTensors-1) | uint64(s.to[s.entry&(maxTensors-1)])
			if least == nil || e < entry {
				least, entry = s, e
			}
		}
		if least == nil {
			break
		}
		if w.add(put(entry)) {
			r.fences = append(r.fences, uint32(entry>>(64-32)))
		}
		if err := least.failed(least.step()); err != nil {
			return err
		}
	}
	r.entries = w.end()
	h.entries = uint64(r.entries.n)
	w.begin(8)
	var manifests uint32
	err := eachAlive(sources, func(first bool, _ cas.Hash, tensor uint32) {
		if first {
			manifests++
		}
		w.add(put(uint64(manifests-1)<<32 | uint64(tensor)))
	})
	if err != nil {
		return err
	}
	r.tensors = w.end()
	w.begin(cas.HashSize)
	err = eachAlive(sources, func(first bool, m cas.Hash, _ uint32) {
		if first {
			w.add(m[:])
		}
	})
	if err != nil {
		return err
	}
	r.manifests = w.end()
	w.begin(4)
	for _, top := range r.fences {
		w.add(be.AppendUint32(nil, top))
	}
	w.end()
	w.flush()
	if w.err == nil {
		_, w.err = w.f.WriteAt(h.page(), 0)
	}
	return w.err
}

// eachAlive calls f with the tensors of all sources that are still there, in their order.
func eachAlive(sources []*source, f func(first bool, m cas.Hash, tensor uint32)) error {
	for _, s := range sources {
		var of cas.Hash
		first := true
		o := 0
		err := s.each(func(m cas.Hash, tensor uint32) bool {
			if s.to[o] != gone {
				f(first || m != of, m, tensor)
				first, of = false, m
			}
			o++
			return o < len(s.to)
		})
		if err := s.failed(err); err != nil {
			return err
		}
	}
	return nil
}
