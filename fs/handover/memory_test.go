package handover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The package comment is the layout.
func TestLayout(t *testing.T) {
	var h header
	var s handleSlot
	var j journalSlot
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"header", unsafe.Sizeof(h), page},
		{"geometry", unsafe.Offsetof(h.geometry), 16},
		{"life", unsafe.Offsetof(h.life), 64},
		{"suspects", unsafe.Offsetof(h.suspects), 72},
		{"backing", unsafe.Offsetof(h.backing), 88},
		{"next", unsafe.Offsetof(h.next), 96},
		{"half", unsafe.Offsetof(h.half), 104},
		{"used", unsafe.Offsetof(h.used), 112},
		{"journalUsed", unsafe.Offsetof(h.journalUsed), 128},
		{"handlesUsed", unsafe.Offsetof(h.handlesUsed), 136},
		{"flightsUsed", unsafe.Offsetof(h.flightsUsed), 144},
		{"notes", unsafe.Offsetof(h.notes), 192},
		{"handle", unsafe.Sizeof(s), 64},
		{"copies", unsafe.Offsetof(s.copies), 24},
		{"entry", unsafe.Sizeof(j), 640},
		{"lengths", unsafe.Offsetof(j.lengths), 20},
		{"dir", unsafe.Offsetof(j.dir), 24},
		{"node", unsafe.Offsetof(j.node), 64},
		{"names", unsafe.Offsetof(j.names), 72},
		{"flight", unsafe.Sizeof(flightSlot{}), 64},
		{"suspect", unsafe.Sizeof(suspect{}), 16},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, documented as %d", c.what, c.got, c.want)
		}
	}
	const k = 1 << 10
	if got, want := standard.places(), (places{notes: 4 * k, suspects: 132 * k, flights: 140 * k,
		journal: 652 * k, handles: 3212 * k, nodes: (3212 + 65536) * k,
		size: (3212 + 65536 + 1<<20) * k}); got != want {
		t.Errorf("tables at %+v, documented as %+v", got, want)
	}
}

// A memory of the standard size takes few pages, and two mappings of it are one memory.
func TestStandard(t *testing.T) {
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if life := m.BeginLife(false); life != 1 {
		t.Errorf("life %d", life)
	}
	m.SetInit([]byte("request"))
	m.NoteBacking(7)
	m.NoteBacking(3)
	m.Nodes().SetNext(12)
	if err := m.Nodes().Put(Node{ID: 11, Ino: 5, Parent: 1, Type: unix.S_IFREG, Name: "a"}); err != nil {
		t.Fatal(err)
	}
	m.Handles().Add(Handle{Node: 11, Kind: KindFile})
	m.Journal().Begin(Entry{Unique: 4, Name: "a"})
	m.Flights().Take().Begin(4)

	fd, err := unix.Dup(m.Fd())
	if err != nil {
		t.Fatal(err)
	}
	n, err := Map(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
		t.Error("children inherit the memory")
	}
	if got, want := dump(n), `life 1 next 12 backing 7 init "request" answer "" mode "" options ""
node {ID:11 Ino:5 Parent:1 Type:32768 Synthetic:false Name:a Source:0 Gen:0 Size:0}
handle 0x100000000 {Node:11 Unique:0 Flags:0 Thread:0 Mode:0 Backing:0 Kind:1}
entry {Unique:4 Op:0 Dir:0 Dir2:0 Ino:0 Ino2:0 Arg:0 Name:a Name2:} false 0 0
flights [4] suspects map[]
`; got != want {
		t.Errorf("the next daemon finds\n%s, not\n%s", got, want)
	}
	if life := n.BeginLife(false); life != 2 {
		t.Errorf("life %d", life)
	}
	n.SetAnswer(nil)
	if a := m.Answer(); a == nil || len(a) != 0 {
		t.Errorf("an answer of no bytes is %v", a)
	}
	var st unix.Stat_t
	if err := unix.Fstat(n.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 16*page {
		t.Errorf("it takes %d bytes", st.Blocks*512)
	}
}

func TestNotes(t *testing.T) {
	m := fresh(t, tiny)
	if m.Init() != nil || m.Answer() != nil || m.Note(NoteMode) != nil {
		t.Error("something was noted")
	}
	long := bytes.Repeat([]byte{0xff}, maxNote)
	var was []byte
	for _, v := range [][]byte{{1, 2, 3}, {}, long, []byte("x")} {
		if err := m.SetNote(NoteMountpoint, v); err != nil {
			t.Error(err)
		}
		if got := next(t, m).Note(NoteMountpoint); got == nil || !bytes.Equal(got, v) {
			t.Errorf("%q instead of %q", got, v)
		}
		// A kill on the way would have left the copy before.
		if got := m.notes.copyOf(4, m.h.notes[4].Load()^noteSecond); !bytes.HasPrefix(got, was) {
			t.Errorf("%q was written over", was)
		}
		was = v
	}
	if err := m.SetNote(NoteMountpoint, append(long, 0)); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	if err := m.SetAnswer(append(long, 0)); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	for _, key := range []string{"", "other", noteNames[0], noteNames[1]} {
		if err := m.SetNote(key, nil); !errors.Is(err, ErrKey) {
			t.Errorf("%q: %v", key, err)
		}
		if m.Note(key) != nil {
			t.Errorf("%q is a note", key)
		}
	}
	if got := string(m.Note(NoteMountpoint)); got != "x" {
		t.Errorf("%q", got)
	}
}

// What is no memory of this version and geometry is refused, with the two numbers, and stays the caller's.
func TestVersion(t *testing.T) {
	m := fresh(t, tiny)
	refused := func(fd int, g geometry, says string) {
		t.Helper()
		if _, err := open(fd, g); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, without %q", err, says)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Error(err)
		}
	}
	other := tiny
	other.journal++
	refused(m.Fd(), other, "geometry {8 8 16 8192}, and this program has {8 9 16 8192}")
	m.h.version = 77
	refused(m.Fd(), tiny, "version 77, and this program has 2")
	m.h.version = Version
	m.h.magic[0]++
	refused(m.Fd(), tiny, "no magic")
	m.h.magic = magic

	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	refused(int(file.Fd()), tiny, "no magic")
	file.Write(m.b[:fixed])
	refused(int(file.Fd()), tiny, "48 bytes instead of")
	file.Truncate(int64(len(m.b)))
	refused(int(file.Fd()), tiny, "not sealed")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	refused(int(r.Fd()), tiny, "no magic")
	if _, err := open(1<<20, tiny); err == nil {
		t.Error("a descriptor that is none")
	}
	next(t, m)
}

// A word that no daemon wrote is found before it leads anywhere.
func TestDamaged(t *testing.T) {
	p := tiny.places()
	for what, at := range map[string]uint64{"backing: harmless": 88, "suspects": 72, "half": 104, "used": 112,
		"journalUsed": 128, "handlesUsed": 136, "flightsUsed": 144, "other flightsUsed": 152, "note": 192,
		"entry": p.journal, "handle": p.handles} {
		m := fresh(t, tiny)
		m.Handles().Add(Handle{Kind: KindDir})
		m.Journal().Begin(Entry{})
		binary.NativeEndian.PutUint64(m.b[at:], 1<<20|0xff)
		_, err := open(m.Fd(), tiny)
		if what == "backing: harmless" {
			if err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
