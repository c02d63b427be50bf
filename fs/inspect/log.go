package inspect

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"path"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/spilled"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/index/manifest"
)

// stepsAtATime is how many steps of a run are read beside each other.
const stepsAtATime = 64

// Log lists the steps of a run, with what each added to those before it.
func (ins *Inspector) Log(ctx context.Context, p string) (*control.RunLog, error) {
	run, all, err := ins.steps.Run(ctx, "log", p)
	if err != nil {
		return nil, err
	}
	out := ins.steps.Describe(run, all)
	k := ins.logs.take(run)
	if k == nil || !k.begins(all, out) {
		k = &runLog{run: run, sharing: sharing{ins: ins, last: spilled.New(ins.spill)}}
	}
	for i := range k.added {
		k.added[i].tell(out, i)
	}
	whole, now := true, &k.sharing
	for n := len(k.steps); n < len(all); {
		held, err := ins.holdings(ctx, p, all[n:min(n+stepsAtATime, len(all))])
		if err != nil {
			return nil, err
		}
		for i := range held {
			if now == &k.sharing && out.Steps[n].State != control.StepComplete {
				now = &sharing{ins: ins, before: now, last: spilled.New(ins.spill)}
			}
			a, err := now.add(n, &held[i])
			if err != nil {
				return nil, err
			}
			a.tell(out, n)
			whole = whole && a.problem == ""
			if now == &k.sharing {
				k.steps, k.added = append(k.steps, all[n]), append(k.added, a)
			}
			n++
		}
	}
	if err := errors.Join(k.last.Err(), now.last.Err()); err != nil {
		return nil, err
	}
	if whole {
		ins.logs.keep(k)
	}
	return out, nil
}

// runLog is what the steps of a run added, from the first one on, as far as they are complete: the next who
// asks goes on from there.
type runLog struct {
	run   string
	steps []*steps.Step
	added []added
	sharing
}

// begins reports whether a run begins with these steps, and they are as they were.
func (k *runLog) begins(all []*steps.Step, now *control.RunLog) bool {
	if len(k.steps) > len(all) {
		return false
	}
	for i, st := range k.steps {
		if all[i] != st || now.Steps[i].State != control.StepComplete {
			return false
		}
	}
	return true
}

// takes is about how much memory it takes, in bytes. What lies in a file counts a little: disks have a bound,
// too.
func (k *runLog) takes() int64 {
	const step, disk = 64, 32
	return k.last.Memory() + k.last.Mapped()/disk + step*int64(len(k.steps))
}

// added is what a step added to those before it.
type added struct {
	fresh, plain int64
	from         int32 // the step that has most of its bytes; -1: none
	shared       int64 // how many
	problem      string
}

func (a *added) tell(out *control.RunLog, i int) {
	st := &out.Steps[i]
	st.NewBytes, st.PlainBytes = a.fresh, a.plain
	if a.from >= 0 {
		st.SharedWith, st.SharedBytes = out.Steps[a.from].Step, a.shared
	}
	st.Problem = cmp.Or(a.problem, st.Problem)
}

// sharing says which step was the last to have each chunk, and each list of chunks that could be read. They
// are known by the first 8 bytes of their hashes, as good as all for a sum: a run may have many millions.
type sharing struct {
	ins    *Inspector
	before *sharing       // has what is not in last; or nil
	last   *spilled.Table // steps, counted from one
}

// of is the last step that had a record.
func (s *sharing) of(h *cas.Hash) (step int32, ok bool) {
	n := s.last.At(keyOf(h), 0)
	if n == 0 && s.before != nil {
		n = s.before.last.At(keyOf(h), 0)
	}
	return int32(n) - 1, n > 0
}

func (s *sharing) note(h *cas.Hash, step int) { s.last.Set(keyOf(h), 0, uint32(step+1)) }

func keyOf(h *cas.Hash) uint64 { return binary.BigEndian.Uint64(h[:]) }

// add finds out what a step adds.
func (s *sharing) add(step int, h *holding) (added, error) {
	a := added{from: -1, plain: h.plain, problem: h.problem}
	shared := map[int32]int64{}
	one := func(hash *cas.Hash, n int64) {
		if last, ok := s.of(hash); !ok {
			a.fresh += n
		} else if int(last) != step {
			shared[last] += n
		}
		s.note(hash, step)
	}
	for _, objects := range h.objects {
		for i := range objects {
			o := &objects[i]
			if _, known := s.of(&o.Digest); known || !o.List {
				one(&o.Digest, o.Len)
				continue
			}
			spans, err := o.Spans(s.ins.store.Get)
			if missing(err) {
				a.problem = "a file's chunk list cannot be read: see check"
				continue
			}
			if err != nil {
				return a, err
			}
			for j := range spans {
				one(&spans[j].Hash, int64(spans[j].Len))
			}
			s.note(&o.Digest, step)
		}
	}
	for from, n := range shared {
		if n > a.shared || n == a.shared && from > a.from {
			a.from, a.shared = from, n
		}
	}
	return a, nil
}

// holding is what the files of a step are.
type holding struct {
	objects [][]manifest.Object // of each that is packed
	plain   int64               // bytes of those that are not
	problem string
}

// holdings looks at the files of steps of a run, of several steps at a time.
func (ins *Inspector) holdings(ctx context.Context, run string, all []*steps.Step) ([]holding, error) {
	out := make([]holding, len(all))
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(cas.Processors)
	for i, st := range all {
		g.Go(func() error { return ins.holding(inner, path.Join(run, st.Name), &out[i]) })
	}
	return out, g.Wait()
}

// holding looks at the files at or below a path. What goes meanwhile is left out.
func (ins *Inspector) holding(ctx context.Context, p string, h *holding) error {
	var buf []byte
	err := ins.files.Walk(ctx, p, func(_ string, n File) error {
		hash, err := n.Manifest()
		if err == nil && hash.IsZero() {
			var info Info
			info, err = n.Info()
			h.plain += info.Size
		}
		if err == unix.ENOENT {
			return nil
		}
		if err != nil || hash.IsZero() {
			return err
		}
		raw, err := ins.store.Get(hash, buf[:0])
		var objects []manifest.Object
		if err == nil {
			buf = raw
			objects, err = manifest.Objects(raw)
		}
		if missing(err) {
			h.problem = "a file's manifest cannot be read: see check"
			return nil
		}
		h.objects = append(h.objects, objects)
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// missing reports whether err says that something is not in the store, or damaged there.
func missing(err error) bool {
	return errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound)
}
