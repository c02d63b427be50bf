package chunks

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

func TestLate(t *testing.T) {
	d, err := Open(filepath.Join(t.TempDir(), "index.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	d.few = none
	full := true
	d.commit = func(f *file, c change) error {
		if full {
			return fmt.Errorf("file resize error: %s", syscall.ENOSPC)
		}
		return f.commit(c)
	}
	a, b := entries(1, 100), entries(2, 100)
	for i, es := range [][]cas.Entry{a, b} {
		if err := d.Commit(es, cas.Watermark{Segment: uint32(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	moved := a[7]
	moved.Segment, moved.Off = 99, 64
	if err := d.Commit([]cas.Entry{moved}, cas.Watermark{Segment: 3, Off: 8}); err != nil {
		t.Fatal(err)
	}
	a[7] = moved
	check := func() {
		t.Helper()
		locs, hashes := make([]cas.Location, 200), make([]cas.Hash, 200)
		want := map[key]cas.Location{}
		for i, e := range append(slices.Clone(a), b...) {
			hashes[i] = e.Hash
			want[keyOf(&e.Hash)] = e.Location
		}
		if err := d.Locate(hashes, locs); err != nil {
			t.Fatal(err)
		}
		for i := range hashes {
			if locs[i] != want[keyOf(&hashes[i])] {
				t.Fatalf("%d: %+v", i, locs[i])
			}
		}
		got := map[key]cas.Location{}
		if err := d.ForEach(0, 0xffff,
			func(e cas.Entry) error { got[keyOf(&e.Hash)] = e.Location; return nil }); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("walked %d entries, want %d", len(got), len(want))
		}
		if m, err := d.Watermark(); err != nil || m != (cas.Watermark{Segment: 3, Off: 8}) {
			t.Fatal(m, err)
		}
	}
	check()
	var m cas.Watermark
	if err := d.view(func(tx *bolt.Tx) (err error) {
		m, err = readMark(tx.Bucket(bucketMeta))
		return err
	}); err != nil || m != (cas.Watermark{}) {
		t.Errorf("the watermark on the disk is at %v, %v", m, err)
	}
	if err := d.Remove(a[:1]); !noSpace(err) {
		t.Errorf("removed without the disk: %v", err)
	}
	full = false
	if err := flush(d); err != nil || len(d.late.entries) != 0 {
		t.Fatal(err, len(d.late.entries))
	}
	check()
	expect(t, d, append(a, b...))
	if err := d.Check(); err != nil {
		t.Error(err)
	}
	if err := d.Remove(a[:1]); err != nil {
		t.Error(err)
	}
	a[0].Location = cas.Location{}
	expect(t, d, append(a, b...))

	d.commit = func(*file, change) error { return syscall.EIO }
	if err := d.Commit(a[1:2], cas.Watermark{Segment: 4}); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
}

// A disk that is really full: the index takes what it is told, and has it on the disk once there is room
// again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "index.db")
	fill := filepath.Join(dir, "fill")
	fillUp := func() {
		t.Helper()
		if err := os.WriteFile(fill, make([]byte, 3<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	es := entries(1, 20_000)
	commit := func(d *DB, es []cas.Entry) {
		t.Helper()
		for i := range 20 {
			if err := d.Commit(es[i*1000:(i+1)*1000], cas.Watermark{Segment: uint32(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		if len(d.late.entries) == 0 {
			t.Skip("there was room")
		}
		if err := flush(d); !noSpace(err) {
			t.Fatal(err)
		}
		locs, hashes := make([]cas.Location, len(es)), make([]cas.Hash, len(es))
		for i := range es {
			hashes[i] = es[i].Hash
		}
		if err := d.Locate(hashes, locs); err != nil {
			t.Fatal(err)
		}
		for i := range es {
			if locs[i] != es[i].Location {
				t.Fatalf("%d: %+v", i, locs[i])
			}
		}
	}
	onDisk := func(d *DB) {
		t.Helper()
		if err := os.Remove(fill); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		db := open(t, path)
		if db.Recovered() != "" {
			t.Error(db.Recovered())
		}
		expect(t, db, es)
		if m, err := db.Watermark(); err != nil || m.Segment != 20 {
			t.Error(m, err)
		}
		if err := db.Check(); err != nil {
			t.Error(err)
		}
		db.Close()
	}
	deferring := func() *DB {
		t.Helper()
		d, err := Open(path, opts)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := deferring()
	fillUp()
	commit(d, es)
	onDisk(d)

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	fillUp()
	d = deferring() // there is not even room for an empty one
	commit(d, es)
	onDisk(d)

	d = deferring()
	fillUp()
	if err := d.Renew(cas.ErrCorrupt); err != nil || !strings.Contains(d.Recovered(), "index.db.corrupt-1") {
		t.Fatal(err, d.Recovered())
	}
	if m, err := d.Watermark(); err != nil || m != (cas.Watermark{}) {
		t.Error(m, err)
	}
	commit(d, es)
	onDisk(d)
}

func flush(db *DB) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	return db.flushLocked()
}

// What is held is found at any moment, also while what was late is just being written.
func TestFoundWhileLateIsWritten(t *testing.T) {
	d, err := Open(filepath.Join(t.TempDir(), "index.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	commits := 0
	d.commit = func(f *file, c change) error { // a disk with room now and then
		if commits++; commits%10 != 0 {
			return syscall.ENOSPC
		}
		return f.commit(c)
	}
	all := entries(1, 4000)
	var n atomic.Int64
	done := make(chan struct{})
	missing := 0
	go func() {
		defer close(done)
		locs := make([]cas.Location, 1)
		for {
			i := n.Load()
			if i == int64(len(all)) {
				return
			}
			if i == 0 {
				continue
			}
			if err := d.Locate([]cas.Hash{all[i-1].Hash}, locs); err != nil || locs[0].Segment == 0 {
				missing++
			}
		}
	}()
	for i := range all {
		if err := d.Commit(all[i:i+1], cas.Watermark{Segment: 1, Off: int64(i)}); err != nil {
			t.Fatal(err)
		}
		n.Store(int64(i + 1))
	}
	<-done
	if missing > 0 {
		t.Errorf("%d times what is held was not found", missing)
	}
}
