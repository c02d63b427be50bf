package store

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/expected"
	"ckptfs/cas/segment"
)

// large puts chunks of 256 KiB, that are stored as they are, and returns their hashes.
func large(t testing.TB, s *Store, n int) (chunks [][]byte, hashes []cas.Hash) {
	t.Helper()
	chunks, hashes = dataset(n, true)
	b := s.Begin()
	for _, p := range chunks {
		put(t, b, cas.Chunk, p)
	}
	commit(t, b)
	b.Release()
	return chunks, hashes
}

// stretchesOf are those that s has.
func stretchesOf(s *Store) []*expected.Stretch { return s.reader.ahead.All() }

// What is expected is got from where it was read to, on any disk, and its memory is given back.
func TestExpect(t *testing.T) {
	for name, at := range map[string]struct {
		fs  disk.FS
		dir string
	}{"mem": {newMem(), dir}, "os": {disk.OS{}, filepath.Join(t.TempDir(), "segments")}} {
		s, err := Open(at.fs, at.dir, storeID, newIndex(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		chunks, hashes := large(t, s, 11) // in the segment that is being written, up to its end
		for i := range 4 {                // by turns once, past the page cache, and through it
			done := s.Expect(hashes, i%2 == 0)
			all := stretchesOf(s)
			if len(all) < 3 {
				t.Errorf("%s: %d stretches", name, len(all))
			}
			for _, u := range all {
				if u.Again != (i%2 > 0) {
					t.Errorf("%s: time %d leaves pages: %t", name, i, u.Again)
				}
			}
			for _, p := range chunks {
				wantGet(t, s, p)
			}
			for _, h := range hashes {
				loc := where(t, s, h)
				p, u := s.reader.ahead.Borrow(loc.Segment, loc.Off, segment.RecordHeaderSize+cas.ChunkSize)
				if u == nil {
					t.Fatalf("%s: %v is not there", name, h)
				}
				if cas.Sum(p[segment.RecordHeaderSize:]) != h {
					t.Errorf("%s: other bytes", name)
				}
				s.reader.ahead.Release(u)
			}
			done()
			s.reader.ahead.Wait()
			if n := len(stretchesOf(s)); n > 0 {
				t.Errorf("%s: %d stretches left", name, n)
			}
		}
		s.Expect(hashes, false)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s.Expect(hashes, false)()
	}
}

// where is where h lies.
func where(t testing.TB, s *Store, h cas.Hash) cas.Location {
	t.Helper()
	var loc [1]cas.Location
	if err := s.Locate([]cas.Hash{h}, loc[:]); err != nil || loc[0].Segment == 0 {
		t.Fatal(err)
	}
	return loc[0]
}

// The second time the page cache is used: another file has it too.
func TestExpectAgain(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	_, hashes := large(t, s, 4)
	for _, again := range []bool{false, true, true} {
		done := s.Expect(hashes, false)
		for _, u := range stretchesOf(s) {
			if u.Again != again {
				t.Errorf("again %v, want %v", u.Again, again)
			}
		}
		done()
		s.reader.ahead.Wait()
	}
}

// What is expected takes bounded memory, and all of it can be got.
func TestExpectMuch(t *testing.T) {
	const most = 5
	s := open(t, newMem(), newIndex(), Options{ExpectBytes: most << 20})
	chunks, hashes := large(t, s, 4*most)
	var done []func()
	for range 3 {
		done = append(done, s.Expect(hashes, false))
	}
	if n := len(stretchesOf(s)); n != most {
		t.Errorf("%d stretches", n)
	}
	for _, p := range chunks {
		wantGet(t, s, p)
	}
	for _, f := range done {
		f()
	}
	s.reader.ahead.Wait()
	if n := len(stretchesOf(s)); n > 0 {
		t.Errorf("%d left", n)
	}
}

// Who expects something waits until others' memory is free, but not for ever, and not again before some time.
func TestExpectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newMem(), newIndex(), Options{ExpectBytes: 5 << 20})
		_, hashes := large(t, s, 24) // three in a stretch
		expect := func(hashes []cas.Hash, left int, took time.Duration) (done func()) {
			t.Helper()
			start := time.Now()
			done = s.Expect(hashes, false)
			if n := len(stretchesOf(s)); n != left {
				t.Errorf("%d stretches, want %d", n, left)
			}
			if d := time.Since(start); d != took {
				t.Errorf("waited %v, want %v", d, took)
			}
			return done
		}
		most, two := expect(hashes[:9], 3, 0), expect(hashes[9:15], 5, 0)
		go func() {
			time.Sleep(time.Millisecond)
			most()
		}()
		three := expect(hashes[15:], 5, time.Millisecond) // waits for two and gets the third
		none := expect(hashes[:3], 5, 100*time.Millisecond)
		none()
		expect(hashes[:3], 5, 0)()
		time.Sleep(time.Second)
		expect(hashes[:3], 5, 100*time.Millisecond)()
		for _, done := range []func(){two, three} {
			done()
		}
		s.reader.ahead.Wait()
		all := expect(hashes, 5, 0) // more than there is memory for
		all()
		s.reader.ahead.Wait()
		expect(hashes[:3], 1, 0)()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Where there is little memory, none is waited for.
func TestExpectLittle(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{ExpectBytes: 768 << 10})
	_, hashes := large(t, s, 6)
	for _, done := range []func(){s.Expect(hashes[:3], false), s.Expect(hashes[3:], false)} {
		if n := len(stretchesOf(s)); n != 0 {
			t.Errorf("%d stretches", n)
		}
		done()
	}
}

