// Package probe asks an engine whether it does what a remote relies on (package bucket), before anything is
// trusted to it. It does what a remote will do, and looks at what became of it: engines are known that drop
// the headers of conditions, that make an object on If-Match, and that keep conditions only within one of
// their nodes.
//
// An engine that fails one of the checks loses updates, and sooner or later checkpoints: it is not used.
// What a remote can do without, or has to know, is told.
package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"ckptfs/cas/remote/bucket"
)

// Check is what came of one check.
type Check struct {
	Name string `json:"name"`
	// Failed is what the engine did instead; "" if it passed.
	Failed string `json:"failed,omitempty"`
	// Needed: an engine that fails is not fit.
	Needed bool `json:"needed"`
	// Told is what else is to be known.
	Told string `json:"told,omitempty"`
}

// Report is what came of all checks.
type Report struct {
	Checks   []Check `json:"checks"`
	Requests int     `json:"requests"`
}

// Unfit are the needed checks that the engine failed.
func (r *Report) Unfit() (failed []Check) {
	for _, c := range r.Checks {
		if c.Needed && c.Failed != "" {
			failed = append(failed, c)
		}
	}
	return failed
}

// Options say how far a probe goes.
type Options struct {
	// Full adds what takes a minute: a body of 64 MiB, listings of several pages, more rounds.
	Full bool
	// Now is this machine's clock.
	Now func() time.Time
	// Progress is called before each check, which is one of n; may be nil.
	Progress func(name string, i, n int)
}

// failure is what an engine did wrong, in contrast to what kept a check from being made.
type failure string

func (f failure) Error() string        { return string(f) }
func (f failure) Is(target error) bool { return target == bucket.ErrUnfit }

func failed(format string, args ...any) error { return failure(fmt.Sprintf(format, args...)) }

// probe is one run.
type probe struct {
	Options
	ctx     context.Context
	nodes   []bucket.Bucket // the same bucket by each of the engine's endpoints
	b       bucket.Bucket   // the first
	prefix  string
	id      string // is in what is put, so that it is known again
	told    string
	counted *counter
}

// checks in the order in which they are made: what later ones build on comes first.
var checks = []struct {
	name   string
	needed bool
	full   bool
	run    func(*probe) error
}{
	{"what was put is read, listed, and gone once it is deleted", true, false, (*probe).sees},
	{"an object is created only where there is none", true, false, (*probe).creates},
	{"an object is replaced only if it is as expected", true, false, (*probe).swaps},
	{"a missing object is not made where one was expected", true, false, (*probe).swapsMissing},
	{"of several that create an object at once, one does", true, false, (*probe).creators},
	{"of several that replace an object, none undoes another", true, false, (*probe).counts},
	{"ranges of an object are read exactly", true, false, (*probe).ranges},
	{"an object that has not changed is not sent again", true, false, (*probe).unchanged},
	{"damaged bodies are refused", false, false, (*probe).damaged},
	{"the engine's clock", false, false, (*probe).clock},
	{"an object of 64 MiB is put and read", true, true, (*probe).large},
	{"listings have several pages", true, true, (*probe).pages},
}

// Run probes an engine, given by one or more endpoints of the same bucket. The error is that of a request
// that says nothing of the engine's fitness: no connection, no permission, no room.
func Run(ctx context.Context, o Options, nodes ...bucket.Bucket) (*Report, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	counted := &counter{}
	p := &probe{Options: o, ctx: ctx, counted: counted, prefix: "probe/" + random() + "/", id: random()}
	for _, n := range nodes {
		p.nodes = append(p.nodes, counting{n, counted})
	}
	p.b = p.nodes[0]
	report := &Report{}
	defer p.clean()
	n := len(checks)
	for i, c := range checks {
		if c.full && !o.Full {
			continue
		}
		if o.Progress != nil {
			o.Progress(c.name, i, n)
		}
		p.told = ""
		made := Check{Name: c.name, Needed: c.needed}
		err := c.run(p)
		var f failure
		switch {
		case errors.As(err, &f):
			made.Failed = string(f)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		made.Told = p.told
		report.Checks = append(report.Checks, made)
	}
	report.Requests = counted.n()
	return report, nil
}

// clean removes what the probe put; what remains is little, and below probe/.
func (p *probe) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 10*time.Second)
	defer cancel()
	var keys []string
	for info, err := range p.b.List(ctx, p.prefix, "") {
		if err != nil {
			return
		}
		keys = append(keys, info.Key)
	}
	_ = p.b.Delete(ctx, keys)
}

func random() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// body is something to put.
func (p *probe) body(word string) []byte { return []byte(word + " " + p.id) }

func (p *probe) put(key string, data []byte, cond bucket.Cond) (bucket.Version, error) {
	v, err := p.b.Put(p.ctx, p.prefix+key, bucket.Bytes(data), cond)
	if err == nil && v == "" {
		return "", failed("%s has no ETag", key)
	}
	return v, err
}

// is checks what an object is, as every endpoint has it; nil: that there is none.
func (p *probe) is(key string, want []byte) error {
	for _, b := range p.nodes {
		got, _, err := bucket.Read(p.ctx, b, p.prefix+key, 1<<20, "")
		switch {
		case want == nil && errors.Is(err, bucket.ErrNotFound):
		case errors.Is(err, bucket.ErrNotFound):
			return failed("%s is not there", key)
		case err != nil && !errors.Is(err, bucket.ErrTooLarge):
			return err
		case want == nil:
			return failed("%s is there, with %d bytes", key, len(got))
		case !bytes.Equal(got, want):
			return failed("%s is %.20q, not %.20q", key, got, want)
		}
	}
	return nil
}

// refuses checks that a put is refused, with one of some kinds.
func (p *probe) refuses(what, key string, cond bucket.Cond, kinds ...error) error {
	_, err := p.b.Put(p.ctx, p.prefix+key, bucket.Bytes(p.body("not to be stored")), cond)
	if err == nil {
		return failed("%s was done", what)
	}
	for _, k := range kinds {
		if errors.Is(err, k) {
			return nil
		}
	}
	return answered(what, err)
}

// answered turns the error of a request that should have been answered otherwise into a failure, unless the
// request says nothing of the engine's fitness.
func answered(what string, err error) error {
	for _, kind := range []error{bucket.ErrUnreachable, bucket.ErrDenied, bucket.ErrNoBucket, bucket.ErrFull,
		bucket.ErrBusy, bucket.ErrDoubt, bucket.ErrCut} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return failed("%s: %v", what, err)
}
