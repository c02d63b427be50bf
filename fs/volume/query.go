package volume

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/formats/safetensors"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// queryRoot is .ckptfs/query: a GRAPH.json that is written to a name there is asked about when it is closed (EINVAL when it is none), and
// what the name holds from then on is the answer, a control.MatchAnswer as JSON. The last maxQueries names are kept, in memory.
//
// The model that is the answer is pinned as long as the name is there and nothing else is asked by it: NAME.safetensors, which is not listed, is its
// tensors, even if the model is removed meanwhile.
type queryRoot struct{}

const maxQueries = 64

// queries are the names in it.
type queries struct {
	mu  sync.Mutex
	all []*query // by last use
}

// query is one name.
type query struct {
	name string

	mu     sync.Mutex
	asked  []byte // what is being written
	answer []byte
	err    error // of what was asked last
	fresh  bool  // it was written since it was asked last
	large  bool  // some of what was written since then did not fit
	pin    pin
	gone   bool // the name is: nothing is pinned any more
}

// pin is what keeps an answer readable: a handle of its file, or a view of its files.
type pin struct {
	h   *Handle
	gen uint64 // of the file's bytes
	set *setView
}

func (p *pin) drop(v *Volume) {
	if p.h != nil {
		v.Release(p.h)
	}
	if p.set != nil {
		p.set.release()
	}
	*p = pin{}
}

// pinned keeps the model of a match readable, whose file n is, or of whose files it is one. What cannot be is not.
func (v *Volume) pinned(m *control.Match, n *names.Node) (p pin) {
	if safetensors.IsIndex(m.Path) {
		if set := v.models.ReadShards(m.Path); set != nil {
			if s, err := v.openSet(set); err == nil {
				p.set = s
			}
		}
		return p
	}
	if h, err := v.Open(n, unix.O_RDONLY); err == nil {
		n.File().Lock()
		defer n.File().Unlock()
		p.h, p.gen = h, n.File().StateLocked().Gen
	}
	return p
}

func (q *queries) find(name string) *query {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.IndexFunc(q.all, func(x *query) bool { return x.name == name }); i >= 0 {
		return q.all[i]
	}
	return nil
}

func (q *queries) make(v *Volume, name string) *query {
	x := &query{name: name}
	q.mu.Lock()
	q.all = append(q.all, x)
	var last *query
	if len(q.all) > maxQueries {
		last = q.all[0]
		q.all = slices.Delete(q.all, 0, 1)
	}
	q.mu.Unlock()
	if last != nil {
		last.drop(v)
	}
	return x
}

func (q *queries) remove(v *Volume, name string) bool {
	x := q.find(name)
	if x == nil {
		return false
	}
	q.mu.Lock()
	q.all = slices.DeleteFunc(q.all, func(y *query) bool { return x == y })
	q.mu.Unlock()
	x.drop(v)
	return true
}

// drop drops all pins.
func (q *queries) drop(v *Volume) {
	q.mu.Lock()
	all := slices.Clone(q.all)
	q.mu.Unlock()
	for _, x := range all {
		x.drop(v)
	}
}

// drop drops the pin.
func (q *query) drop(v *Volume) {
	q.mu.Lock()
	p := q.pin
	q.pin, q.gone = pin{}, true
	q.mu.Unlock()
	p.drop(v)
}

// ownersOnly describes what is for whom the mount's root belongs to, as answers are: they name models.
func ownersOnly(mode uint32) func(v *Volume) (tree.Attr, error) {
	return func(v *Volume) (tree.Attr, error) {
		a, err := v.Stat(v.names.Root())
		a.Mode = mode
		return a, err
	}
}

func (r queryRoot) virtual(*Volume) virtual {
	return virtual{dir: r, key: "query", stat: ownersOnly(unix.S_IFDIR | 0o700)}
}

func (queryRoot) lookup(v *Volume, name string) (virtual, error) {
	if q := v.queries.find(name); q != nil {
		return q.virtual(), nil
	}
	stem, ok := strings.CutSuffix(name, view.Suffix)
	q := v.queries.find(stem)
	if !ok || q == nil {
		return virtual{}, unix.ENOENT
	}
	q.mu.Lock()
	p := q.pin
	if p.h != nil {
		p.h.Node.Pin()
	}
	q.mu.Unlock()
	var w virtual
	var err error
	switch {
	case p.h != nil:
		w, err = v.tensorView(p.h.Node, func(f *content.File) bool { return f.StateLocked().Gen == p.gen })
	case p.set != nil && p.set.current():
		w = virtual{key: p.set, set: p.set}
	default:
		return virtual{}, unix.ENOENT
	}
	w.stat = ownersOnly(unix.S_IFREG | 0o400)
	return w, err
}

