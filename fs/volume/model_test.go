package volume

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// expected is what the model knows of a file: hard links and handles share it.
type expected struct {
	data []byte
	attr tree.Attr // as stat had it after the last change; what goes on in the background moves none of it
}

// model is what a directory of the volume must hold.
type model struct {
	r     *rig
	dir   string
	files map[string]*expected
	open  []opened
	seed  uint64
}

type opened struct {
	h *Handle
	c *expected
}

var sizes = []int{0, 1, 3000, 64<<10 - 1, 64 << 10, 100_000, 256 << 10, 300_000, 600_000}

// The volume beside a model of it: whatever is done, in whatever order, every file and every open handle has
// the bytes that the model has.
func TestModel(t *testing.T) {
	fewer := flag.Lookup("rapid.checks")
	if fewer.Value.String() == fewer.DefValue { // each takes some 0.3 s
		fewer.Value.Set("20")
		defer fewer.Value.Set(fewer.DefValue)
	}
	flag.Set("rapid.nofailfile", "true")
	r := newRig(t)
	check := 0
	rapid.Check(t, func(rt *rapid.T) {
		check++
		r.t = rt
		defer func() { r.t = t }()
		m := &model{r: r, dir: fmt.Sprint("check", check), files: map[string]*expected{}, seed: 1}
		defer func() { // also if the check has failed
			m.closeAll()
			r = m.r
		}()
		m.r.mkdir(m.dir)
		rt.Repeat(map[string]func(*rapid.T){
			"":         func(rt *rapid.T) { m.compare() },
			"write":    m.write,
			"patch":    m.patch,
			"truncate": m.truncate,
			"unlink":   m.unlink,
			"rename":   m.rename,
			"link":     m.link,
			"open":     m.openOne,
			"through":  m.through,
			"close":    m.closeOne,
			"sync":     func(rt *rapid.T) { m.r.sync() },
			"evict":    m.evict,
			"hydrate":  m.hydrate,
			"prune":    m.prune,
			"sum":      m.sum,
			"copy":     m.copyRange,
			"utimes":   m.utimes,
			"chmod":    m.chmod,
			"reopen":   m.reopen,
			"crash":    m.crash,
		})
		m.closeAll()
		m.compare()
	})
	r.t = t
	if lost := r.listing(""); len(lost) != check && !t.Failed() {
		t.Errorf("names: %v", lost)
	}
}

var modelNames = rapid.SampledFrom([]string{"a", "b", "c", "d"})

func (m *model) path(name string) string { return m.dir + "/" + name }

// existing draws the name of a file that is there, or skips the action.
func (m *model) existing(rt *rapid.T) string {
	names := slices.Sorted(maps.Keys(m.files))
	if len(names) == 0 {
		rt.Skip("no files")
	}
	return rapid.SampledFrom(names).Draw(rt, "name")
}

func (m *model) data(rt *rapid.T, n int) []byte {
	m.seed++
	return random(n, m.seed)
}

func (m *model) write(rt *rapid.T) {
	name := modelNames.Draw(rt, "name")
	data := m.data(rt, rapid.SampledFrom(sizes).Draw(rt, "size"))
	m.r.write(m.path(name), data)
	c := m.files[name]
	if c == nil {
		c = &expected{}
		m.files[name] = c
	}
	c.data = data
	m.look(name)
}

// look notes the attributes of a file that was changed.
func (m *model) look(name string) { m.files[name].attr = m.r.stat(m.path(name)) }

// lookAt is look for a handle's file, which may have no name any more.
func (m *model) lookAt(c *expected) {
	for name, d := range m.files {
		if c == d {
			m.look(name)
			return
		}
	}
}

// copyRange copies a part of a file over a part of another, or of a new one.
func (m *model) copyRange(rt *rapid.T) {
	from, to := m.existing(rt), modelNames.Draw(rt, "to")
	src, dst := m.files[from], m.files[to]
	if src == dst {
		rt.Skip("the same file")
	}
	if dst == nil {
		dst = &expected{}
		m.files[to] = dst
	}
	off := rapid.IntRange(0, len(src.data)).Draw(rt, "off")
	n := rapid.IntRange(0, len(src.data)-off).Draw(rt, "length")
	at := rapid.IntRange(0, len(dst.data)+1000).Draw(rt, "at")
	in, out := m.r.open(m.path(from), unix.O_RDONLY), m.r.open(m.path(to), unix.O_WRONLY|unix.O_CREAT)
	data := src.data[off : off+n]
	for done := 0; done < n; {
		k, err := in.CopyRange(int64(off+done), out, int64(at+done), int64(n-done), 0)
		if err != nil || k == 0 {
			rt.Fatalf("copied %d of %d: %v", done, n, err)
		}
		done += int(k)
	}
	m.r.release(in)
	m.r.release(out)
	if n > 0 {
		dst.put(data, at)
	}
	m.look(to)
}

