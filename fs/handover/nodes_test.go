package handover

import (
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// name is a name of n arbitrary bytes.
func name(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func load(t *testing.T, m *Memory) map[uint64]Node {
	t.Helper()
	nodes, err := m.Nodes().Load()
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func TestNodes(t *testing.T) {
	m := fresh(t, tiny)
	want := map[uint64]Node{
		1: {ID: 1, Ino: 2, Type: unix.S_IFDIR},
		2: {ID: 2, Ino: 1<<64 - 1, Parent: 1, Type: unix.S_IFLNK, Name: "\x00/\n\xff"},
		3: {ID: 3, Parent: 2, Type: unix.S_IFSOCK, Synthetic: true, Name: strings.Repeat("n", 255)},
		4: {ID: 4, Parent: 2, Type: unix.S_IFREG, Synthetic: true, Name: "v",
			Source: 1 << 60, Gen: 7, Size: 9},
		5: {ID: 5, Ino: 5, Parent: 2, Type: unix.S_IFREG, Name: strings.Repeat("n", 255),
			Gen: 1<<64 - 1},
		1 << 63: {ID: 1 << 63, Ino: 9, Parent: 3, Type: unix.S_IFREG, Name: "1234567"},
	}
	for _, x := range want {
		if err := m.Nodes().Put(x); err != nil {
			t.Fatal(err)
		}
	}
	if got := load(t, next(t, m)); !maps.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	renamed := want[1<<63]
	renamed.Parent, renamed.Name = 1, "12345678"
	m.Nodes().Put(renamed)
	want[1<<63] = renamed
	m.Nodes().Drop(3)
	m.Nodes().Drop(3)
	m.Nodes().Drop(6)
	delete(want, 3)
	if got := load(t, next(t, m)); !maps.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	// What cannot be kept is not kept as it was before.
	if err := m.Nodes().Put(Node{ID: 1, Name: strings.Repeat("n", 256)}); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	if err := m.Nodes().Put(Node{ID: 2, Type: 1 << 16}); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	delete(want, 1)
	delete(want, 2)
	if got := load(t, next(t, m)); !maps.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// Whatever is put and dropped, through any number of compactions, what is there is what a map has. What does
// not fit is refused, and fits again when there is room.
func TestNodesModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	m := fresh(t, tiny)
	m.nodes.small = 1 << 10
	want := map[uint64]Node{}
	halves, full := 0, 0
	half := uint64(0)
	for i := range 30_000 {
		id := uint64(r.IntN(80))
		if i/3000%2 == 1 { // little is live, so that it is compacted before it is full
			id %= 6
			for k := uint64(6); k < 80 && i%3000 == 0; k++ {
				m.Nodes().Drop(k)
				delete(want, k)
			}
		}
		if r.IntN(3) == 0 {
			m.Nodes().Drop(id)
			delete(want, id)
		} else {
			x := Node{ID: id, Ino: r.Uint64(), Parent: r.Uint64(), Type: uint32(r.IntN(1 << 16)),
				Synthetic: r.IntN(2) == 0, Name: name(r, r.IntN(256))}
			if r.IntN(2) == 0 {
				x.Source, x.Gen, x.Size = r.Uint64(), r.Uint64(), r.Uint64()
			}
			switch err := m.Nodes().Put(x); {
			case err == nil:
				want[id] = x
			case errors.Is(err, ErrFull):
				delete(want, id)
				full++
				if sum := liveBytes(want); sum+sizeOfPut(&x) <= m.nodes.limit() {
					t.Fatalf("full with %d bytes of %d", sum, m.nodes.limit())
				}
			default:
				t.Fatal(err)
			}
		}
		if h := m.h.half.Load(); h != half {
			half = h
			halves++
		}
		if m.nodes.live != liveBytes(want) || m.nodes.end > len(m.nodes.log) {
			t.Fatalf("live %d of %d, end %d", m.nodes.live, liveBytes(want), m.nodes.end)
		}
		if i%1000 == 999 {
			if got := load(t, next(t, m)); !maps.Equal(got, want) {
				t.Fatalf("after %d operations:\n%v\n%v", i, got, want)
			}
			if i%2000 == 999 {
				m = next(t, m)
				m.BeginLife(false)
			}
		}
	}
	if halves < 100 || full < 100 {
		t.Errorf("%d compactions, %d times full", halves, full)
	}
}

func liveBytes(nodes map[uint64]Node) int {
	n := 0
	for _, x := range nodes {
		n += sizeOfPut(&x)
	}
	return n
}

// The half that is not true takes no more memory than it soon needs again.
func TestNodesGiveBack(t *testing.T) {
	g := tiny
	g.half = 1 << 20
	m := fresh(t, g)
	m.nodes.small = 1 << 14
	blocks := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(m.Fd(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	before := blocks()
	for i := range uint64(10_000) {
		m.Nodes().Put(Node{ID: i})
	}
	for i := range uint64(10_000) {
		m.Nodes().Drop(i)
	}
	for m.h.half.Load() == 1 {
		m.Nodes().Put(Node{ID: 1})
	}
	for m.h.half.Load() == 0 {
		m.Nodes().Put(Node{ID: 1})
	}
	if got := blocks() - before; got > 2<<14+2*page {
		t.Errorf("%d bytes are left", got)
	}
	// What a daemon left there that was killed before it turned to it.
	copy(m.nodes.halfOf(0), strings.Repeat("x", 1<<19))
	next(t, m).BeginLife(false)
	if got := blocks() - before; got > 1<<14+2*page {
		t.Errorf("%d bytes are left", got)
	}
}

// A log is read up to the first nonsense, and goes on from there.
func TestNodesDamaged(t *testing.T) {
	for name, change := range map[string]func(r record){
		"length":   func(r record) { r[0] = 41 },
		"no bytes": func(r record) { r[0] = 0 },
		"kind":     func(r record) { r[2] = 3 },
		"name":     func(r record) { r[3] = 255 },
		"made":     func(r record) { r[6] = flagMade },
		"longer":   func(r record) { r[0], r[1], r[3] = 0, 1, 200 },
	} {
		m := fresh(t, tiny)
		for id := range uint64(3) {
			m.Nodes().Put(Node{ID: id, Name: "12345678"})
		}
		change(m.nodes.log[2*40:])
		n := next(t, m)
		got, err := n.Nodes().Load()
		if !errors.Is(err, ErrDamaged) || len(got) != 2 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if err := n.Nodes().Put(Node{ID: 9}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := load(t, next(t, m)); len(got) != 3 || got[9].ID != 9 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func BenchmarkNodes(b *testing.B) {
	m := fresh(b, standard)
	m.nodes.small = 4 << 20
	n := m.Nodes()
	for i := range uint64(1000) {
		n.Put(Node{ID: i, Name: "model.safetensors"})
	}
	b.ReportAllocs()
	for i := uint64(1000); b.Loop(); i++ {
		n.Put(Node{ID: i, Ino: i, Parent: 1, Type: unix.S_IFREG, Name: "model-00001.safetensors"})
		n.Drop(i)
	}
}

func BenchmarkNodesLoad(b *testing.B) {
	m := fresh(b, standard)
	for i := range uint64(1_000_000) {
		m.Nodes().Put(Node{ID: i, Name: "model.safetensors"})
	}
	for b.Loop() {
		if nodes, err := m.Nodes().Load(); len(nodes) != 1_000_000 || err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNodesCompact(b *testing.B) {
	m := fresh(b, standard)
	for i := range uint64(1_000_000) {
		m.Nodes().Put(Node{ID: i, Name: "model.safetensors"})
	}
	for b.Loop() {
		m.nodes.compact()
	}
}

func TestMostNodes(t *testing.T) {
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	long := Node{Gen: 1, Name: strings.Repeat("x", maxName)}
	if need := MostNodes * sizeOfPut(&long); need > m.Nodes().limit() {
		t.Errorf("%d bytes are needed, and there are %d", need, m.Nodes().limit())
	}
}
