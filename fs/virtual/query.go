package virtual

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// queryRoot is .ckptfs/query. A program writes a GRAPH.json to a name there and closes it (EINVAL when it is
// no graph). From then on the name holds the answer, a control.MatchAnswer as JSON. The last MaxQueries names
// are kept, in memory, and of these the last that hold no more than Options.IndexBytes, but one of any size.
// An answer names models of all users, and the model of an answer can be read here, so these names are for
// the daemon's user, as the control socket is.
//
// The model of the answer is pinned until the name is removed or asked again.
// NAME.safetensors, which is not listed, has the model's tensors, even if the model is removed meanwhile.
type queryRoot struct{}

// MaxQueries is how many names of .ckptfs/query are kept.
const MaxQueries = 64

// queries are the names in queryRoot.
type queries struct {
	mu  locks.Mutex[leafLock]
	all []*query // by last use
}

// query is one name.
type query struct {
	name string

	mu     locks.Mutex[queryLock]
	asked  []byte // what is being written
	answer []byte
	err    error // of the last question
	fresh  bool  // it was written since the last question
	large  bool  // a write since then did not fit
	pin    pin
	gone   bool // the name was removed: nothing is pinned any more
	lost   bool // it went since the names held too many bytes: it holds nothing any more

	bytes atomic.Int64 // of asked and answer
}

// pin is what keeps an answer readable: a handle of its file, or a view of its files.
type pin struct {
	h   *content.Handle
	n   *names.Node // of the file
	gen uint64      // of the file's bytes
	set *setView
}

func (p *pin) drop() {
	if p.h != nil {
		p.h.Release()
	}
	if p.set != nil {
		p.set.release()
	}
	*p = pin{}
}

// pinned keeps the model of a match readable. n is the model's file, or one of its files. The pin is empty if
// the model cannot be opened.
func (v *Virtual) pinned(m *control.Match, n *names.Node) (p pin) {
	if safetensors.IsIndex(m.Path) {
		if set := v.o.Models.ReadShards(m.Path); set != nil {
			if s, err := v.openSet(set); err == nil {
				p.set = s
			}
		}
		return p
	}
	if h, err := n.File().Open(unix.O_RDONLY, 0); err == nil {
		n.File().Lock()
		defer n.File().Unlock()
		p.h, p.n, p.gen = h, n, n.File().StateLocked().Gen
	}
	return p
}

// Pins are the names in .ckptfs/query whose answers keep a file open, below the mount's root.
func (v *Virtual) Pins(f *content.File) (pins []string) {
	v.queries.mu.Lock()
	all := slices.Clone(v.queries.all)
	v.queries.mu.Unlock()
	for _, q := range all {
		if !q.mu.TryLock() { // it is being asked, which drops what it pinned
			continue
		}
		if q.pin.has(f) {
			pins = append(pins, path.Join(Name, "query", q.name))
		}
		q.mu.Unlock()
	}
	return pins
}

// has reports whether a file is kept open.
func (p *pin) has(f *content.File) bool {
	if p.set != nil {
		return slices.ContainsFunc(p.set.parts, func(part setPart) bool { return part.file == f })
	}
	return p.n != nil && p.n.File() == f
}

func (q *queries) find(name string) *query {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.IndexFunc(q.all, func(x *query) bool { return x.name == name }); i >= 0 {
		return q.all[i]
	}
	return nil
}

func (q *queries) make(v *Virtual, name string) *query {
	x := &query{name: name}
	q.mu.Lock()
	q.all = append(q.all, x)
	var last *query
	if len(q.all) > MaxQueries {
		last = q.all[0]
		q.all = slices.Delete(q.all, 0, 1)
	}
	q.mu.Unlock()
	if last != nil {
		last.drop()
	}
	return x
}

// fit removes the oldest names, but not the one that has grown, until all hold few enough bytes. No query.mu
// is held.
func (q *queries) fit(grown *query, most int64) {
	var gone []*query
	q.mu.Lock()
	total := int64(0)
	for _, x := range q.all {
		total += x.bytes.Load()
	}
	q.all = slices.DeleteFunc(q.all, func(x *query) bool {
		if total <= most || x == grown || x.bytes.Load() == 0 {
			return false
		}
		total -= x.bytes.Load()
		gone = append(gone, x)
		return true
	})
	q.mu.Unlock()
	for _, x := range gone {
		x.drop()
		x.mu.Lock()
		x.asked, x.answer, x.lost = nil, nil, true
		x.weighLocked()
		x.mu.Unlock()
	}
}

// weighLocked notes how many bytes the name holds.
func (q *query) weighLocked() { q.bytes.Store(int64(cap(q.asked) + cap(q.answer))) }

func (q *queries) remove(v *Virtual, name string) bool {
	x := q.find(name)
	if x == nil {
		return false
	}
	q.mu.Lock()
	q.all = slices.DeleteFunc(q.all, func(y *query) bool { return x == y })
	q.mu.Unlock()
	x.drop()
	return true
}

// drop drops all pins.
func (q *queries) drop() {
	q.mu.Lock()
	all := slices.Clone(q.all)
	q.mu.Unlock()
	for _, x := range all {
		x.drop()
	}
}

// drop drops the pin.
func (q *query) drop() {
	q.mu.Lock()
	p := q.pin
	q.pin, q.gone = pin{}, true
	q.mu.Unlock()
	p.drop()
}

// owners describes what is the daemon's user's, whoever owns the mount's root.
func owners(mode uint32) func(v *Virtual) (tree.Attr, error) {
	return func(v *Virtual) (tree.Attr, error) {
		a, err := v.o.Names.Root().Attr()
		a.Mode, a.UID = mode, v.owner
		return a, err
	}
}

