package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
)

// Machines write, write over, rename, remove, push and pull, against a model that keeps every version: one
// goes only by a change of somebody who had seen it. Contents are told apart by their sizes.
func TestShareAgainstModel(t *testing.T) {
	paths := rapid.SampledFrom([]string{"runs/x/1/a", "runs/x/1/b", "runs/x/1/c"})
	rapid.Check(t, func(rt *rapid.T) {
		m := &shareModel{rt: rt, c: newCloud(t), live: map[string]map[int]version{}}
		for i := range 3 {
			one := &modelled{machine: m.c.join(fmt.Sprint("m", i)), i: i, names: map[string]*modelName{}}
			one.mkdir("runs/x/1")
			m.all = append(m.all, one)
			defer one.end()
		}
		who := func(rt *rapid.T) *modelled { return m.all[rapid.IntRange(0, 2).Draw(rt, "machine")] }
		rt.Repeat(map[string]func(*rapid.T){
			"write":  func(rt *rapid.T) { m.write(who(rt), paths.Draw(rt, "path")) },
			"remove": func(rt *rapid.T) { m.remove(who(rt), paths.Draw(rt, "path")) },
			"rename": func(rt *rapid.T) {
				m.rename(who(rt), paths.Draw(rt, "from"), paths.Draw(rt, "to"))
			},
			"push":  func(rt *rapid.T) { m.push(who(rt)) },
			"pull":  func(rt *rapid.T) { m.pull(who(rt)) },
			"drop":  func(rt *rapid.T) { m.drop(who(rt)) },
			"again": func(rt *rapid.T) { who(rt).again() },
			"":      func(*rapid.T) { m.check() },
		})
	})
}

// version is what a machine committed of a path; of size 0 a removal.
type version struct{ origin, size int }

// modelName is what a machine's tree has to show of a path.
type modelName struct {
	size  int   // 0: nothing
	known int   // size that the machine knows the remote to have; 0: it knows of no such name
	base  []int // versions that it had seen before it changed it
	came  bool  // it was removed or moved away, and a file was moved there since
}

type modelled struct {
	*machine
	i     int
	names map[string]*modelName
	has   map[string]int   // sizes that the remote had at the last fetch
	bases map[string][]int // versions then
}

func (one *modelled) end() { one.close() }

func (one *modelled) name(p string) *modelName {
	if one.names[p] == nil {
		one.names[p] = &modelName{}
	}
	return one.names[p]
}

// shareModel is what the remote has to hold.
type shareModel struct {
	rt   *rapid.T
	c    *cloud
	all  []*modelled
	next int
	live map[string]map[int]version // what nothing replaces, by path
}

func (m *shareModel) write(one *modelled, p string) {
	m.next++
	size := 10 + m.next
	if m.next%3 == 0 {
		size += record.MaxInline
	}
	one.write(p, bytes.Repeat([]byte{byte(m.next)}, size))
	one.name(p).size, one.name(p).came = size, false
}

func (m *shareModel) remove(one *modelled, p string) {
	if n := one.name(p); n.size > 0 {
		one.unlink(p)
		n.size = 0
		m.appears(one, p)
	}
}

func (m *shareModel) rename(one *modelled, from, to string) {
	if a, b := one.name(from), one.name(to); a.size > 0 && from != to {
		one.rename(from, to)
		b.came = b.size == 0 && b.known > 0
		a.size, b.size = 0, a.size
		m.appears(one, from)
	}
}

func (m *shareModel) push(one *modelled) {
	p, err := one.Push(context.Background(), "", control.PushOptions{}, nil)
	if err != nil || len(p.Skipped) > 0 {
		m.rt.Fatalf("push: %+v, %v", p, err)
	}
	for p, n := range one.names {
		if n.size == n.known {
			continue
		}
		if m.live[p] == nil {
			m.live[p] = map[int]version{}
		}
		maps.DeleteFunc(m.live[p], func(v int, x version) bool {
			return x.origin == one.i || slices.Contains(n.base, v)
		})
		m.next++
		m.live[p][m.next] = version{one.i, n.size}
		n.known, n.base, n.came = n.size, []int{m.next}, false
	}
	m.see(one, m.remote(one))
}

// drop leaves to the remote what it has, and fetches first: no name shows more of it.
func (m *shareModel) drop(one *modelled) {
	m.see(one, m.remote(one))
	if _, err := one.Drop(context.Background(), "", nil); err != nil && !errors.Is(err, unix.ENOENT) {
		m.rt.Fatalf("drop: %v", err)
	}
	one.prune(control.PruneOptions{})
}

