package store

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/damage"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// inSegments is a store of n sealed segments, closed, of which each has three chunks: i has 3i to 3i+2.
func inSegments(t *testing.T, n int) (*disk.Mem, *memIndex) {
	m, x := newMem(), newIndex()
	for i := range n {
		s := open(t, m, x, Options{})
		b := s.Begin()
		for k := range 3 {
			put(t, b, cas.Chunk, big(3*i+k))
		}
		commit(t, b)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return m, x
}

// big is a chunk of some blocks that compresses little.
func big(i int) []byte {
	var p []byte
	for k := range 20 {
		p = append(p, chunk(1000+3*(20*i+k)+1)...)
	}
	return p
}

// failing lets all that opens or reads one segment fail, as which says.
func failing(n int, err error, which func(disk.Op) bool) func(disk.Op) *disk.Fault {
	return func(op disk.Op) *disk.Fault {
		if op.Name == segment.Path(dir, uint32(n)) && which(op) {
			return &disk.Fault{Err: err}
		}
		return nil
	}
}

func isOpen(op disk.Op) bool { return op.Kind == disk.OpOpen }
func isRead(op disk.Op) bool { return op.Kind == disk.OpRead }
func isSync(op disk.Op) bool { return op.Kind == disk.OpSync }

// Each segment in turn cannot be opened, or read, or settled: the store opens, with its index and with a new
// one, serves all that lies elsewhere, names the segment, and leaves it alone.
func TestUnreadableSegment(t *testing.T) {
	const segments = 3
	for n := 1; n <= segments; n++ {
		ways := map[string]func(disk.Op) bool{"open": isOpen, "read": isRead, "sync": isSync}
		for what, which := range ways {
			for _, rebuilt := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d %s rebuilt %v", n, what, rebuilt), func(t *testing.T) {
					unreadableSegment(t, segments, n, rebuilt, which)
				})
			}
		}
	}
}

