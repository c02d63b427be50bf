package handover

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

var magic = [8]byte{'c', 'k', 'p', 't', 'h', 'a', 'n', 'd'}

// geometry is how large the tables are. Tests make smaller ones.
type geometry struct {
	flights uint64 // in a table
	journal uint64 // slots
	handles uint64 // slots
	half    uint64 // bytes, a multiple of a page
}

var standard = geometry{flights: 4096, journal: 4096, handles: 1 << 20, half: 512 << 20}

// places are where the tables lie, in bytes from the start; size is the whole.
type places struct {
	notes, suspects, flights, journal, handles, nodes, size uint64
}

// places computes the layout. Each table begins with a page.
func (g geometry) places() places {
	var p places
	at := uint64(page)
	for _, t := range []struct {
		where *uint64
		size  uint64
	}{
		{&p.notes, maxNotes * 2 * maxNote},
		{&p.suspects, 2 * maxSuspects * uint64(unsafe.Sizeof(suspect{}))},
		{&p.flights, 2 * g.flights * uint64(unsafe.Sizeof(flightSlot{}))},
		{&p.journal, g.journal * uint64(unsafe.Sizeof(journalSlot{}))},
		{&p.handles, g.handles * uint64(unsafe.Sizeof(handleSlot{}))},
		{&p.nodes, 2 * g.half},
		{&p.size, 0},
	} {
		*t.where = at
		at = (at + t.size + page - 1) &^ (page - 1)
	}
	return p
}

// header is the first page of the memory; the package comment draws it.
type header struct {
	magic       [8]byte
	version     uint64
	geometry    geometry
	_           [16]byte
	life        atomic.Uint64
	suspects    [2]uint64
	backing     atomic.Int64
	next        atomic.Uint64
	half        atomic.Uint64
	used        [2]atomic.Uint64
	journalUsed atomic.Uint64
	handlesUsed atomic.Uint64
	flightsUsed [2]atomic.Uint64
	_           [32]byte
	notes       [maxNotes]atomic.Uint64
	_           [page - 320]byte
}

// fixed is how much of the header never changes, in bytes.
const fixed = 48

// Memory is what one daemon leaves to the next.
type Memory struct {
	fd int
	b  []byte
	h  *header

	notes    notes
	suspects suspects
	flights  Flights
	journal  Journal
	handles  Handles
	nodes    Nodes
}

// New makes a memory with nothing in it. Close ends it.
func New() (*Memory, error) { return create(standard) }

func create(g geometry) (*Memory, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("ckptfs-handover", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("ckptfs-handover", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	m, err := fill(fd, g)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return m, nil
}

// seals keep the size as it is, so that no access to the mapping is one behind the end.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// fill gives a new memfd its size and its header.
func fill(fd int, g geometry) (*Memory, error) {
	if err := unix.Ftruncate(fd, int64(g.places().size)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	m, err := mapped(fd, g)
	if err != nil {
		return nil, err
	}
	m.h.version, m.h.geometry, m.h.magic = Version, g, magic
	if err := m.open(); err != nil {
		unix.Munmap(m.b)
		return nil, err
	}
	return m, nil
}

// Map opens the memory of the daemons before, after the last of them has ended. It takes fd over, and sees to
// it that no child inherits it. When it returns an error, which may be ErrVersion or ErrDamaged, fd is still
// the caller's.
func Map(fd int) (*Memory, error) { return open(fd, standard) }

func open(fd int, g geometry) (*Memory, error) {
	if err := check(fd, g); err != nil {
		return nil, err
	}
	m, err := mapped(fd, g)
	if err != nil {
		return nil, err
	}
	if err := m.open(); err != nil {
		unix.Munmap(m.b)
		return nil, err
	}
	unix.CloseOnExec(fd)
	return m, nil
}

// check reads what can be known of a memory before it is mapped: that it is one, of this version and
// geometry, and that all of it is there and stays.
func check(fd int, g geometry) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	var h header
	n, err := unix.Pread(fd, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h)), 0)
	switch {
	case err != nil || n < fixed || h.magic != magic:
		return fmt.Errorf("descriptor %d has no magic: %w", fd, ErrVersion)
	case h.version != Version:
		return fmt.Errorf("version %d, and this program has %d: %w", h.version, Version, ErrVersion)
	case h.geometry != g:
		return fmt.Errorf("geometry %v, and this program has %v: %w", h.geometry, g, ErrVersion)
	case uint64(st.Size) != g.places().size:
		return fmt.Errorf("%d bytes instead of %d: %w", st.Size, g.places().size, ErrVersion)
	}
	if got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || got&seals != seals {
		return fmt.Errorf("descriptor %d is not sealed: %w", fd, ErrVersion)
	}
	return nil
}

