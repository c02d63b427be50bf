package handover

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// player does operations that depend on a seed alone, and on what the memory has to begin with.
type player struct {
	m       *Memory
	r       *rand.Rand
	fhs     []uint64
	entries []*Slot
	flights []*Flight
	unique  uint64
}

func newPlayer(m *Memory, seed uint64) *player {
	p := &player{m: m, r: rand.New(rand.NewPCG(seed, 0)), unique: seed << 32}
	for fh := range m.Handles().All() {
		p.fhs = append(p.fhs, fh)
	}
	for s := range m.Journal().Left() {
		p.entries = append(p.entries, s)
	}
	return p
}

// pick takes one of s out.
func pick[T any](r *rand.Rand, s *[]T) (x T, ok bool) {
	if len(*s) == 0 {
		return x, false
	}
	i := r.IntN(len(*s))
	x = (*s)[i]
	(*s)[i] = (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return x, true
}

// step does one operation.
func (p *player) step() {
	m, r := p.m, p.r
	switch op := r.IntN(17); op {
	case 0, 1, 2, 3:
		x := Node{ID: uint64(r.IntN(64)), Ino: r.Uint64(), Parent: r.Uint64(), Type: unix.S_IFREG,
			Synthetic: op == 0, Name: name(r, r.IntN(256))}
		if op < 2 {
			x.Source, x.Gen, x.Size = r.Uint64(), r.Uint64(), r.Uint64()
		}
		m.Nodes().Put(x)
	case 4, 5:
		m.Nodes().Drop(uint64(r.IntN(64)))
	case 6:
		m.Nodes().SetNext(m.Nodes().Next() + 1)
	case 7, 8:
		x := Handle{Node: r.Uint64(), Unique: r.Uint64(), Mode: r.Uint32(), Kind: 1 + r.Uint32N(2)}
		if fh, ok := m.Handles().Add(x); ok {
			p.fhs = append(p.fhs, fh)
		}
	case 9:
		if fh, ok := pick(r, &p.fhs); ok {
			m.Handles().Set(fh, Handle{Flags: r.Uint32(), Thread: r.Uint32(), Mode: r.Uint32(), Backing: 3})
			p.fhs = append(p.fhs, fh)
		}
	case 10:
		if fh, ok := pick(r, &p.fhs); ok {
			m.Handles().Remove(fh)
		}
	case 11:
		p.unique += 2
		e := Entry{Unique: p.unique, Op: r.Uint32(), Dir: r.Uint64(), Dir2: r.Uint64(), Ino: r.Uint64(),
			Ino2: r.Uint64(), Arg: r.Uint64(), Name: name(r, r.IntN(256)), Name2: name(r, r.IntN(256))}
		if s := m.Journal().Begin(e); s != nil {
			p.entries = append(p.entries, s)
		}
	case 12:
		if s, ok := pick(r, &p.entries); ok {
			s.Done(int32(r.Uint32()), r.Uint64())
			p.entries = append(p.entries, s)
		}
	case 13:
		if s, ok := pick(r, &p.entries); ok {
			s.Free()
		}
	case 14:
		p.unique += 2
		if f := m.Flights().Take(); f != nil {
			f.Begin(p.unique)
			p.flights = append(p.flights, f)
		}
	case 15:
		if f, ok := pick(r, &p.flights); ok {
			f.Release()
		}
	case 16:
		value := []byte(name(r, r.IntN(maxNote)))
		switch r.IntN(5) {
		case 0:
			m.SetInit(value)
		case 1:
			m.SetAnswer(value)
		case 2:
			m.SetNote(NoteMode, value)
		case 3:
			m.SetNote(NoteMountpoint, value)
		case 4:
			m.NoteBacking(r.Int32())
		}
	}
}

// play does n operations.
func play(m *Memory, seed uint64, n int) {
	p := newPlayer(m, seed)
	for range n {
		p.step()
	}
}

const crew = 4 // goroutines of the second test

// victim is the program that is killed. It maps the memory of descriptor 3, and says in that of descriptor 4
// how many operations have returned. The atomic store that says so takes no time: so the kill strikes in
// them, not in a write to a pipe.
func victim(what string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	b, err := unix.Mmap(4, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(err)
	acks := (*[crew]atomic.Uint64)(unsafe.Pointer(&b[0]))
	g := tiny
	if strings.HasPrefix(what, "crew") {
		g = large
	}
	m, err := open(3, g)
	check(err)
	m.nodes.small = 1 << 10
	if g == large {
		var wg sync.WaitGroup
		for i := range uint64(crew) {
			wg.Go(func() {
				for s := newSailor(m, i); ; {
					s.step()
					acks[i].Add(1)
				}
			})
		}
		wg.Wait()
	}
	var seed uint64
	_, err = fmt.Sscanf(what, "%d", &seed)
	check(err)
	m.BeginLife(seed%2 == 0)
	acks[0].Add(1)
	for p := newPlayer(m, seed); ; {
		p.step()
		acks[0].Add(1)
	}
}

// kill starts a victim on m, kills it a moment after its first operation, and returns how many operations it
// said had returned.
func kill(t *testing.T, m *Memory, what string, moment time.Duration) [crew]uint64 {
	t.Helper()
	fd, err := unix.MemfdCreate("acks", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	acksFile := os.NewFile(uintptr(fd), "acks")
	defer acksFile.Close()
	if err := acksFile.Truncate(page); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	acks := (*[crew]atomic.Uint64)(unsafe.Pointer(&b[0]))
	dup, err := unix.FcntlInt(uintptr(m.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(dup), "memory")
	defer memory.Close()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HANDOVER_VICTIM="+what)
	cmd.ExtraFiles = []*os.File{memory, acksFile}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); acks[0].Load() == 0 && time.Since(begun) < 30*time.Second; {
		time.Sleep(50 * time.Microsecond)
	}
	time.Sleep(moment)
	cmd.Process.Kill()
	err = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("%v\n%s", err, said.String())
	}
	var n [crew]uint64
	for i := range n {
		n[i] = acks[i].Load()
	}
	return n
}

func rounds(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// A daemon that is killed at any moment leaves what its operations did that had returned. The one that was
// cut off has happened in full, or not at all. So it is in life after life.
func TestKill(t *testing.T) {
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	m := fresh(t, tiny)
	half := 0
	for seed := range uint64(rounds(100)) {
		before := twin(t, m)
		// Sometimes right away, for BeginLife to be hit, too.
		n := kill(t, m, fmt.Sprint(seed), time.Duration(r.IntN(3)*r.IntN(1_000_000)))[0]
		if n == 0 {
			t.Fatal("it did nothing")
		}
		got := dump(next(t, m))
		before.BeginLife(seed%2 == 0)
		p := newPlayer(before, seed)
		for range n - 1 {
			p.step()
		}
		one := dump(next(t, before))
		if got == one {
			continue
		}
		half++
		p.step()
		if two := dump(next(t, before)); got != two {
			t.Fatalf("after %d operations it has\n%s\ninstead of\n%s\nor\n%s", n, got, one, two)
		}
	}
	t.Logf("%d times the last operation had happened", half)
}

var large = geometry{flights: 64, journal: 64, handles: 64, half: page}

// sailor does operations of its own beside others.
type sailor struct {
	m      *Memory
	id     uint64
	n      uint64
	flight *Flight
	fh     uint64
	entry  *Slot
}

func newSailor(m *Memory, id uint64) *sailor {
	return &sailor{m: m, id: id, flight: m.Flights().Take()}
}

// step does operation n: each round is begun, opened, changed, done, closed and free.
func (s *sailor) step() {
	round := s.n / 6
	x := Handle{Node: s.id, Unique: round, Kind: KindFile, Mode: uint32(round), Backing: int32(round)}
	switch s.n % 6 {
	case 0:
		s.entry = s.m.Journal().Begin(Entry{Unique: round, Dir: s.id, Ino: round, Arg: ^round,
			Name: fmt.Sprint(round), Name2: fmt.Sprint(s.id)})
	case 1:
		s.fh, _ = s.m.Handles().Add(x)
	case 2:
		x.Mode, x.Backing = x.Mode+1, x.Backing+1
		s.m.Handles().Set(s.fh, x)
	case 3:
		s.entry.Done(int32(round), round)
	case 4:
		s.m.Handles().Remove(s.fh)
	case 5:
		s.entry.Free()
	}
	s.n++
}

// state is what there is of a sailor after n operations.
func (s *sailor) state(n uint64) string {
	round, n := n/6, n%6
	var b strings.Builder
	if n >= 2 && n < 5 {
		mode := round
		if n >= 3 {
			mode++
		}
		fmt.Fprintf(&b, "handle %d %d %d\n", round, uint32(mode), int32(mode))
	}
	if n >= 1 {
		fmt.Fprintf(&b, "entry %d %d %d %d %d ", round, round, ^round, round, s.id)
		if n >= 4 {
			fmt.Fprintf(&b, "true %d %d\n", int32(round), round)
		} else {
			fmt.Fprintf(&b, "false 0 0\n")
		}
	}
	return b.String()
}

// found is what a memory has of a sailor.
func (s *sailor) found(m *Memory) string {
	var b strings.Builder
	for _, x := range m.Handles().All() {
		if x.Node == s.id {
			fmt.Fprintf(&b, "handle %d %d %d\n", x.Unique, x.Mode, x.Backing)
		}
	}
	for slot := range m.Journal().Left() {
		if e := slot.Entry(); e.Dir == s.id {
			done, status, node := slot.Result()
			fmt.Fprintf(&b, "entry %d %d %d %s %s %v %d %d\n", e.Unique, e.Ino, e.Arg, e.Name, e.Name2, done,
				status, node)
		}
	}
	return b.String()
}

// The same holds of each goroutine when several work at once.
func TestKillCrew(t *testing.T) {
	for range rounds(50) {
		m := fresh(t, large)
		n := kill(t, m, "crew", time.Duration(rand.IntN(3_000_000)))
		after := next(t, m)
		for i := range uint64(crew) {
			s := &sailor{id: i}
			if got := s.found(after); got != s.state(n[i]) && got != s.state(n[i]+1) {
				t.Fatalf("after %d operations there is\n%s\ninstead of\n%s\nor\n%s", n[i], got, s.state(n[i]),
					s.state(n[i]+1))
			}
		}
	}
}
