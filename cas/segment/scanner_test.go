package segment

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
)

func scanned(t testing.TB, p []byte) (found []string, tail int64) {
	t.Helper()
	s := NewScanner(bytes.NewReader(p), int64(len(p)), testID, 0)
	for s.Next() {
		if s.Gap() {
			r, zero := s.Range()
			found = append(found, fmt.Sprintf("gap %d-%d zero=%v", r.Off, r.End, zero))
		} else {
			found = append(found, fmt.Sprintf("%s at %d", s.Record().Kind, s.Record().Off))
		}
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return found, s.Tail()
}

func TestScan(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	a := mustPut(t, w, cas.Chunk, strings.Repeat("a", 100)) // 64 + 104
	b := mustPut(t, w, cas.Chunk, strings.Repeat("b", 200))
	c := mustPut(t, w, 77, strings.Repeat("c", 300))
	p := fileOf(t, m)
	at := func(r Record) string { return fmt.Sprintf("%s at %d", r.Kind, r.Off) }
	gap := func(from, to int64, zero bool) string { return fmt.Sprintf("gap %d-%d zero=%v", from, to, zero) }
	with := func(off int64, q ...byte) []byte {
		p := bytes.Clone(p)
		copy(p[off:], q)
		return p
	}
	zeroed := func(r Record) []byte {
		p := bytes.Clone(p)
		clear(p[r.Off:r.End()])
		return p
	}
	// Of a write that failed, in room that was given back and used again in part.
	stale := zeroed(b)
	(&Record{Off: b.Off + 8, Kind: cas.Chunk, Stored: 400, CRC: 1}).put(stale[b.Off+8:], testID)
	shifted := slices.Concat(p[:b.Off], p[a.Off:a.End()], p[b.Off:])

	for _, tc := range []struct {
		name string
		p    []byte
		want []string
		tail int64
	}{
		{"whole", p, []string{at(a), at(b), at(c)}, c.End()},
		{"no file header", with(0, make([]byte, 64)...), []string{at(a), at(b), at(c)}, c.End()},
		{"header damaged", with(b.Off+20, 'X'), []string{at(a), gap(b.Off, c.Off, false), at(c)}, c.End()},
		{"length damaged", with(b.Off+12, 0xff, 0xff), []string{at(a), gap(b.Off, c.Off, false), at(c)},
			c.End()},
		{"payload damaged", with(b.Off+100, 'X'), []string{at(a), gap(b.Off, c.Off, false), at(c)}, c.End()},
		{"never written", zeroed(b), []string{at(a), gap(b.Off, c.Off, true), at(c)}, c.End()},
		{"stale header", stale, []string{at(a), gap(b.Off, c.Off, false), at(c)}, c.End()},
		{"first gone", zeroed(a), []string{gap(a.Off, b.Off, true), at(b), at(c)}, c.End()},
		{"last gone", zeroed(c), []string{at(a), at(b)}, b.End()},
		{"last damaged", with(c.End()-5, 'X'), []string{at(a), at(b)}, b.End()},
		{"torn in the header", p[:c.Off+30], []string{at(a), at(b)}, b.End()},
		{"torn in the payload", p[:c.Off+100], []string{at(a), at(b)}, b.End()},
		{"torn in the padding", p[:c.End()-3], []string{at(a), at(b), at(c)}, c.End()},
		{"a record in another place", shifted, []string{at(a)}, a.End()},
		{"empty", nil, nil, FileHeaderSize},
		{"file header only", p[:64], nil, FileHeaderSize},
	} {
		got, tail := scanned(t, tc.p)
		if !slices.Equal(got, tc.want) || tail != tc.tail {
			t.Errorf("%s: %q to %d, want %q to %d", tc.name, got, tail, tc.want, tc.tail)
		}
	}
}

func TestScanInsidePayload(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	mustPut(t, w, cas.Chunk, "inner")
	inner := fileOf(t, m)
	m2 := newMem(t)
	w2 := create(t, m2)
	outer := mustPut(t, w2, cas.Chunk, string(inner))
	last := mustPut(t, w2, cas.Chunk, "last")
	p := fileOf(t, m2)
	p[outer.Off] ^= 1
	got, _ := scanned(t, p)
	if want := []string{fmt.Sprintf("gap %d-%d zero=false", outer.Off, last.Off),
		fmt.Sprintf("chunk at %d", last.Off)}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestScanLarge(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	r := rand.New(rand.NewPCG(3, 3))
	var recs []Record
	for w.Size() < 5*scanBuffer {
		n := r.IntN(300 << 10)
		if r.IntN(10) == 0 {
			n = r.IntN(64)
		}
		recs = append(recs, mustPut(t, w, cas.Chunk, strings.Repeat("x", n)))
	}
	p := fileOf(t, m)
	for i := range recs {
		// Each record in turn loses its header; magics lie around unaligned.
		q := bytes.Clone(p)
		clear(q[recs[i].Off:][:RecordHeaderSize])
		for off := recs[i].Off + RecordHeaderSize + 1; off+8 < recs[i].End(); off += 7 {
			copy(q[off:], recordMagic[:])
		}
		got, _ := scanned(t, q)
		want := len(recs)
		if i == len(recs)-1 {
			want--
		}
		if len(got) != want {
			t.Fatalf("record %d damaged: %d found of %d", i, len(got), want)
		}
		if i < len(recs)-1 && !strings.HasPrefix(got[i],
			fmt.Sprintf("gap %d-%d ", recs[i].Off, recs[i+1].Off)) {
			t.Fatalf("record %d damaged: %s", i, got[i])
		}
	}
}

func TestScanForged(t *testing.T) {
	const n = 4 << 20
	p := make([]byte, n)
	for off := int64(FileHeaderSize); off+RecordHeaderSize <= n; off += RecordHeaderSize {
		r := Record{Off: off, Kind: cas.Chunk, Stored: uint32(min(cas.MaxChunk, n-off-RecordHeaderSize)),
			CRC: 1}
		r.put(p[off:], testID)
	}
	var read int64
	s := NewScanner(counting{bytes.NewReader(p), &read}, n, testID, 0)
	for s.Next() {
		t.Fatal("found something")
	}
	if s.Err() != nil || read > 2*maxWaste {
		t.Errorf("%v, %d bytes read for %d", s.Err(), read, n)
	}
}

type counting struct {
	r io.ReaderAt
	n *int64
}

func (c counting) ReadAt(p []byte, off int64) (int, error) {
	*c.n += int64(len(p))
	return c.r.ReadAt(p, off)
}

func FuzzScan(f *testing.F) {
	m := newMem(f)
	w := create(f, m)
	mustPut(f, w, cas.Chunk, "first")
	mustPut(f, w, cas.List, strings.Repeat("second", 20))
	f.Add(fileOf(f, m))
	if _, err := w.Seal(sealTime); err != nil {
		f.Fatal(err)
	}
	f.Add(fileOf(f, m))
	f.Fuzz(func(t *testing.T, p []byte) {
		_ = checkFileHeader(p, testID)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		defer func() {
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 4*scanBuffer+4*uint64(len(p)) {
				t.Fatalf("%d bytes of memory for %d", took, len(p))
			}
		}()
		s := NewScanner(bytes.NewReader(p), int64(len(p)), testID, 0)
		end := int64(FileHeaderSize)
		for s.Next() {
			from, to := s.Record().Off, s.Record().End()
			if s.Gap() {
				r, _ := s.Range()
				from, to = r.Off, r.End
			} else {
				// What is accepted is what would be written.
				q := make([]byte, RecordHeaderSize)
				s.Record().put(q, testID)
				got := bytes.Clone(p[from:][:RecordHeaderSize])
				got[6], got[7] = 0, 0
				if !bytes.Equal(q[:60], got[:60]) {
					t.Fatal("a header reads as another")
				}
			}
			if from != end || to <= from || to%align != 0 {
				t.Fatalf("%d-%d after %d", from, to, end)
			}
			end = to
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		ft, err := ReadFooter(bytes.NewReader(p), int64(len(p)), testID)
		if err != nil {
			return
		}
		var n int64
		if err := ft.Each(bytes.NewReader(p), func(*Record) error {
			n++
			return nil
		}); err == nil && n != ft.Records {
			t.Fatalf("%d entries of %d", n, ft.Records)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	m := newMem(b)
	w := create(b, m)
	for range 64 {
		mustPut(b, w, cas.Chunk, strings.Repeat("x", cas.ChunkSize))
	}
	p := fileOf(b, m)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if found, _ := scanned(b, p); len(found) != 64 {
			b.Fatal(len(found))
		}
	}
}