// mapped maps fd, which has the size that g needs.
func mapped(fd int, g geometry) (*Memory, error) {
	b, err := unix.Mmap(fd, 0, int(g.places().size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// Both only save memory and time: small pages where little is used, and no gigabyte in a core dump.
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	return &Memory{fd: fd, b: b, h: (*header)(unsafe.Pointer(&b[0]))}, nil
}

// open reads all tables but the nodes, which Load does.
func (m *Memory) open() error {
	g := m.h.geometry
	p := g.places()
	m.notes.open(m.h, m.b[p.notes:p.suspects])
	m.suspects.open(m.h, table[suspect](m.b[p.suspects:], 2*maxSuspects))
	m.flights.open(m.h, table[flightSlot](m.b[p.flights:], 2*g.flights))
	m.journal.open(m.h, table[journalSlot](m.b[p.journal:], g.journal))
	m.handles.open(m.h, table[handleSlot](m.b[p.handles:], g.handles))
	m.nodes.open(m.fd, m.h, m.b[p.nodes:p.nodes+2*g.half], p.nodes)
	return errors.Join(m.notes.load(), m.suspects.load(), m.flights.load(), m.journal.load(),
		m.handles.load(), m.nodes.check())
}

// table is the start of b as n slots. b begins with a page, so that they are aligned.
func table[T any](b []byte, n uint64) []T {
	var t T
	_ = b[:n*uint64(unsafe.Sizeof(t))]
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// Fd is the descriptor, for the next daemon. It stays the memory's.
func (m *Memory) Fd() int { return m.fd }

// Close ends the use of the memory by this process. Nothing that came from it may be used any more.
func (m *Memory) Close() error {
	return errors.Join(unix.Munmap(m.b), unix.Close(m.fd))
}

// BeginLife counts a daemon, and returns its number: 1 for the first. crashed says that the one before ended
// by a crash of its own, which makes suspects of the requests that were under way. It is called once, before
// anything is served. Flights.Left still tells what was under way.
func (m *Memory) BeginLife(crashed bool) uint64 {
	life := m.h.life.Load() + 1
	m.suspects.prepare(life, m.flights.left, crashed)
	m.flights.prepare(life)
	m.h.life.Store(life)
	m.nodes.giveBack(0) // a daemon that was killed may have begun to compact
	return life
}

// Crashes tells at how many crashes in a row the request was under way. unique is without the bit that says
// that a request comes again.
func (m *Memory) Crashes(unique uint64) uint32 { return m.suspects.crashes[unique] }

// NoteBacking keeps the highest backing id that the kernel gave. It is called before the answer that tells of
// id. It is safe for concurrent use.
func (m *Memory) NoteBacking(id int32) {
	for {
		was := m.h.backing.Load()
		if was >= int64(id) || m.h.backing.CompareAndSwap(was, int64(id)) {
			return
		}
	}
}

// Backing is the highest backing id that the kernel gave, 0 if it gave none.
func (m *Memory) Backing() int32 { return int32(m.h.backing.Load()) }

// Nodes are which node id leads to which inode by which name.
func (m *Memory) Nodes() *Nodes { return &m.nodes }

// Handles are the open files and directories.
func (m *Memory) Handles() *Handles { return &m.handles }

// Journal is what must not be done twice.
func (m *Memory) Journal() *Journal { return &m.journal }

// Flights are the requests that are worked on.
func (m *Memory) Flights() *Flights { return &m.flights }