// appears shows what another had hidden that went.
func (m *shareModel) appears(one *modelled, p string) {
	if n := one.name(p); n.known == 0 && one.has[p] > 0 {
		n.size, n.known, n.base = one.has[p], one.has[p], one.bases[p]
	}
}

// see has a machine's tree show what others published, but for what was changed here.
func (m *shareModel) see(one *modelled, has map[string]int) {
	one.has, one.bases = has, map[string][]int{}
	for p := range has {
		one.bases[p] = slices.Collect(maps.Keys(m.live[p]))
	}
	for p, n := range one.names {
		switch {
		case n.size != n.known || n.size == 0 || has[p] > 0:
		case n.came: // it is nobody's but this machine's
			n.known = 0
		default:
			*n = modelName{}
		}
	}
	for p, size := range has {
		n := one.name(p)
		switch {
		case n.size == size:
		case n.size != n.known: // changed here: it stays
			continue
		}
		*n = modelName{size: size, known: size, base: one.bases[p]}
	}
}

// remote fails unless the remote has what it has to, and returns the sizes of its names.
func (m *shareModel) remote(one *modelled) map[string]int {
	if _, err := one.Fetch(context.Background()); err != nil {
		m.rt.Fatalf("fetch: %v", err)
	}
	found, has := map[string]map[int]bool{}, map[string]int{}
	for _, n := range m.c.nodes("runs/x/1") {
		if n.Folder {
			continue
		}
		found[n.Path] = map[int]bool{}
		if n.Name != nil {
			has[n.Path] = int(n.Name.File.Size)
			found[n.Path][has[n.Path]] = true
		}
		for _, e := range n.Conflicts {
			found[n.Path][int(e.File.Size)] = true
		}
	}
	for p, versions := range m.live {
		want := map[int]bool{}
		for _, x := range versions {
			if x.size > 0 {
				want[x.size] = true
			}
		}
		if !maps.Equal(want, found[p]) && len(want)+len(found[p]) > 0 {
			m.rt.Fatalf("the remote has %v of %s, and not %v", found[p], p, want)
		}
	}
	return has
}

func (m *shareModel) pull(one *modelled) {
	one.sync() // else a pull leaves what may have to be packed
	has := m.remote(one)
	m.see(one, has)
	_, err := one.Pull(context.Background(), "", nil)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		m.rt.Fatalf("pull: %v", err)
	}
	m.see(one, has)
}

// check compares the trees.
func (m *shareModel) check() {
	for _, one := range m.all {
		for p, n := range one.names {
			if n.size > 0 && (n.size == n.known || n.came) && n.size != one.has[p] &&
				m.shows(one, p, one.has[p]) {
				// It was moved away and came back as it is known, and is as the last fetch said.
				*n = modelName{size: one.has[p], known: one.has[p], base: one.bases[p]}
			}
			switch {
			case one.exists(p) != (n.size > 0):
				m.rt.Fatalf("machine %d: %s is there: %v", one.i, p, n.size == 0)
			case n.size > 0 && len(one.read(p)) != n.size:
				m.rt.Fatalf("machine %d: %s has %d bytes, not %d", one.i, p, len(one.read(p)), n.size)
			}
		}
	}
}

// shows reports whether a machine's tree has a path with that many bytes; 0: not at all.
func (m *shareModel) shows(one *modelled, p string, size int) bool {
	if size == 0 || !one.exists(p) {
		return size == 0 && !one.exists(p)
	}
	return len(one.read(p)) == size
}

// nodes are the names at or below a path, as a machine that knows nothing reads them.
func (c *cloud) nodes(at string) []names.Node {
	c.t.Helper()
	h, err := heads.Open(&c.mu, c.id.ID, noHeads{})
	if err == nil {
		_, err = h.Refresh(context.Background())
	}
	if err != nil {
		c.t.Fatal(err)
	}
	all, err := h.Below(context.Background(), at)
	if err != nil {
		c.t.Fatal(err)
	}
	return names.Tree(heads.Lists(all)...)
}

// noHeads keeps nothing.
type noHeads struct{}

func (noHeads) Heads(func(record.Writer, bucket.Version, []byte) error) error { return nil }
func (noHeads) SetHeads(map[record.Writer]heads.Kept) error                   { return nil }
