package sweep_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"ckptfs/cas/remote/bucket"
)

// mode is what becomes of a request.
type mode byte

const (
	done     mode = iota // it is applied and answered
	lost                 // it is applied, the answer is lost
	late                 // the answer is lost, and it is applied later, or never
	twice                // it is applied and answered, and applied once more later, or not
	ends                 // it is not sent: the process is no more
	restarts             // it is not sent: the process begins again
)

func (m mode) String() string {
	return [...]string{"", ", answer lost", ", late", ", twice", ": ends", ": restarts"}[m]
}

// request waits for the scheduler.
type request struct {
	op, key string
	changes bool
	apply   func(b bucket.Bucket) error
	failed  error // instead of what apply returned
	answer  chan struct{}
	told    func() digest // of what apply returned
	sent    digest        // tells it from all others
}

// process runs code whose requests wait, one at a time.
type process struct {
	name    string
	run     func(ctx context.Context, b bucket.Bucket) error
	wrap    func(bucket.Bucket) bucket.Bucket
	sent    chan *request // closed when run has returned
	waiting *request      // nil: it has ended
	dead    bool          // its requests are not applied any more
	err     error
	world   *world
	history digest // of what it was answered: nothing else decides what it does
}

// option is what the scheduler may do next.
type option struct {
	process int // -1: a late request
	mode    mode
	late    int // index of the request
	cost    int // deviations from running one process after the other without faults
}

// step is what it could have done, and did.
type step struct {
	options []option
	chosen  int
}

// world is a bucket with processes.
type world struct {
	mem       *bucket.Mem
	processes []*process
	current   int // of the processes: the one that does not pay for going on
	late      []*request
	past      past
	disk      func(process string) digest // what is left of a process that was ended
	// check is called after each change; final at the end.
	check, final func() error
	trace        func(format string, args ...any) // or nil
}

// wire is the bucket of one process.
type wire struct{ p *process }

func (w wire) do(op, key string, changes bool, apply func(b bucket.Bucket) error, told func() digest) error {
	r := &request{op: op, key: key, changes: changes, answer: make(chan struct{})}
	var result error
	r.told = func() digest { return told().text(fmt.Sprint(result)) }
	r.sent = w.p.history.text(op).text(key)
	r.apply = func(b bucket.Bucket) error {
		result = apply(b)
		return result
	}
	if w.p.dead {
		return &bucket.Error{Op: op, Key: key, Kind: bucket.ErrUnreachable}
	}
	w.p.sent <- r
	<-r.answer
	if r.failed != nil {
		return &bucket.Error{Op: op, Key: key, Kind: r.failed}
	}
	return result
}

func (w wire) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	r io.ReadCloser, info bucket.Info, err error) {
	err = w.do("get", key, false, func(b bucket.Bucket) (err error) {
		r, info, err = b.Get(ctx, key, off, n, unless)
		return err
	}, func() digest { return w.p.world.past.of(info.Version) })
	return r, info, err
}

func (w wire) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	r, err := body.Open()
	if err != nil {
		return "", err
	}
	p, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	var version bucket.Version
	err = w.do("put", key, true, func(b bucket.Bucket) error {
		v, err := b.Put(context.Background(), key, bucket.Bytes(p), cond)
		if err == nil {
			w.p.world.past.put(key, v, p)
		}
		if version == "" {
			version = v
		}
		return err
	}, func() digest { return w.p.world.past.of(version) })
	return version, err
}

// Delete is patient.
func (w wire) Delete(_ context.Context, keys []string) error {
	for {
		err := w.do("delete", strings.Join(keys, " "), true, func(b bucket.Bucket) error {
			w.p.world.past.deleted(keys)
			return b.Delete(context.Background(), keys)
		}, func() digest { return 0 })
		if kind, ok := err.(*bucket.Error); !ok || kind.Kind != bucket.ErrDoubt {
			return err
		}
	}
}

