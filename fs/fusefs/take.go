package fusefs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/handover"
	"ckptfs/fs/names"
	"ckptfs/fs/volume"
)

// Mounted is a mount that an earlier process served, as its Keeper has it.
type Mounted struct {
	Device  int
	Memory  int
	Kept    map[uint64]int // descriptors, by what they were kept for
	Crashed bool           // that process ended by a fault of its own: it was not killed
}

// Takeover is a Server of a mount that an earlier process served. Its requests wait until Start. The order is
//
//	Take                    maps the memory
//	volume.Open, and in it
//	  Resume                makes known what the kernel knows: nodes and handles
//	Start                   answers INIT, has the kernel send again what was not answered, and serves
type Takeover struct {
	*Server
	Mountpoint string

	// Lock is volume.Options.Lock.
	Lock *os.File

	kept map[uint64]int // descriptors of the process before, until Resume
}

// keptLock is what the store's lock is kept under, between the ids of nodes: nobody else has the store while
// no process serves the mount.
const keptLock = 1<<64 - 1

// Take takes a mount over.
func Take(m Mounted, o Options) (*Takeover, error) {
	memory, err := handover.Map(m.Memory)
	if err != nil {
		return nil, err
	}
	s := newServer(&device{fd: m.Device}, memory, o)
	if s.mode, s.reason, err = notedMode(memory); err != nil {
		return nil, err
	}
	memory.BeginLife(m.Crashed)
	t := &Takeover{Server: s, Mountpoint: string(memory.Note(handover.NoteMountpoint)), kept: m.Kept}
	if fd, ok := m.Kept[keptLock]; ok {
		delete(m.Kept, keptLock)
		t.Lock = os.NewFile(uintptr(fd), "lock")
	}
	return t, nil
}

// Resume is volume.Options.Resume.
func (s *Takeover) Resume(v *volume.Volume) error {
	s.v = v
	v.Attach(backing{s.dev, s.memory}, s.Mountpoint, s.mode == control.ModePassthrough, s.mode, s.reason)
	nodes, err := s.memory.Nodes().Load()
	if err != nil {
		return err
	}
	v.Names().TakeOver(heirOf(s.Server), nodes)
	s.noteMoves()
	v.Names().TakeKept(s.kept)
	if s.Lock == nil {
		s.keepLock()
	}
	s.reopen()
	return nil
}

// noteMoves finds the names that were being moved when the earlier process ended. One rename at a time
// changes names: of those that were under way one at most was done and not written down.
func (s *Takeover) noteMoves() {
	moved := func(dir uint64, name string) bool { return s.v.Names().Moved(content.NodeID(dir), name) }
	for slot := range s.memory.Journal().Left() {
		e := slot.Entry()
		if e.Op != opRename && e.Op != opRename2 {
			continue
		}
		moved(e.Dir2, e.Name2)
		if e.Arg&unix.RENAME_EXCHANGE != 0 {
			moved(e.Dir, e.Name)
		}
	}
}

// reopen opens again what the kernel has open.
func (s *Takeover) reopen() {
	backed := s.backings()
	for fh, h := range s.memory.Handles().All() {
		if h.Mode&ending != 0 {
			// The kernel asks for its release once more. If that took the backing back already, the kernel
			// would refuse the next open of the file that names it.
			if h.Mode &^= ending; !backed[h.Backing] {
				s.dev.UnregisterBacking(h.Backing)
				h.Mode, h.Backing = uint32(content.Direct), 0
			}
		}
		n := s.v.Names().Get(content.NodeID(h.Node))
		if n == nil {
			s.log(slog.LevelError, "an open file was not found again", "node", h.Node)
			continue
		}
		var opened any
		var err error
		if h.Kind == handover.KindDir {
			opened, err = n.OpenDir()
		} else {
			opened, err = s.v.Reopen(n, h.Flags, content.Mode(h.Mode), h.Backing)
		}
		if err != nil {
			s.log(slog.LevelError, "an open file could not be opened again", "path", n.Path(), "reason", err)
			continue
		}
		s.handles.restore(fh, h.Unique, opened)
	}
}

// Start serves the mount.
func (s *Takeover) Start() error {
	init := s.memory.Init()
	answer, err := s.shakeHands(init, s.v.Folder().Here())
	if err != nil {
		return err
	}
	if was := s.memory.Answer(); was != nil && !bytes.Equal(was, answer) {
		return errors.New("the mount was made with other options, or the kernel's limits for FUSE changed since: unmount it, and mount it again")
	}
	// The kernel takes it if the earlier process ended before it had answered; else it has no such request.
	if err := s.dev.write(answer); err != nil && err != unix.ENOENT {
		return fmt.Errorf("init: %w", err)
	}
	if err := s.memory.SetAnswer(answer); err != nil {
		return err
	}
	s.dropBackings()
	switch err := s.dev.resend(); {
	case err == unix.EINVAL || !resends(init): // below Linux 6.9
		s.fail(s.memory.Flights().Left())
	case err != nil:
		return fmt.Errorf("resend: %w", err)
	}
	s.loop.takenOver = true
	s.serve()
	go s.tidy()
	return nil
}