// What was read before a record was written, or is not what it was, is read again; what is damaged on the
// disk is found.
func TestExpectStale(t *testing.T) {
	m := newMem()
	s := open(t, m, newIndex(), Options{})
	chunks, hashes := large(t, s, 4)
	done := s.Expect(hashes, false)
	for _, h := range hashes {
		loc := where(t, s, h)
		p, u := s.reader.ahead.Borrow(loc.Segment, loc.Off, segment.RecordHeaderSize+cas.ChunkSize)
		clear(p)
		s.reader.ahead.Release(u)
	}
	for _, p := range chunks {
		wantGet(t, s, p)
	}
	done()

	loc := where(t, s, hashes[2])
	patch(t, m, segment.Path(dir, loc.Segment), loc.Off+segment.RecordHeaderSize+77, chunks[2][77]^4)
	done = s.Expect(hashes, false)
	for i, h := range hashes {
		_, err := s.Get(h, nil)
		if i == 2 {
			wantErr(t, err, cas.ErrCorrupt)
		} else if err != nil {
			t.Error(err)
		}
	}
	done()
}

// A record that a sweep moves or takes while it is expected is got, or is gone, as ever.
func TestExpectSwept(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 3 << 20})
	chunks, hashes := large(t, s, 24)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, x, Options{SegmentSize: 3 << 20})
	done := s.Expect(hashes, false)
	keep := func(i int) bool { return i%3 == 0 }
	sweepNow(t, s, SweepOptions{}, func(_ context.Context, k *Marking) error {
		for i, h := range hashes {
			if keep(i) {
				k.Keep(h)
			}
		}
		return nil
	})
	for i, p := range chunks {
		if keep(i) {
			wantGet(t, s, p)
		} else if _, err := s.Get(hashes[i], nil); err == nil {
			t.Errorf("chunk %d is still there", i)
		}
	}
	done()
}

// Bases are read with the deltas that need them, by steps.
func TestExpectBases(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	var last []cas.Hash
	for v := range 4 {
		last = last[:0]
		for line := range 32 {
			p := tall(line, v)
			var rel cas.Related
			if v > 0 {
				rel.Prev = cas.Sum(tall(line, v-1))
			}
			if _, _, err := b.PutRelated(cas.Chunk, cas.Sum(p), p, fp32, rel); err != nil {
				t.Fatal(err)
			}
			last = append(last, cas.Sum(p))
		}
	}
	commit(t, b)
	done := s.Expect(last, false)
	defer done()
	for _, h := range last {
		loc := where(t, s, h)
		links, err := s.Bases(h, loc)
		if err != nil || len(links) == 0 {
			t.Fatal(len(links), err)
		}
		for _, l := range links {
			_, u := s.reader.ahead.Borrow(l.Loc.Segment, l.Loc.Off,
				segment.RecordHeaderSize+int(l.Loc.Stored))
			if u == nil {
				t.Fatal("a base is not expected")
			}
			s.reader.ahead.Release(u)
		}
	}
}

