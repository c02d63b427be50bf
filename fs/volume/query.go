package volume

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// queryRoot is .ckptfs/query: a GRAPH.json that is written to a name there is asked about when it is closed (EINVAL when it is none), and
// what the name holds from then on is the answer, a control.MatchAnswer as JSON. The last maxQueries names are kept, in memory.
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
}

func (q *queries) find(name string) *query {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.IndexFunc(q.all, func(x *query) bool { return x.name == name }); i >= 0 {
		return q.all[i]
	}
	return nil
}

func (q *queries) make(name string) *query {
	q.mu.Lock()
	defer q.mu.Unlock()
	x := &query{name: name}
	q.all = append(q.all, x)
	if len(q.all) > maxQueries {
		q.all = slices.Delete(q.all, 0, 1)
	}
	return x
}

func (q *queries) remove(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.all)
	q.all = slices.DeleteFunc(q.all, func(x *query) bool { return x.name == name })
	return len(q.all) < n
}

// An answer names models: it is for whom the mount's root belongs to.
func (r queryRoot) virtual(*Volume) virtual {
	return virtual{dir: r, key: "query", stat: func(v *Volume) (Attr, error) {
		a, err := v.Stat(v.root)
		a.Mode = unix.S_IFDIR | 0o700
		return a, err
	}}
}

func (queryRoot) lookup(v *Volume, name string) (virtual, error) {
	if q := v.queries.find(name); q != nil {
		return q.virtual(), nil
	}
	return virtual{}, unix.ENOENT
}

func (q *query) virtual() virtual {
	return virtual{key: q, query: q, stat: func(v *Volume) (Attr, error) {
		a, err := v.Stat(v.root)
		a.Mode = unix.S_IFREG | 0o600
		return a, err
	}}
}

func (queryRoot) list(v *Volume) (out []DirEntry, err error) {
	v.queries.mu.Lock()
	defer v.queries.mu.Unlock()
	for _, q := range v.queries.all {
		out = append(out, DirEntry{Name: q.name, Mode: unix.S_IFREG})
	}
	return out, nil
}

// isQueries reports whether a directory is queryRoot.
func (n *Node) isQueries() bool {
	if n.virt == nil {
		return false
	}
	_, ok := n.virt.dir.(queryRoot)
	return ok
}

// createQuery makes a name in queryRoot and opens it.
func (v *Volume) createQuery(dir *Node, name string, flags uint32) (*Node, Attr, *Handle, error) {
	if v.queries.find(name) != nil {
		return nil, Attr{}, nil, unix.EEXIST
	}
	n := v.internVirtual(dir, name, v.queries.make(name).virtual())
	a, err := v.statVirtual(n)
	if err != nil {
		v.unref(n, 1)
		return nil, Attr{}, nil, err
	}
	h, err := v.openQuery(n, flags)
	if err != nil {
		v.unref(n, 1)
		return nil, Attr{}, nil, err
	}
	return n, a, h, nil
}

func (v *Volume) openQuery(n *Node, flags uint32) (*Handle, error) {
	q := n.virt.query
	write := flags&unix.O_ACCMODE != unix.O_RDONLY
	q.mu.Lock()
	defer q.mu.Unlock()
	if write && flags&unix.O_TRUNC != 0 {
		q.truncate(0)
	}
	if !write && q.err != nil {
		return nil, unix.EINVAL
	}
	v.ref(n)
	v.count.handles.Add(1)
	return &Handle{Node: n, Mode: Direct, write: write}, nil
}

// truncate cuts what is being asked. q.mu is held.
func (q *query) truncate(size int64) {
	q.asked = q.asked[:min(size, int64(len(q.asked)))]
	q.answer, q.err, q.fresh = nil, nil, true
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
	if off+int64(len(p)) > control.MaxGraph {
		return 0, unix.EFBIG
	}
	if !q.fresh {
		q.asked = q.asked[:0]
		q.truncate(0)
	}
	if grow := off + int64(len(p)) - int64(len(q.asked)); grow > 0 {
		q.asked = append(q.asked, make([]byte, grow)...)
	}
	return copy(q.asked[off:], p), nil
}

// Answer asks what was written by a handle, if it is one of a query; EINVAL when that is no graph. Every close(2) comes here.
func (v *Volume) Answer(ctx context.Context, h *Handle) error {
	if h.Node.virt == nil || h.Node.virt.query == nil || !h.write {
		return nil
	}
	q := h.Node.virt.query
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.fresh {
		return q.err
	}
	q.fresh = false
	a, err := v.Match(ctx, control.MatchOptions{Graph: q.asked})
	q.asked = nil
	if err == nil {
		q.answer, err = json.MarshalIndent(a, "", "  ")
		q.answer = append(q.answer, '\n')
	}
	q.err = err
	if err != nil {
		v.models.refuse(virtualName+"/query/"+cmp.Or(q.name, "query"), err)
	}
	return err
}