func (w wire) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		var found []bucket.Info
		if err := w.do("list", prefix, false, func(b bucket.Bucket) error {
			for info, err := range b.List(ctx, prefix, after) {
				if err != nil {
					return err
				}
				found = append(found, info)
			}
			return nil
		}, func() (d digest) {
			for _, info := range found {
				d = d.text(info.Key).add(w.p.world.past.of(info.Version))
			}
			return d
		}); err != nil {
			yield(bucket.Info{}, err)
			return
		}
		for _, info := range found {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// start runs the process up to its first request.
func (p *process) start() {
	p.sent = make(chan *request)
	go func() {
		defer close(p.sent)
		p.err = p.run(context.Background(), p.wrap(wire{p}))
	}()
	p.await()
}

// await waits for the process's next request, or its end.
func (p *process) await() { p.waiting = <-p.sent }

// options are what may be done next, what costs nothing first.
func (w *world) options(current int) []option {
	free := w.processes[current].waiting == nil
	var all []option
	add := func(i, cost int) {
		r := w.processes[i].waiting
		if r == nil {
			return
		}
		all = append(all, option{process: i, cost: cost})
		modes := []mode{ends, restarts}
		if r.changes {
			modes = append(modes, lost, late, twice)
		}
		for _, m := range modes {
			all = append(all, option{process: i, mode: m, cost: cost + 1})
		}
	}
	add(current, 0)
	for i := range w.processes {
		switch {
		case i == current:
		case free:
			add(i, 0)
		default:
			add(i, 1)
		}
	}
	if len(all) > 0 {
		for i := range w.late {
			all = append(all, option{process: -1, late: i, cost: 1})
		}
	}
	return all
}

// do does what was chosen.
func (w *world) do(o option) error {
	if o.process < 0 {
		r := w.late[o.late]
		w.late = slices.Delete(slices.Clone(w.late), o.late, o.late+1)
		err := r.apply(w.mem)
		w.tell("late: %s %s: %v", r.op, r.key, err)
		return w.check()
	}
	p := w.processes[o.process]
	r := p.waiting
	switch o.mode {
	case done, twice:
		err := r.apply(w.mem)
		w.tell("%s: %s %s%v: %v", p.name, r.op, r.key, o.mode, err)
	case lost:
		err := r.apply(w.mem)
		r.failed = bucket.ErrDoubt
		w.tell("%s: %s %s%v: %v", p.name, r.op, r.key, o.mode, err)
	case late:
		r.failed = bucket.ErrDoubt
		w.tell("%s: %s %s%v", p.name, r.op, r.key, o.mode)
	case ends, restarts:
		w.tell("%s: %s %s%v", p.name, r.op, r.key, o.mode)
		p.dead, r.failed = true, bucket.ErrUnreachable
	}
	p.history = r.sent.add(digest(o.mode))
	if r.failed == nil {
		p.history = p.history.add(r.told())
	}
	if o.mode == late || o.mode == twice {
		again := *r
		w.late = append(w.late, &again)
	}
	close(r.answer)
	p.await()
	if o.mode == restarts {
		p.dead, p.history = false, digest(o.process).add(w.disk(p.name))
		p.start()
	}
	if p.waiting == nil {
		w.tell("%s has ended: %v", p.name, p.err)
	}
	if !r.changes || o.mode >= late && o.mode != twice {
		return nil
	}
	return w.check()
}

func (w *world) tell(format string, args ...any) {
	if w.trace != nil {
		w.trace(format, args...)
	}
}

// run does what choose says until all processes have ended, or it says nothing: a negative number.
func (w *world) run(wrap func(process string, b bucket.Bucket) bucket.Bucket,
	choose func(step int, o []option) int) (steps []step, err error) {
	w.past.begin(w.mem)
	for i, p := range w.processes {
		p.world, p.history = w, digest(i)
		p.wrap = func(b bucket.Bucket) bucket.Bucket { return wrap(p.name, b) }
		p.start()
	}
	defer w.stop()
	for {
		o := w.options(w.current)
		if len(o) == 0 {
			break
		}
		n := choose(len(steps), o)
		if n < 0 {
			return steps, nil
		}
		steps = append(steps, step{o, n})
		if o[n].process >= 0 {
			w.current = o[n].process
		}
		if err := w.do(o[n]); err != nil {
			return steps, err
		}
		if len(steps) > 10_000 {
			return steps, fmt.Errorf("%d requests and no end", len(steps))
		}
	}
	return steps, w.final()
}

// stop lets the processes end, without effect.
func (w *world) stop() {
	for _, p := range w.processes {
		p.dead = true
		for p.waiting != nil {
			p.waiting.failed = bucket.ErrUnreachable
			close(p.waiting.answer)
			p.await()
		}
	}
}