func (r queryRoot) entry(*Virtual) entry {
	return entry{dir: r, key: "query", stat: owners(unix.S_IFDIR | 0o700)}
}

func (queryRoot) lookup(ctx context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	if !v.visible(c, toOwner, nil) {
		return entry{}, unix.ENOENT
	}
	if q := v.queries.find(name); q != nil {
		return q.entry(), nil
	}
	stem, ok := strings.CutSuffix(name, view.Suffix)
	q := v.queries.find(stem)
	if !ok || q == nil {
		return entry{}, unix.ENOENT
	}
	q.mu.Lock()
	p := q.pin
	if p.h != nil {
		p.n.Pin()
	}
	q.mu.Unlock()
	var w entry
	var err error
	switch {
	case p.h != nil:
		w, err = v.tensorView(p.n, func(f *content.File) bool { return f.StateLocked().Gen == p.gen })
	case p.set != nil && p.set.current():
		w = entry{key: p.set, set: p.set}
	default:
		return entry{}, unix.ENOENT
	}
	w.sight, w.stat = toOwner, owners(unix.S_IFREG|0o400)
	return w, err
}

func (q *query) entry() entry {
	return entry{key: q, query: q, sight: toOwner, stat: owners(unix.S_IFREG | 0o600)}
}

func (queryRoot) list(v *Virtual, c *tree.Asker) (out []tree.DirEntry, err error) {
	if !v.visible(c, toOwner, nil) {
		return nil, unix.EACCES
	}
	v.queries.mu.Lock()
	defer v.queries.mu.Unlock()
	for _, q := range v.queries.all {
		out = append(out, tree.DirEntry{Name: q.name, Mode: unix.S_IFREG})
	}
	return out, nil
}

// create makes a name.
func (queryRoot) create(v *Virtual, name string) (entry, error) {
	if v.queries.find(name) != nil {
		return entry{}, unix.EEXIST
	}
	return v.queries.make(v, name).entry(), nil
}

// remove removes a name.
func (queryRoot) remove(v *Virtual, name string) error {
	if !v.queries.remove(v, name) {
		return unix.ENOENT
	}
	return nil
}

// openQuery is an open name of queryRoot.
type openQuery struct {
	v *Virtual
	q *query
	w bool // it may write
}

func (o openQuery) Read(p []byte, off int64) (int, error) { return o.q.read(p, off), nil }
func (o openQuery) Write(p []byte, off int64) (int, error) {
	defer o.v.queries.fit(o.q, o.v.o.IndexBytes)
	return o.q.write(p, off)
}
func (o openQuery) Close() {}

func (q *query) open(v *Virtual, write bool, flags uint32) (names.Opened, content.Mode, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if write && flags&unix.O_TRUNC != 0 {
		q.truncateLocked(0)
	}
	if !write && q.err != nil {
		return nil, 0, unix.EINVAL
	}
	return openQuery{v, q, write}, content.Direct, nil
}

// truncateLocked truncates the graph that is being written. query.mu is held.
func (q *query) truncateLocked(size int64) {
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
	if q.lost {
		return 0, unix.ENOMEM
	}
	defer q.weighLocked()
	if !q.fresh {
		q.asked = q.asked[:0]
		q.truncateLocked(0)
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

// Flush asks about the graph that was written; EINVAL when it is none. Every close(2) comes here.
func (o openQuery) Flush(ctx context.Context) error {
	if !o.w {
		return nil
	}
	v, q := o.v, o.q
	defer v.queries.fit(q, v.o.IndexBytes)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lost {
		return control.Invalid("match: other queries took the room of this one")
	}
	defer q.weighLocked()
	if !q.fresh {
		return q.err
	}
	q.fresh = false
	var err error = control.Invalid("match: over %d bytes, which is the most", control.MaxGraph)
	if !q.large {
		_, err = q.askLocked(ctx, v, control.MatchOptions{Graph: q.asked, AsKnown: true})
	}
	q.asked = nil
	q.err = err
	v.o.Models.Judge(Name+"/query/"+cmp.Or(q.name, "query"), err)
	return err
}

// askLocked finds the answer to o, which the name holds from now on, and pins its model. query.mu is held.
func (q *query) askLocked(
	ctx context.Context, v *Virtual, o control.MatchOptions,
) (*control.MatchAnswer, error) {
	q.pin.drop()
	q.answer = nil
	a, found, err := v.o.Models.Match(ctx, o)
	if err != nil {
		return nil, err
	}
	if found != nil {
		n := v.o.NodeOf(found)
		if !q.gone {
			q.pin = v.pinned(a.Match, n)
		}
		n.Unpin()
		if q.pin != (pin{}) {
			a.Match.Pinned = path.Join(Name, "query", q.name+view.Suffix)
		}
	}
	q.answer, err = a.Text()
	return a, err
}

// Ask asks o in a name of .ckptfs/query, as a program does that writes there. EINVAL when name cannot be one.
func (v *Virtual) Ask(
	ctx context.Context, name string, o control.MatchOptions,
) (*control.MatchAnswer, error) {
	dots := name == "." || name == ".."
	if dots || strings.Contains(name, "/") || len(name)+len(view.Suffix) > unix.NAME_MAX {
		return nil, control.Invalid("match: %q is no name for %s/query", name, Name)
	}
	if v.o.Off {
		return nil, control.Invalid("match: there is no %s/query without views", Name)
	}
	q := v.queries.find(name)
	if q == nil {
		q = v.queries.make(v, name)
	}
	defer v.queries.fit(q, v.o.IndexBytes)
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.weighLocked()
	a, err := q.askLocked(ctx, v, o)
	q.asked, q.fresh, q.large, q.err = nil, false, false, err
	return a, err
}
