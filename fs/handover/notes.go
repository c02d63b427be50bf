package handover

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	maxNote  = 4096 // bytes
	maxNotes = 16
)

// The names that SetNote takes. The order is the layout's.
const (
	NoteMode       = "mode"       // how the mount was made
	NoteReason     = "reason"     // and why it was made so
	NoteMountpoint = "mountpoint" // where, without symbolic links
)

// noteNames are the notes by number. Callers cannot name the first two.
var noteNames = []string{"\x00init", "\x00answer", NoteMode, NoteReason, NoteMountpoint}

// Bits of a note's word.
const (
	noteLength = 1<<32 - 1
	noteSecond = 1 << 32
	noteThere  = 1 << 63
)

// notes are texts that were said once, at the start.
type notes struct {
	mu    sync.Mutex // one writer at a time, and none while somebody reads
	words *[maxNotes]atomic.Uint64
	room  []byte
}

func (n *notes) open(h *header, room []byte) { n.words, n.room = &h.notes, room }

// load checks what the daemons before left.
func (n *notes) load() error {
	for i := range n.words {
		w := n.words[i].Load()
		if w&^(noteLength|noteSecond|noteThere) != 0 || w&noteLength > maxNote {
			return fmt.Errorf("note %d has the word %#x: %w", i, w, ErrDamaged)
		}
	}
	return nil
}

// copyOf is the room of the copy of note i that word w speaks of.
func (n *notes) copyOf(i int, w uint64) []byte {
	at := 2 * maxNote * i
	if w&noteSecond != 0 {
		at += maxNote
	}
	return n.room[at : at+maxNote]
}

func (n *notes) set(i int, value []byte) error {
	if len(value) > maxNote {
		return fmt.Errorf("%d bytes, of at most %d: %w", len(value), maxNote, ErrTooLong)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.words[i].Load()&noteSecond ^ noteSecond | noteThere
	copy(n.copyOf(i, w), value)
	n.words[i].Store(w | uint64(len(value)))
	return nil
}

func (n *notes) get(i int) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.words[i].Load()
	if w&noteThere == 0 {
		return nil
	}
	return append([]byte{}, n.copyOf(i, w)[:min(w&noteLength, maxNote)]...)
}

// SetInit keeps the kernel's INIT request, of at most 4096 bytes, else ErrTooLong.
func (m *Memory) SetInit(request []byte) error { return m.notes.set(0, request) }

// Init is the kernel's INIT request, nil if it was not read yet.
func (m *Memory) Init() []byte { return m.notes.get(0) }

// SetAnswer keeps the answer to INIT, of at most 4096 bytes, else ErrTooLong.
func (m *Memory) SetAnswer(answer []byte) error { return m.notes.set(1, answer) }

// Answer is the answer to INIT, nil if there was none yet.
func (m *Memory) Answer() []byte { return m.notes.get(1) }

// SetNote keeps value, of at most 4096 bytes, under one of the names above, in place of what was there. Its
// errors are ErrKey and ErrTooLong.
func (m *Memory) SetNote(key string, value []byte) error {
	i := slices.Index(noteNames, key)
	if i < 2 {
		return fmt.Errorf("%q: %w", key, ErrKey)
	}
	return m.notes.set(i, value)
}

// Note is what SetNote kept under key, nil if nothing.
func (m *Memory) Note(key string) []byte {
	i := slices.Index(noteNames, key)
	if i < 2 {
		return nil
	}
	return m.notes.get(i)
}
