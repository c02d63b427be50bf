package segment

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testID = ID{Store: [16]byte([]byte("store-id-16bytes")), Number: 3}

const dir = "/segments"

func newMem(t testing.TB) *disk.Mem {
	t.Helper()
	m := disk.NewMem()
	if err := m.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return m
}

func create(t testing.TB, m *disk.Mem) *Writer {
	t.Helper()
	w, err := Create(m, dir, testID, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// put appends a record whose payload is stored as codec 0.
func put(w *Writer, kind cas.Kind, payload string) (Record, error) {
	s, err := w.Reserve(len(payload))
	if err != nil {
		return Record{}, err
	}
	r := Record{Kind: kind, Raw: uint32(len(payload)), Hash: cas.Sum([]byte(payload))}
	err = w.Write(s, &r, append(make([]byte, RecordHeaderSize), payload...))
	w.Finish(s, &r, err)
	return r, err
}

func mustPut(t testing.TB, w *Writer, kind cas.Kind, payload string) Record {
	t.Helper()
	r, err := put(w, kind, payload)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fileOf(t testing.TB, m *disk.Mem) []byte {
	t.Helper()
	f, err := m.OpenFile(Path(dir, testID.Number), os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, n)
	if _, err := f.ReadAt(p, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return p
}

// scanned is what a scan finds, written out.
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

func TestGoldenFormat(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	mustPut(t, w, cas.Chunk, "some tensor data")
	mustPut(t, w, cas.List, "a list!")
	mustPut(t, w, cas.Manifest, "")
	mustPut(t, w, 200, "of a later version")
	if _, err := w.Seal(); err != nil {
		t.Fatal(err)
	}
	got := dump(fileOf(t, m))
	const name = "testdata/segment.golden"
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the format has changed:\n%s", got)
	}
}

// dump annotates a sealed segment, field by field as in the package comment.
func dump(p []byte) string {
	var b strings.Builder
	off := 0
	field := func(n int, what string) []byte {
		q := p[off : off+n]
		for i := 0; i < n; i += 16 {
			line := q[i:min(i+16, n)]
			b.WriteString(strings.TrimRight(fmt.Sprintf("%06d  %-47s  %s", off+i, fmt.Sprintf("% x", line), what), " ") + "\n")
			what = ""
		}
		off += n
		return q
	}
	title := func(s string) { fmt.Fprintf(&b, "\n%s\n", s) }
	num := func(n int, what string) uint64 {
		q := append(bytes.Clone(p[off:off+n]), make([]byte, 8-n)...)
		v := le.Uint64(q)
		field(n, fmt.Sprintf("%s %d", what, v))
		return v
	}

	title("file header")
	field(8, fmt.Sprintf("magic %q", p[off:off+8]))
	num(2, "version")
	field(2, "0")
	num(4, "segment number")
	field(16, "store id")
	field(28, "0")
	field(4, "CRC of bytes 0 to 59")

	trailer := len(p) - trailerSize
	footer := int(le.Uint64(p[trailer+32:]))
	for off < footer {
		title("record")
		field(4, fmt.Sprintf("magic %q", p[off:off+4]))
		field(1, "kind: "+cas.Kind(p[off]).String())
		num(1, "codec")
		field(2, "0")
		num(4, "raw length")
		n := int(num(4, "stored length"))
		field(32, "hash")
		num(8, "offset")
		field(4, "CRC of the payload")
		field(4, "CRC of the header, the store id and the segment number")
		field(n, fmt.Sprintf("payload %q", p[off:off+n]))
		field((8-n%8)%8, "padding")
	}
	for off < trailer {
		title("footer entry")
		field(32, "hash")
		num(8, "offset")
		num(4, "stored length")
		num(4, "raw length")
		field(1, "kind: "+cas.Kind(p[off]).String())
		num(1, "codec")
		field(6, "0")
	}
	title("trailer")
	field(8, fmt.Sprintf("magic %q", p[off:off+8]))
	num(2, "version")
	field(2, "0")
	num(4, "segment number")
	field(16, "store id")
	num(8, "offset of the footer")
	num(8, "entries")
	for _, kind := range []string{"chunks", "lists", "manifests", "others"} {
		num(8, kind+": records")
		num(8, kind+": raw bytes")
		num(8, kind+": stored bytes")
	}
	field(8, "0")
	field(4, "CRC of the footer")
	field(4, "CRC of bytes 0 to 155")
	fmt.Fprintf(&b, "\n%d bytes, %s\n", len(p), hex.EncodeToString(p[len(p)-4:]))
	return b.String()
}

func TestNames(t *testing.T) {
	for n, want := range map[uint32]string{1: "00000001.seg", 99999999: "99999999.seg", 100000000: "100000000.seg"} {
		if got := Name(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
		if got, ok := ParseName(want); !ok || got != n {
			t.Errorf("%s: %d, %v", want, got, ok)
		}
	}
	for _, bad := range []string{"00000000.seg", "1.seg", "000000001.seg", "00000001", "+0000001.seg", "0000001a.seg", "99999999999.seg", "00000001.seg.tmp", ""} {
		if n, ok := ParseName(bad); ok {
			t.Errorf("%s: %d", bad, n)
		}
	}
}

func TestReadBack(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	recs := []Record{
		mustPut(t, w, cas.Chunk, "one"),
		mustPut(t, w, cas.Chunk, strings.Repeat("two", 1000)),
		mustPut(t, w, cas.Manifest, ""),
	}
	check := func() {
		t.Helper()
		r, err := Open(m, dir, testID)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.CheckHeader(); err != nil {
			t.Error(err)
		}
		for _, want := range recs {
			loc := want.Entry(3).Location
			var got Record
			p, err := r.ReadRecord(loc, want.Hash, &got, make([]byte, RecordHeaderSize+loc.Stored))
			if err != nil || got != want || cas.Sum(p) != want.Hash {
				t.Errorf("%v: %v", got, err)
			}
			if err := r.ReadHeader(loc, want.Hash, &got); err != nil || got != want {
				t.Errorf("%v: %v", got, err)
			}
			p = make([]byte, loc.Stored)
			if err := r.ReadPayload(loc, &got, p); err != nil || cas.Sum(p) != want.Hash {
				t.Error(err)
			}
			// What the index says must be what is there.
			for _, bad := range []cas.Location{
				{Off: loc.Off + 8, Stored: loc.Stored, Raw: loc.Raw},
				{Off: loc.Off, Stored: loc.Stored + 1, Raw: loc.Raw},
				{Off: loc.Off, Stored: loc.Stored, Raw: loc.Raw + 1},
				{Off: 1 << 40, Stored: loc.Stored, Raw: loc.Raw},
			} {
				if _, err := r.ReadRecord(bad, want.Hash, &got, make([]byte, RecordHeaderSize+bad.Stored)); !errors.Is(err, cas.ErrCorrupt) {
					t.Errorf("%v: %v", bad, err)
				}
			}
			if err := r.ReadHeader(loc, cas.Hash{1}, &got); !errors.Is(err, cas.ErrCorrupt) {
				t.Error(err)
			}
		}
	}
	check()
	total, err := w.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if want := (Totals{Chunks: Tally{2, 3003, 3003}, Manifests: Tally{1, 0, 0}}); total != want {
		t.Errorf("%+v", total)
	}
	check()
	if _, err := put(w, cas.Chunk, "late"); !errors.Is(err, ErrFull) {
		t.Errorf("append to a sealed segment: %v", err)
	}
}

func TestFooter(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	var want []Record
	for i := range 100 {
		r := mustPut(t, w, cas.Chunk, fmt.Sprint("chunk ", i))
		r.CRC = 0 // not in the footer
		want = append(want, r)
	}
	unsealed := fileOf(t, m)
	if _, err := w.Seal(); err != nil {
		t.Fatal(err)
	}
	sealed := fileOf(t, m)

	read := func(p []byte, id ID) (recs []Record, err error) {
		f, err := ReadFooter(bytes.NewReader(p), int64(len(p)), id)
		if err != nil {
			return nil, err
		}
		err = f.Each(bytes.NewReader(p), func(r *Record) error {
			recs = append(recs, *r)
			return nil
		})
		return recs, err
	}
	got, err := read(sealed, testID)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %v", err, got)
	}
	for n := range len(sealed) {
		if _, err := read(sealed[:n], testID); !errors.Is(err, ErrUnsealed) {
			t.Fatalf("cut to %d: %v", n, err)
		}
	}
	for i := len(unsealed); i < len(sealed); i++ {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := read(bad, testID); !errors.Is(err, ErrUnsealed) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
	other := testID
	other.Number++
	if _, err := read(sealed, other); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	// A scan of a sealed segment finds the same.
	found, tail := scanned(t, sealed)
	if len(found) != 100 || tail != int64(len(unsealed)) {
		t.Errorf("%d records, to %d of %d", len(found), tail, len(unsealed))
	}
	boom := errors.New("boom")
	f, _ := ReadFooter(bytes.NewReader(sealed), int64(len(sealed)), testID)
	if err := f.Each(bytes.NewReader(sealed), func(*Record) error { return boom }); err != boom {
		t.Error(err)
	}
}

func TestNewerAndForeign(t *testing.T) {
	p := appendFileHeader(nil, testID)
	if err := checkFileHeader(p, testID); err != nil {
		t.Fatal(err)
	}
	resum := func(p []byte) []byte { le.PutUint32(p[60:], crc(p[:60])); return p }
	newer := bytes.Clone(p)
	newer[8] = 2
	if err := checkFileHeader(newer, testID); !errors.Is(err, cas.ErrCorrupt) {
		t.Error("a flipped bit in the version is no newer version:", err)
	}
	if err := checkFileHeader(resum(newer), testID); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
	for _, i := range []int{12, 16} {
		foreign := bytes.Clone(p)
		foreign[i] ^= 1
		if err := checkFileHeader(resum(foreign), testID); !errors.Is(err, ErrForeign) {
			t.Error(err)
		}
	}
	if err := checkFileHeader(p[:63], testID); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
	m := newMem(t)
	w := create(t, m)
	if _, err := w.Seal(); err != nil {
		t.Fatal(err)
	}
	f := fileOf(t, m)
	q := f[len(f)-trailerSize:]
	q[8] = 2
	le.PutUint32(q[156:], crc(q[:156]))
	if _, err := ReadFooter(bytes.NewReader(f), int64(len(f)), testID); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
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
		{"length damaged", with(b.Off+12, 0xff, 0xff), []string{at(a), gap(b.Off, c.Off, false), at(c)}, c.End()},
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

// A segment that was saved as a file is a chunk like any other: even in a damaged record its records are none.
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
	if want := []string{fmt.Sprintf("gap %d-%d zero=false", outer.Off, last.Off), fmt.Sprintf("chunk at %d", last.Off)}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Across the scanner's buffer everything must work as within.
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
		if i < len(recs)-1 && !strings.HasPrefix(got[i], fmt.Sprintf("gap %d-%d ", recs[i].Off, recs[i+1].Off)) {
			t.Fatalf("record %d damaged: %s", i, got[i])
		}
	}
}

// A file full of headers that claim long payloads must not make a scan quadratic.
func TestScanForged(t *testing.T) {
	const n = 4 << 20
	p := make([]byte, n)
	for off := int64(FileHeaderSize); off+RecordHeaderSize <= n; off += RecordHeaderSize {
		r := Record{Off: off, Kind: cas.Chunk, Stored: uint32(min(cas.MaxChunk, n-off-RecordHeaderSize)), CRC: 1}
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

func TestConcurrentWriters(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := put(w, cas.Chunk, strings.Repeat("z", g*i)); err != nil {
					t.Error(err)
				}
				if s := w.Settled(); s > w.Size() {
					t.Errorf("settled to %d of %d", s, w.Size())
				}
			}
		})
	}
	wg.Wait()
	if !w.Idle() || w.Settled() != w.Size() {
		t.Error("not idle")
	}
	if got, tail := scanned(t, fileOf(t, m)); len(got) != 400 || tail != w.Size() {
		t.Errorf("%d records to %d", len(got), tail)
	}
	if _, err := w.Seal(); err != nil {
		t.Error(err)
	}
}

// Room of a failed write is used again where that is safe; else it stays a hole that no footer has.
func TestFailedWrites(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	a := mustPut(t, w, cas.Chunk, "a")
	reserve := func() Slot {
		s, err := w.Reserve(100)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	fail := func(s Slot) { w.Finish(s, &Record{}, syscall.ENOSPC) }

	s1 := reserve()
	fail(s1)
	if w.Size() != a.End() {
		t.Error("the last slot was not given back")
	}
	s1, s2, s3 := reserve(), reserve(), reserve()
	if w.Settled() != s1.Off {
		t.Error("settled past a slot")
	}
	fail(s1)
	if w.Settled() != a.End() || w.Size() != s3.End {
		t.Errorf("settled to %d, size %d", w.Settled(), w.Size())
	}
	fail(s3)
	if w.Size() != s3.Off {
		t.Error("the last slot was not given back")
	}
	fail(s2)
	if w.Size() != a.End() || w.Settled() != a.End() {
		t.Error("the holes before it were not given back")
	}

	s1 = reserve() // stays a hole
	m.Inject(disk.FailAt(m.Ops()+1, syscall.EIO))
	b := mustPut(t, w, cas.Chunk, "b")
	if _, err := put(w, cas.Chunk, strings.Repeat("torn", 10000)); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	m.Inject(nil)
	fail(s1)
	if _, err := w.Seal(); err != nil {
		t.Fatal(err)
	}
	p := fileOf(t, m)
	f, err := ReadFooter(bytes.NewReader(p), int64(len(p)), testID)
	if err != nil {
		t.Fatal(err)
	}
	var offs []int64
	if err := f.Each(bytes.NewReader(p), func(r *Record) error { offs = append(offs, r.Off); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(offs, []int64{a.Off, b.Off}) {
		t.Errorf("the footer has %v", offs)
	}
	got, _ := scanned(t, p)
	if want := []string{"chunk at 64", fmt.Sprintf("gap %d-%d zero=true", s1.Off, s1.End), fmt.Sprintf("chunk at %d", b.Off)}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestLimit(t *testing.T) {
	m := newMem(t)
	w, err := Create(m, dir, testID, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := put(w, cas.Chunk, strings.Repeat("x", 5000)); err != nil {
		t.Errorf("an empty segment takes any record: %v", err)
	}
	if _, err := put(w, cas.Chunk, "x"); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if _, err := Create(m, dir, testID, 1000); !errors.Is(err, os.ErrExist) {
		t.Errorf("created twice: %v", err)
	}
}

func TestSealAfterCrash(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	mustPut(t, w, cas.Chunk, "whole")
	torn := append(fileOf(t, m), "torn"...)
	f, _ := m.OpenFile(Path(dir, testID.Number), os.O_RDWR, 0)
	if _, err := f.WriteAt(torn, 0); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRW(m, dir, testID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Scan(0)
	if err != nil {
		t.Fatal(err)
	}
	var recs []Record
	for s.Next() {
		recs = append(recs, *s.Record())
	}
	if _, err := r.Seal(recs); err != nil {
		t.Fatal(err)
	}
	p := fileOf(t, m)
	if !bytes.HasPrefix(p, torn) {
		t.Error("sealing has overwritten something")
	}
	ft, err := r.Footer()
	if err != nil || ft.Records != 1 || ft.Chunks != (Tally{1, 5, 5}) {
		t.Errorf("%+v, %v", ft, err)
	}
}

func FuzzScan(f *testing.F) {
	m := newMem(f)
	w := create(f, m)
	mustPut(f, w, cas.Chunk, "first")
	mustPut(f, w, cas.List, strings.Repeat("second", 20))
	f.Add(fileOf(f, m))
	if _, err := w.Seal(); err != nil {
		f.Fatal(err)
	}
	f.Add(fileOf(f, m))
	f.Fuzz(func(t *testing.T, p []byte) {
		_ = checkFileHeader(p, testID)
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
		if err := ft.Each(bytes.NewReader(p), func(*Record) error { n++; return nil }); err == nil && n != ft.Records {
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