func unreadableSegment(t *testing.T, segments, n int, rebuilt bool, which func(disk.Op) bool) {
	m, x := inSegments(t, segments)
	if rebuilt {
		x = newIndex()
	}
	before := m.String()
	m.Inject(failing(n, syscall.EUCLEAN, which))
	syncs := which(disk.Op{Kind: disk.OpSync})
	var told []uint32
	s := open(t, m, x, Options{Unreadable: func(n uint32, _ error) { told = append(told, n) }})
	hit := !syncs || rebuilt || n == segments // a segment before the watermark is not synced
	if hit && (s.Stats().Unreadable != 1 || !slices.Equal(told, []uint32{uint32(n)})) {
		t.Errorf("%d unreadable, told of %v", s.Stats().Unreadable, told)
	}
	for i := range 3 * segments {
		if i/3 != n-1 {
			wantGet(t, s, big(i))
			if put(t, s.Begin(), cas.Chunk, big(i)) {
				t.Error("stored again")
			}
			continue
		}
		if !hit {
			continue
		}
		if _, err := s.Get(cas.Sum(big(i)), nil); rebuilt {
			wantErr(t, err, cas.ErrNotFound)
		} else if syncs {
			wantGet(t, s, big(i))
		} else if wantErr(t, err, syscall.EUCLEAN); !strings.Contains(err.Error(), segment.Name(uint32(n))) {
			t.Errorf("%v", err)
		}
	}
	if _, fs := checkAll(t, s, CheckOptions{}); hit && !syncs && !slices.ContainsFunc(fs,
		func(f damage.Finding) bool { return f.Problem == damage.Unreadable && f.Segment == uint32(n) }) {
		t.Errorf("%v", fs)
	}
	var all []cas.Hash
	for i := range 3 * segments {
		all = append(all, cas.Sum(big(i)))
	}
	// What lies there is put again, but for one.
	b := s.Begin()
	held := make([]bool, len(all))
	if err := b.PutHeld(cas.Chunk, all, held); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * segments {
		if lost := hit && i/3 == n-1; held[i] == lost {
			t.Errorf("chunk %d: held %v", i, held[i])
		} else if lost && i%3 > 0 && !put(t, b, cas.Chunk, big(i)) {
			t.Error("believed to be held")
		}
	}
	commit(t, b)
	if _, err := s.Sweep(t.Context(), SweepOptions{}, marking()); err != nil && !hit {
		t.Error(err)
	}
	if c, err := s.Compact(t.Context(), false); err != nil {
		t.Error(err)
	} else {
		c.End()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !hit {
		return
	}
	m.Inject(nil)
	if after := m.String(); lineOf(after, n) != lineOf(before, n) || lineOf(after, n) == "" {
		t.Errorf("changed:\n%s\n%s", before, after)
	}
	// The disk thinks better of it.
	s = open(t, m, newIndex(), Options{})
	for i := 3 * (n - 1); i < 3*n; i++ {
		wantGet(t, s, big(i))
	}
}

// lineOf is what a disk's listing says of a segment.
func lineOf(listing string, n int) string {
	for line := range strings.Lines(listing) {
		if strings.Contains(line, segment.Name(uint32(n))) {
			return line
		}
	}
	return ""
}

// One block after the other cannot be read. What lies in none such is read, also with a new index, and a
// record that is not sealed yet.
func TestUnreadableBlock(t *testing.T) {
	m, _ := inSegments(t, 2)
	f, err := m.OpenFile(segment.Path(dir, 1), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, _ := f.Size()
	f.Close()
	for _, sealed := range []bool{true, false} {
		for at := int64(0); at < size; at += disk.BlockSize {
			bad := segment.Range{Off: at, End: at + disk.BlockSize}
			c, x := m.CrashClone(nil), newIndex()
			if !sealed {
				f, err := c.OpenFile(segment.Path(dir, 1), 2, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := f.Truncate(size - 8); err != nil {
					t.Fatal(err)
				}
				f.Close()
			}
			c.Inject(failing(1, syscall.EIO, func(op disk.Op) bool {
				return op.Kind == disk.OpRead && op.Off < bad.End && op.Off+op.Len > bad.Off
			}))
			s := open(t, c, x, Options{})
			lost := 0
			for i := range 6 {
				if _, err := s.Get(cas.Sum(big(i)), nil); err != nil {
					lost++
				}
			}
			if lost > 2 || lost == 0 && at > 0 && bad.End < size-disk.BlockSize {
				t.Errorf("sealed %v, block at %d: %d lost", sealed, at, lost)
			}
			if _, fs := checkAll(t, s, CheckOptions{ReadData: true}); !slices.ContainsFunc(fs,
				func(f damage.Finding) bool { return f.Problem == damage.Unreadable }) {
				t.Errorf("sealed %v, block at %d: %v", sealed, at, fs)
			}
			// What was lost is stored afresh.
			b := s.Begin()
			for i := range 6 {
				put(t, b, cas.Chunk, big(i))
			}
			commit(t, b)
			for i := range 6 {
				wantGet(t, s, big(i))
			}
			s.Close()
		}
	}
}

// Of what passes, nothing follows for the segment: the store does not open.
func TestTransientErrors(t *testing.T) {
	for _, err := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EPERM,
		syscall.ETIMEDOUT, syscall.EINTR} {
		for _, which := range []func(disk.Op) bool{isOpen, isRead} {
			m, x := inSegments(t, 2)
			m.Inject(failing(1, err, which))
			for _, x := range []*memIndex{x, newIndex()} {
				_, got := Open(m, dir, storeID, x, Options{})
				wantErr(t, got, err)
			}
		}
	}
}

// The index's own errors are no segment's.
func TestIndexUnreadable(t *testing.T) {
	m, _ := inSegments(t, 1)
	x := newIndex()
	x.fail = func() error { return syscall.EIO }
	_, err := Open(m, dir, storeID, x, Options{})
	wantErr(t, err, syscall.EIO)
}

// A store that was closed in order is read without a segment, and without changing it.
func TestUnreadableReadOnly(t *testing.T) {
	for n := 1; n <= 2; n++ {
		for _, which := range []func(disk.Op) bool{isOpen, isRead} {
			m, x := inSegments(t, 2)
			m.Inject(failing(n, syscall.EIO, which))
			s := open(t, disk.ReadOnly{FS: m}, x, Options{ReadOnly: true})
			for i := range 6 {
				if i/3 != n-1 {
					wantGet(t, s, big(i))
				}
			}
		}
	}
}

// A segment that ceases to be readable while the store is open: the next Put of what a read missed stores it
// afresh.
func TestUnreadableLater(t *testing.T) {
	for _, which := range []func(disk.Op) bool{isOpen, isRead} {
		m, x := inSegments(t, 2)
		s := open(t, m, x, Options{})
		m.Inject(failing(1, syscall.EIO, which))
		_, err := s.Get(cas.Sum(big(0)), nil)
		wantErr(t, err, syscall.EIO)
		if !strings.Contains(err.Error(), segment.Name(1)) {
			t.Errorf("%v", err)
		}
		b := s.Begin()
		if !put(t, b, cas.Chunk, big(0)) {
			t.Error("believed to be held")
		}
		commit(t, b)
		wantGet(t, s, big(0))
		wantGet(t, s, big(3))
	}
}

// While no segment can be settled a new index is made: it does not name what it may not believe either.
func TestUnsettledAndRenewed(t *testing.T) {
	m, _ := inSegments(t, 1)
	m.Inject(failing(1, syscall.EIO, isSync))
	index := &rotting{memIndex: newIndex()}
	s := open(t, m, index, Options{NewIndex: func(error) (Locator, error) { return newIndex(), nil }})
	index.rotten.Store(true)
	b := s.Begin()
	if held, err := s.Has([]cas.Hash{cas.Sum(big(0))}); err != nil || held[0] {
		t.Errorf("held %v, %v", held, err)
	}
	if !put(t, b, cas.Chunk, big(0)) {
		t.Error("believed to be held")
	}
	commit(t, b)
	s = open(t, m.CrashClone(nil), newIndex(), Options{})
	wantGet(t, s, big(0))
}