func (m *model) utimes(rt *rapid.T) {
	name := m.existing(rt)
	when := unix.Timespec{Sec: rapid.Int64Range(0, 4e9).Draw(rt, "s"),
		Nsec: rapid.Int64Range(0, 999_999_999).Draw(rt, "ns")}
	m.r.setattr(m.path(name), &tree.SetAttr{Mtime: &when})
	m.look(name)
	if got := m.files[name].attr.Mtime; got != when {
		rt.Fatalf("mtime %v, set to %v", got, when)
	}
}

func (m *model) chmod(rt *rapid.T) {
	name := m.existing(rt)
	mode := rapid.SampledFrom([]uint32{0o600, 0o644, 0o444, 0o755}).Draw(rt, "mode")
	m.r.setattr(m.path(name), &tree.SetAttr{Mode: &mode})
	m.look(name)
}

// crash goes on with what a kill -9 leaves now, in this boot of the host or another.
func (m *model) crash(rt *rapid.T) {
	dir := m.r.copyStore()
	if rapid.Bool().Draw(rt, "boot") {
		lock := filepath.Join(dir, "lock")
		b, err := os.ReadFile(lock)
		if err != nil {
			rt.Fatal(err)
		}
		b = bytes.ReplaceAll(b, []byte(tree.BootID()), []byte("00000000-0000-0000-0000-000000000000"))
		if err := os.WriteFile(lock, b, 0o600); err != nil {
			rt.Fatal(err)
		}
	}
	m.closeAll()
	t, old := m.r.t, m.r.dir
	m.r.close()
	os.RemoveAll(old) // a check makes many copies
	m.r = openRig(m.r.test, dir, hotSize(rapid.SampledFrom([]int64{0, 1 << 40}).Draw(rt, "hot size")))
	m.r.t = t
	for name := range m.files {
		m.files[name].attr.Ino = m.r.stat(m.path(name)).Ino // of a copy
	}
}

// put writes data at off into what the model has.
func (c *expected) put(data []byte, off int) {
	if end := off + len(data); end > len(c.data) {
		c.resize(end)
	}
	c.data = slices.Clone(c.data) // random's slices are shared
	copy(c.data[off:], data)
}

func (c *expected) resize(n int) {
	data := make([]byte, n)
	copy(data, c.data)
	c.data = data
}

func (m *model) patch(rt *rapid.T) {
	name := m.existing(rt)
	c := m.files[name]
	off := rapid.IntRange(0, len(c.data)+5000).Draw(rt, "off")
	data := m.data(rt, rapid.IntRange(1, 5000).Draw(rt, "length"))
	m.r.patch(m.path(name), data, int64(off))
	c.put(data, off)
	m.look(name)
}

func (m *model) truncate(rt *rapid.T) {
	name := m.existing(rt)
	c := m.files[name]
	n := rapid.IntRange(0, len(c.data)+100_000).Draw(rt, "size")
	m.r.truncate(m.path(name), int64(n))
	c.resize(n)
	m.look(name)
}

func (m *model) unlink(rt *rapid.T) {
	name := m.existing(rt)
	m.r.unlink(m.path(name))
	delete(m.files, name)
}

func (m *model) rename(rt *rapid.T) {
	from, to := m.existing(rt), modelNames.Draw(rt, "to")
	flags := uint32(0)
	if m.files[to] != nil && rapid.Bool().Draw(rt, "exchange") {
		flags = unix.RENAME_EXCHANGE
	}
	if err := m.r.tryRename(m.path(from), m.path(to), flags); err != nil {
		rt.Fatalf("rename %s to %s: %v", from, to, err)
	}
	a, b := m.files[from], m.files[to]
	switch {
	case a == b: // rename(2) does nothing
	case flags == unix.RENAME_EXCHANGE:
		m.files[from], m.files[to] = b, a
	default:
		m.files[to] = a
		delete(m.files, from)
	}
}

func (m *model) link(rt *rapid.T) {
	from, to := m.existing(rt), modelNames.Draw(rt, "to")
	if m.files[to] != nil {
		rt.Skip("the name is taken")
	}
	m.r.link(m.path(from), m.path(to))
	m.files[to] = m.files[from]
}