// Two callers that expect the same have it read once, and it stays until both are done.
func TestExpectTwice(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	_, hashes := large(t, s, 9)
	done := s.Expect(hashes, false)
	all := stretchesOf(s)
	again := s.Expect(hashes[2:], false)
	if now := stretchesOf(s); len(all) == 0 || !slices.Equal(now, all) {
		t.Errorf("%d stretches, then %d", len(all), len(now))
	}
	done()
	s.reader.ahead.Wait()
	for _, h := range hashes[2:] {
		loc := where(t, s, h)
		u := s.reader.ahead.Find(loc.Segment, loc.Off, segment.RecordHeaderSize+cas.ChunkSize)
		if u == nil {
			t.Fatal("what is expected is gone")
		}
		s.reader.ahead.Release(u)
	}
	again()
	if all := s.reader.ahead.All(); len(all) > 0 || !s.reader.ahead.Idle() {
		t.Errorf("%d stretches left, memory idle: %v", len(all), s.reader.ahead.Idle())
	}
}

// Of a record that is expected, or a base of one, any bit may have flipped: what it comes to is right all the
// same, or the payload's checksum is said to be wrong.
func TestExpectDamaged(t *testing.T) {
	m := newMem()
	s := open(t, m, newIndex(), Options{})
	versions := [][]byte{tall(0, 0), tall(0, 1)}
	raw, _ := dataset(2, true)
	b := s.Begin()
	for v, p := range versions {
		var rel cas.Related
		if v > 0 {
			rel.Prev = cas.Sum(versions[v-1])
		}
		if _, _, err := b.PutRelated(cas.Chunk, cas.Sum(p), p, fp32, rel); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range raw {
		put(t, b, cas.Chunk, p)
	}
	commit(t, b)
	b.Release()
	all := slices.Concat(versions, raw)
	var hashes []cas.Hash
	for _, p := range all {
		hashes = append(hashes, cas.Sum(p))
	}
	if !where(t, s, hashes[1]).Delta {
		t.Fatal("no delta")
	}
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 100 {
		loc := where(t, s, hashes[r.IntN(3)]) // the fourth is not touched
		name, off := segment.Path(dir, loc.Segment),
			loc.Off+segment.RecordHeaderSize+r.Int64N(int64(loc.Stored))
		var was [1]byte
		f, err := m.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(was[:], off); err != nil {
			t.Fatal(err)
		}
		f.Close()
		patch(t, m, name, off, was[0]^1<<r.IntN(8))
		done := s.Expect(hashes, false)
		if len(stretchesOf(s)) == 0 {
			t.Fatal("not expected")
		}
		for i, h := range hashes {
			got, err := s.Get(h, nil)
			if err != nil {
				found++
				if wantErr(t, err, cas.ErrCorrupt); i == 3 ||
					!strings.Contains(err.Error(), "payload checksum") {
					t.Fatal(i, err)
				}
			} else if !bytes.Equal(got, all[i]) {
				t.Fatalf("other bytes of %d", i)
			}
		}
		done()
		s.reader.ahead.Wait()
		patch(t, m, name, off, was[0])
	}
	if found < 100 {
		t.Errorf("found %d", found)
	}
}

// Of chunks that are expected the index is asked once; afterwards nothing of them is kept.
func TestExpectLocates(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	chunks, hashes := large(t, s, 4)
	first, second := s.Expect(hashes, false), s.Expect(hashes[1:], false)
	first()
	for i, h := range hashes {
		if _, known := s.reader.located.Get(h); known != (i > 0) {
			t.Errorf("chunk %d: %v", i, known)
		}
	}
	for i, h := range hashes {
		if got, err := s.Get(h, nil); err != nil || !bytes.Equal(got, chunks[i]) {
			t.Error(i, err)
		}
	}
	second()
	for i, h := range hashes {
		if _, known := s.reader.located.Get(h); known {
			t.Errorf("the place of chunk %d is kept", i)
		}
	}
	if len(s.reader.slots) > 0 {
		t.Errorf("%d slots taken", len(s.reader.slots))
	}
}
