package handover

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Nodes are which node id leads to which inode by which name. The caller has a mutex round all calls.
type Nodes struct {
	fd   int
	at   uint64 // of both halves in the memory
	h    *header
	both []byte

	small int // the log is not compacted for what it has too much while it is at most this long, in bytes

	// What was read of the log. nil: nothing yet.
	// 0 <= live <= end <= len(log); live <= limit, if all of it was written through Put.
	index map[uint64]uint32 // where the record of each id lies, in units of 8 bytes
	log   []byte            // the half that is true
	end   int               // of its records
	live  int               // the bytes of those that count
}

func (n *Nodes) open(fd int, h *header, both []byte, at uint64) {
	n.fd, n.h, n.both, n.at, n.small = fd, h, both, at, 4<<20
}

// check looks at the words in the header.
func (n *Nodes) check() error {
	half := n.h.half.Load()
	if half > 1 {
		return fmt.Errorf("half %d of the nodes: %w", half, ErrDamaged)
	}
	if used := n.h.used[half].Load(); used > uint64(len(n.both)/2) {
		return fmt.Errorf("%d bytes used of the %d for nodes: %w", used, len(n.both)/2, ErrDamaged)
	}
	return nil
}

// halfOf is one of the two halves.
func (n *Nodes) halfOf(i uint64) []byte {
	size := len(n.both) / 2
	return n.both[int(i&1)*size:][:size:size]
}

// read goes through the log, up to its end or to the first record that is nonsense. What is appended later
// goes there.
func (n *Nodes) read() error {
	half := n.h.half.Load()
	n.log = n.halfOf(half)
	used := int(min(n.h.used[half&1].Load(), uint64(len(n.log))))
	const usual = 64 // bytes for a node, with what does not count any more
	n.index, n.end, n.live = make(map[uint64]uint32, used/usual), 0, 0
	for n.end < used {
		r := record(n.log[n.end:used])
		if !r.valid() {
			return fmt.Errorf("the record of a node at byte %d of %d: %w", n.end, used, ErrDamaged)
		}
		n.live -= n.sizeOf(r.id())
		if r.put() {
			n.index[r.id()] = uint32(n.end / 8)
			n.live += r.size()
		} else {
			delete(n.index, r.id())
		}
		n.end += r.size()
	}
	return nil
}

// ready reads the log if that was not done yet. Of a damaged one it keeps what Load would return.
func (n *Nodes) ready() {
	if n.index == nil {
		_ = n.read()
	}
}

// sizeOf is the size of the record of an id, 0 if there is none.
func (n *Nodes) sizeOf(id uint64) int {
	if at, ok := n.index[id]; ok {
		return record(n.log[int(at)*8:]).size()
	}
	return 0
}

// MostNodes is how many nodes there is room for, whatever their names are.
const MostNodes = 1 << 20

// limit is how many bytes may count: in what is left of a half, several records are appended before it has to
// be compacted again.
func (n *Nodes) limit() int { return len(n.both) / 2 / 8 * 7 }

// Put keeps a node, or another name or parent for an id that is there. Its errors are ErrFull when there is
// no room until others are dropped, and ErrTooLong for a name of more than 255 bytes. Then what was kept of
// the id before is dropped, as it is not true any more.
func (n *Nodes) Put(x Node) error {
	n.ready()
	if len(x.Name) > maxName || x.Type > math.MaxUint16 {
		n.Drop(x.ID)
		return fmt.Errorf("name of %d bytes, type %#o: %w", len(x.Name), x.Type, ErrTooLong)
	}
	size, was := sizeOfPut(&x), n.sizeOf(x.ID)
	if n.live-was+size > n.limit() {
		n.Drop(x.ID)
		return ErrFull
	}
	if n.end+size > len(n.log) {
		n.compact()
	}
	record(n.log[n.end:]).encode(&x)
	n.index[x.ID] = uint32(n.end / 8)
	n.live += size - was
	n.publish(size)
	return nil
}

// Drop forgets a node. It does nothing if id is not there.
func (n *Nodes) Drop(id uint64) {
	n.ready()
	was := n.sizeOf(id)
	if was == 0 {
		return
	}
	delete(n.index, id)
	n.live -= was
	if n.end+dropSize > len(n.log) {
		n.compact() // which leaves it out
		return
	}
	record(n.log[n.end:]).encodeDrop(id)
	n.publish(dropSize)
}

// publish makes the record that was written behind the end part of the log.
func (n *Nodes) publish(size int) {
	n.end += size
	n.h.used[n.h.half.Load()&1].Store(uint64(n.end))
	if n.end > n.small && n.end/4 > n.live {
		n.compact()
	}
}

// compact writes the records that count to the other half, and turns to it.
func (n *Nodes) compact() {
	from := n.h.half.Load() & 1
	to := n.halfOf(from ^ 1)
	index := make(map[uint64]uint32, len(n.index))
	end := 0
	for at := 0; at < n.end; {
		r := record(n.log[at:n.end])
		if !r.valid() { // somebody else wrote there
			break
		}
		if r.put() {
			if where, ok := n.index[r.id()]; ok && int(where)*8 == at {
				index[r.id()] = uint32(end / 8)
				end += copy(to[end:], r[:r.size()])
			}
		}
		at += r.size()
	}
	n.h.used[from^1].Store(uint64(end))
	n.h.half.Store(from ^ 1)
	n.index, n.log, n.end, n.live = index, to, end, end
	n.giveBack(n.small) // the next log begins there
}

// giveBack frees the pages of the half that is not true, but for its first bytes. Without that nothing goes
// wrong.
func (n *Nodes) giveBack(keep int) {
	size := len(n.both) / 2
	if keep >= size {
		return
	}
	at := int64(n.at) + int64(n.h.half.Load()&1^1)*int64(size)
	_ = unix.Fallocate(n.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at+int64(keep),
		int64(size-keep))
}

// Load returns the nodes that are there, at the start of a life. With ErrDamaged it returns those up to the
// first record that no daemon wrote.
func (n *Nodes) Load() (map[uint64]Node, error) {
	err := n.read()
	nodes := make(map[uint64]Node, len(n.index))
	for id, at := range n.index {
		nodes[id] = record(n.log[int(at)*8:]).node()
	}
	return nodes, err
}

// Next is the first node id that was never used, as SetNext was told, 0 if it was not.
func (n *Nodes) Next() uint64 { return n.h.next.Load() }

// SetNext keeps the first node id that was never used, before the one below it is given out.
func (n *Nodes) SetNext(id uint64) { n.h.next.Store(id) }