func (q *query) virtual() virtual {
	return virtual{key: q, query: q, stat: ownersOnly(unix.S_IFREG | 0o600)}
}

func (queryRoot) list(v *Volume) (out []tree.DirEntry, err error) {
	v.queries.mu.Lock()
	defer v.queries.mu.Unlock()
	for _, q := range v.queries.all {
		out = append(out, tree.DirEntry{Name: q.name, Mode: unix.S_IFREG})
	}
	return out, nil
}

// create makes a name.
func (queryRoot) create(v *Volume, name string) (virtual, error) {
	if v.queries.find(name) != nil {
		return virtual{}, unix.EEXIST
	}
	return v.queries.make(v, name).virtual(), nil
}

// remove removes a name.
func (queryRoot) remove(v *Volume, name string) error {
	if !v.queries.remove(v, name) {
		return unix.ENOENT
	}
	return nil
}

// openQuery is an open name of queryRoot.
type openQuery struct {
	v *Volume
	q *query
	w bool // it may write
}

func (o openQuery) Read(p []byte, off int64) (int, error)  { return o.q.read(p, off), nil }
func (o openQuery) Write(p []byte, off int64) (int, error) { return o.q.write(p, off) }
func (o openQuery) Close()                                 {}

func (q *query) open(v *Volume, write bool, flags uint32) (names.Opened, content.Mode, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if write && flags&unix.O_TRUNC != 0 {
		q.truncate(0)
	}
	if !write && q.err != nil {
		return nil, 0, unix.EINVAL
	}
	return openQuery{v, q, write}, content.Direct, nil
}

// truncate cuts what is being asked. q.mu is held.
func (q *query) truncate(size int64) {
	q.asked = q.asked[:min(size, int64(len(q.asked)))]
	q.answer, q.err, q.fresh, q.large = nil, nil, true, false
}

func (q *query) size() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(max(len(q.answer), len(q.asked)))
}

func (q *query) read(p []byte, off int64) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.answer
	if b == nil {
		b = q.asked
	}
	if off >= int64(len(b)) {
		return 0
	}
	return copy(p, b[off:])
}

func (q *query) write(p []byte, off int64) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.fresh {
		q.asked = q.asked[:0]
		q.truncate(0)
	}
	if off+int64(len(p)) > control.MaxGraph {
		q.large = true
		return 0, unix.EFBIG
	}
	if grow := off + int64(len(p)) - int64(len(q.asked)); grow > 0 {
		q.asked = append(q.asked, make([]byte, grow)...)
	}
	return copy(q.asked[off:], p), nil
}

// Flush asks what was written; EINVAL when that is no graph. Every close(2) comes here.
func (o openQuery) Flush(ctx context.Context) error {
	if !o.w {
		return nil
	}
	v, q := o.v, o.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.fresh {
		return q.err
	}
	q.fresh = false
	err := fmt.Errorf("match: over %d bytes, which is the most: %w", control.MaxGraph, unix.EINVAL)
	if !q.large {
		_, err = q.ask(ctx, v, control.MatchOptions{Graph: q.asked, AsKnown: true})
	}
	q.asked = nil
	q.err = err
	v.models.Judge(virtualName+"/query/"+cmp.Or(q.name, "query"), err)
	return err
}

// ask has the name hold the answer to o from now on, and pins that. q.mu is held.
func (q *query) ask(ctx context.Context, v *Volume, o control.MatchOptions) (*control.MatchAnswer, error) {
	q.pin.drop(v)
	q.answer = nil
	a, found, err := v.models.Match(ctx, o)
	if err != nil {
		return nil, err
	}
	if found != nil {
		n := found.(inspected).n
		if !q.gone {
			q.pin = v.pinned(a.Match, n)
		}
		n.Unpin()
		if q.pin != (pin{}) {
			a.Match.Pinned = path.Join(virtualName, "query", q.name+view.Suffix)
		}
	}
	q.answer, err = a.Text()
	return a, err
}

// ask asks by a name of .ckptfs/query, as who writes there does.
func (v *Volume) ask(ctx context.Context, name string, o control.MatchOptions) (*control.MatchAnswer, error) {
	if name == "." || name == ".." || strings.Contains(name, "/") || len(name)+len(view.Suffix) > unix.NAME_MAX {
		return nil, fmt.Errorf("match: %q is no name for %s/query: %w", name, virtualName, unix.EINVAL)
	}
	if v.noViews {
		return nil, fmt.Errorf("match: there is no %s/query without views: %w", virtualName, unix.EINVAL)
	}
	q := v.queries.find(name)
	if q == nil {
		q = v.queries.make(v, name)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a, err := q.ask(ctx, v, o)
	q.asked, q.fresh, q.large, q.err = nil, false, false, err
	return a, err
}
