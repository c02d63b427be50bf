package inspect

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"path"
	"slices"

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

// Log lists the steps of a run, with what each added to those before it. All are counted first, so the
// caller may take them slowly.
func (ins *Inspector) Log(ctx context.Context, p string, to control.Listed) (*control.RunLog, error) {
	run, all, err := ins.steps.Run(ctx, "log", p)
	if err != nil {
		return nil, err
	}
	state := ins.steps.States()
	counted, err := ins.count(ctx, run, all, state)
	if err != nil {
		return nil, err
	}
	out, n := &control.RunLog{Run: run, Steps: []control.Step{}}, 0
	describe := func(some []control.Step) {
		for i := range some {
			st := &some[i]
			steps.Describe(all[n], state, st)
			counted[n].tell(st, all)
			n++
		}
	}
	if to == nil {
		out.Steps = make([]control.Step, len(all))
		describe(out.Steps)
		return out, nil
	}
	some := make([]control.Step, stepsAtATime)
	for n < len(all) {
		some = some[:min(len(some), len(all)-n)]
		describe(some)
		if err := to(some); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Recoded is told that chunks are stored otherwise by now.
func (ins *Inspector) Recoded() { ins.logs.drop() }

// count finds out what each step of a run added.
func (ins *Inspector) count(ctx context.Context, run string, all []*steps.Step,
	state func(*steps.Step) string) ([]added, error) {
	k := ins.logs.take(run)
	if k != nil {
		if follows, err := k.follow(ctx, all, state); err != nil {
			return nil, err
		} else if !follows {
			k = nil
		}
	}
	if k == nil {
		k = &runLog{run: run, sharing: sharing{ins: ins, last: spilled.New(ins.spill)}}
	}
	counted := append(make([]added, 0, len(all)), k.added...)
	whole, now := true, &k.sharing
	for n := len(k.steps); n < len(all); {
		held, err := ins.holdings(ctx, run, all[n:min(n+stepsAtATime, len(all))])
		if err != nil {
			if whole && ctx.Err() != nil {
				ins.logs.keep(k)
			}
			return nil, err
		}
		for i := range held {
			if now == &k.sharing && (held[i].waits || state(all[n]) == control.StepWriting) {
				now = &sharing{ins: ins, before: now, last: spilled.New(ins.spill)}
			}
			a, err := now.add(n, &held[i])
			if err != nil {
				return nil, err
			}
			counted = append(counted, a)
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
	return counted, nil
}

// runLog is what the steps of a run added, from the first one on, up to the first new one that is being
// written or waits to be packed: the next who asks goes on from there.
type runLog struct {
	run   string
	steps []*steps.Step
	added []added
	sharing
}

// follow counts those steps again that changed since, or waited to be packed. false: all are to be counted
// again.
func (k *runLog) follow(ctx context.Context, all []*steps.Step,
	state func(*steps.Step) string) (bool, error) {
	if len(k.steps) > len(all) {
		return false, nil
	}
	var changed []int
	for i, st := range k.steps {
		if all[i].Name != st.Name {
			return false, nil
		}
		if all[i] != st || k.added[i].waits || state(all[i]) == control.StepWriting {
			k.steps[i], changed = all[i], append(changed, i)
		}
	}
	for some := range slices.Chunk(changed, stepsAtATime) {
		if same, err := k.again(ctx, some); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// again counts some steps again, in ascending order. false: all are to be counted again.
func (k *runLog) again(ctx context.Context, some []int) (bool, error) {
	of := make([]*steps.Step, len(some))
	for j, i := range some {
		of[j] = k.steps[i]
	}
	held, err := k.ins.holdings(ctx, k.run, of)
	if err != nil {
		return false, err
	}
	other := map[int]*holding{}
	for j, i := range some {
		h := &held[j]
		if h.problem != "" {
			return false, nil
		}
		k.added[i].plain, k.added[i].waits = h.plain, h.waits
		if h.packed != k.added[i].packed {
			other[i] = h
		}
	}
	alone := k.aloneOf(other)
	for i, h := range other {
		if told, err := k.replace(&k.added[i], i, h, alone[i]); !told || err != nil {
			return false, err
		}
	}
	return true, nil
}

// takes is about how much memory it takes, in bytes. What lies in a file counts a little: disks have a bound,
// too.
func (k *runLog) takes() int64 {
	const step, disk = 120, 32
	return k.last.Memory() + k.last.Mapped()/disk + step*int64(len(k.steps))
}

// added is what a step added to those before it.
type added struct {
	fresh, plain int64
	stored       int64 // what the records take that are fresh
	from         int32 // the step that has most of its bytes; -1: none
	shared       int64 // how many
	problem      string

	packed packed
	has    has  // chunks and lists that were noted of it
	waits  bool // some of its files were to be packed: it is another behind that, and has not changed
}

// tell adds it to what is said of a step of these.
func (a *added) tell(st *control.Step, all []*steps.Step) {
	st.NewBytes, st.StoredBytes, st.PlainBytes = a.fresh, a.stored, a.plain
	if a.from >= 0 {
		st.SharedWith, st.SharedBytes = all[a.from].Name, a.shared
	}
	st.Problem = cmp.Or(a.problem, st.Problem)
}

// holding is what the files of a step are.
type holding struct {
	objects   [][]manifest.Object // of each that is packed
	manifests []cas.Hash          // of the same
	packed    packed
	plain     int64 // bytes of those that are not
	waits     bool  // some of these are to be packed
	problem   string
}

// packed tells sets of manifests apart: a sum of the beginnings of their hashes.
type packed struct {
	files int
	sum   [2]uint64
}

func (p *packed) add(h *cas.Hash) {
	p.files++
	p.sum[0] += binary.BigEndian.Uint64(h[:])
	p.sum[1] += binary.BigEndian.Uint64(h[8:])
}

// holdings looks at the files of steps of a run, of several steps at a time.
func (ins *Inspector) holdings(ctx context.Context, run string, all []*steps.Step) ([]holding, error) {
	out := make([]holding, len(all))
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(cas.Processors)
	for i, st := range all {
		g.Go(func() error { return ins.holding(inner, path.Join(steps.Dir, run, st.Name), &out[i]) })
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
			h.waits = h.waits || info.Waits
		}
		if err == unix.ENOENT {
			return nil
		}
		if err != nil || hash.IsZero() {
			return err
		}
		h.packed.add(&hash)
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
		h.objects, h.manifests = append(h.objects, objects), append(h.manifests, hash)
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