// resends reports whether the kernel that sent an INIT can send requests again.
func resends(init []byte) bool {
	const at, hasResend = 40 + 16, 1 << (39 - 32) // fuse_init_in.flags2
	return len(init) >= at+4 && binary.NativeEndian.Uint32(init[at:])&hasResend != 0
}

// fail answers the requests that an earlier process had in hand and that the kernel does not send again. To
// ESTALE the kernel itself does most calls about names once more.
func (s *Takeover) fail(requests []uint64) {
	for _, unique := range requests {
		_ = s.dev.write(answerHeader(unique, errStale, 0))
	}
}

// dropBackings takes back the ids that the kernel gave an earlier process for files that no handle has: it
// ended before it had told the kernel of the handle.
func (s *Takeover) dropBackings() {
	used := s.backings()
	const before, after = 64, 8 // the kernel counts ids up; the last ones may not have been noted
	last := s.memory.Backing()
	for id := max(last-before, 1); id <= last+after; id++ {
		if !used[id] {
			s.dev.UnregisterBacking(id)
		}
	}
}

// backings are the ids of what the kernel reads and writes by itself.
func (s *Takeover) backings() map[int32]bool {
	used := map[int32]bool{}
	for _, h := range s.memory.Handles().All() {
		if h.Mode&ending == 0 {
			used[h.Backing] = true
		}
	}
	return used
}

// tidy gives back what belonged to requests of earlier processes, and to nodes that the kernel forgot when no
// process heard of it.
func (s *Takeover) tidy() {
	select {
	case <-s.loop.fresh.Done(): // what the kernel sent again came before it
	case <-s.dead:
		return
	}
	s.loop.rounds.settle()
	for slot := range s.memory.Journal().Left() {
		if !s.written.has(slot.Entry().Unique) {
			slot.Free()
		}
	}
	s.handles.noneAgain()
	s.v.Names().Sweep(true, s.dev.knows, s.loop.rounds.settle)
	const every = 5 * time.Second
	for t := time.NewTicker(every); ; {
		select {
		case <-t.C:
			if s.v.Names().InDoubt() {
				s.v.Names().Sweep(false, s.dev.knows, s.loop.rounds.settle)
			}
		case <-s.dead:
			t.Stop()
			return
		}
	}
}

// heirOf is who is told of every node of a mount.
func heirOf(s *Server) *names.Heir {
	h := &names.Heir{
		Nodes: s.memory.Nodes(), Keep: func(uint64, int) {}, Unkeep: func(uint64) {},
	}
	if k := s.o.Keeper; k != nil {
		h.Keep = func(id uint64, fd int) {
			if err := k.Keep(id, fd); err != nil {
				s.log(slog.LevelWarn, "a removed file that is open would not outlive this process", "reason", err)
			}
		}
		h.Unkeep = func(id uint64) { _ = k.Drop(id) }
	}
	return h
}

// keepLock has the store's lock outlive this process.
func (s *Server) keepLock() {
	if s.o.Keeper == nil {
		return
	}
	if err := s.o.Keeper.Keep(keptLock, s.v.LockFd()); err != nil {
		s.log(slog.LevelWarn, "the store's lock would not outlive this process", "reason", err)
	}
}

// noteMode writes down how the mount was made.
func noteMode(m *handover.Memory, mountpoint, mode, reason string) error {
	return errors.Join(m.SetNote(handover.NoteMountpoint, []byte(mountpoint)),
		m.SetNote(handover.NoteMode, []byte(mode)), m.SetNote(handover.NoteReason, []byte(reason)))
}

func notedMode(m *handover.Memory) (mode, reason string, err error) {
	mode, reason = string(m.Note(handover.NoteMode)), string(m.Note(handover.NoteReason))
	if mode != control.ModePassthrough && mode != control.ModeServed {
		return "", "", fmt.Errorf("the mount's memory says that its mode is %q", mode)
	}
	return mode, reason, nil
}

// backing is the content.Kernel of a mount: it notes which ids the kernel gave.
type backing struct {
	*device
	memory *handover.Memory
}

func (b backing) RegisterBacking(fd int) (int32, error) {
	id, err := b.device.RegisterBacking(fd)
	if err == nil {
		b.memory.NoteBacking(id)
	}
	return id, err
}