func (m *model) openOne(rt *rapid.T) {
	name := m.existing(rt)
	flags := rapid.SampledFrom([]uint32{unix.O_RDONLY, unix.O_RDWR}).Draw(rt, "flags")
	m.open = append(m.open, opened{m.r.open(m.path(name), flags), m.files[name]})
}

// through writes through a handle, or truncates the file by it.
func (m *model) through(rt *rapid.T) {
	i := slices.IndexFunc(m.open, func(o opened) bool { return o.h.write })
	if i < 0 {
		rt.Skip("no handle for writing")
	}
	o := m.open[i]
	off := rapid.IntRange(0, len(o.c.data)+5000).Draw(rt, "off")
	if rapid.Bool().Draw(rt, "truncate") {
		n := int64(off)
		if _, err := m.r.Setattr(o.h.Node, &tree.SetAttr{Size: &n}); err != nil {
			rt.Fatal(err)
		}
		o.c.resize(off)
		m.lookAt(o.c)
		return
	}
	data := m.data(rt, rapid.IntRange(1, 5000).Draw(rt, "length"))
	m.r.writeAt(o.h, data, int64(off))
	o.c.put(data, off)
	m.lookAt(o.c)
}

func (m *model) closeOne(rt *rapid.T) {
	if len(m.open) == 0 {
		rt.Skip("no handles")
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(rt, "handle")
	m.r.release(m.open[i].h)
	m.open = slices.Delete(m.open, i, i+1)
}

func (m *model) closeAll() {
	for _, o := range m.open {
		m.r.release(o.h)
	}
	m.open = nil
}

func (m *model) evict(rt *rapid.T) {
	if _, err := m.r.Evict(m.r.test.Context(), m.dir, nil); err != nil {
		rt.Fatal(err)
	}
	m.unhurt(rt)
}

// prune takes what nothing needs, whatever is open, packed or not, and nothing else.
func (m *model) prune(rt *rapid.T) {
	m.r.prune(control.PruneOptions{
		Grace:     rapid.SampledFrom([]time.Duration{0, 0, time.Hour}).Draw(rt, "grace"),
		MaxUnused: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "max unused"),
	})
	m.unhurt(rt)
	for _, p := range m.r.check().Problems {
		rt.Errorf("check: %+v", p)
	}
}

// unhurt fails if the store has found damage by itself: it repairs some of it without an error for readers.
func (m *model) unhurt(rt *rapid.T) {
	if m.r.log.has("ERROR") {
		rt.Errorf("reported:\n%s", m.r.log)
	}
}

// sum makes the checksums of the files that are not packed.
func (m *model) sum(rt *rapid.T) {
	if err := m.r.sumAll(m.r.test.Context()); err != nil {
		rt.Fatal(err)
	}
}

func (m *model) hydrate(rt *rapid.T) {
	if _, err := m.r.Hydrate(m.r.test.Context(), m.dir, nil); err != nil {
		rt.Fatal(err)
	}
}

// reopen closes the store, in order or not, packed or not, and opens it with another hot size.
func (m *model) reopen(rt *rapid.T) {
	m.closeAll()
	hot := hotSize(rapid.SampledFrom([]int64{0, 700_000, 1 << 40}).Draw(rt, "hot size"))
	if rapid.Bool().Draw(rt, "without packing") {
		m.r.withoutPacking()
	}
	t := m.r.t
	if rapid.Bool().Draw(rt, "clean") {
		m.r = m.r.reopen(hot)
	} else {
		m.r = m.r.reopenUnclean(hot)
	}
	m.r.t = t
}

// compare reads everything.
func (m *model) compare() {
	m.r.t.Helper()
	for name, c := range m.files {
		m.r.same(m.path(name), c.data)
		links := 0
		for _, d := range m.files {
			if d == c {
				links++
			}
		}
		a := m.r.stat(m.path(name))
		if int(a.Nlink) != links {
			m.r.t.Errorf("%s has %d links, want %d", name, a.Nlink, links)
		}
		if b := c.attr; a.Mtime != b.Mtime || a.Mode != b.Mode || a.Ino != b.Ino ||
			a.Size != int64(len(c.data)) {
			m.r.t.Errorf("%s: %+v, it was %+v", name, a, b)
		}
	}
	for i, o := range m.open {
		got, err := m.r.readHandle(o.h)
		if err != nil {
			m.r.t.Fatalf("handle %d: %v", i, err)
		}
		m.r.equal(fmt.Sprint("handle ", i), got, o.c.data)
	}
	names := m.r.listing(m.dir)
	slices.Sort(names)
	if !slices.Equal(names, slices.Sorted(maps.Keys(m.files))) {
		m.r.t.Errorf("names: %v", names)
	}
}
