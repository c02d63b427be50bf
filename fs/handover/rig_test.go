package handover

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tiny is a geometry in which everything gets full soon.
var tiny = geometry{flights: 8, journal: 8, handles: 16, half: 2 * page}

// TestMain is the program that is killed, when it is asked to be.
func TestMain(m *testing.M) {
	if s := os.Getenv("HANDOVER_VICTIM"); s != "" {
		victim(s)
	}
	os.Exit(m.Run())
}

// fresh is a new memory, closed with the test.
func fresh(t testing.TB, g geometry) *Memory {
	t.Helper()
	m, err := create(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	m.nodes.small = 1 << 10
	return m
}

// next is m as the next daemon finds it.
func next(t testing.TB, m *Memory) *Memory {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(m.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := open(fd, m.h.geometry)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	n.nodes.small = 1 << 10
	return n
}

// twin is a memory of its own with the same bytes.
func twin(t testing.TB, m *Memory) *Memory {
	t.Helper()
	c := fresh(t, m.h.geometry)
	copy(c.b, m.b)
	return next(t, c)
}

// dump is everything that a memory says.
func dump(m *Memory) string {
	var b strings.Builder
	fmt.Fprintf(&b, "life %d next %d backing %d init %q answer %q mode %q options %q\n", m.h.life.Load(),
		m.Nodes().Next(), m.Backing(), m.Init(), m.Answer(), m.Note(NoteMode), m.Note(NoteMountpoint))
	nodes, err := m.Nodes().Load()
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(&b, "node %+v\n", nodes[id])
	}
	for fh, x := range m.Handles().All() {
		fmt.Fprintf(&b, "handle %#x %+v\n", fh, x)
	}
	var left []string
	for s := range m.Journal().Left() {
		done, status, node := s.Result()
		left = append(left, fmt.Sprintf("entry %+v %v %d %d\n", s.Entry(), done, status, node))
	}
	slices.Sort(left)
	fmt.Fprintf(&b, "%sflights %v suspects %v\n", strings.Join(left, ""), m.Flights().Left(),
		m.suspects.crashes)
	return b.String()
}
