package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

var sealTime = time.Unix(1_700_000_000, 0)

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
	r := Record{Kind: kind, Raw: uint32(len(payload)), Hash: cas.Sum([]byte(payload)),
		XXH3: cas.SumXXH3([]byte(payload))}
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

// dump annotates a sealed segment, field by field as in the package comment.

func TestNames(t *testing.T) {
	for n, want := range map[uint32]string{1: "00000001.seg", 99999999: "99999999.seg",
		100000000: "100000000.seg"} {
		if got := Name(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
		if got, ok := ParseName(want); !ok || got != n {
			t.Errorf("%s: %d, %v", want, got, ok)
		}
	}
	for _, bad := range []string{"00000000.seg", "1.seg", "000000001.seg", "00000001", "+0000001.seg",
		"0000001a.seg", "4294967295.seg", "99999999999.seg", "00000001.seg.tmp", ""} {
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
				if _, err := r.ReadRecord(bad, want.Hash, &got,
					make([]byte, RecordHeaderSize+bad.Stored)); !errors.Is(err, cas.ErrCorrupt) {
					t.Errorf("%v: %v", bad, err)
				}
			}
			if err := r.ReadHeader(loc, cas.Hash{1}, &got); !errors.Is(err, cas.ErrCorrupt) {
				t.Error(err)
			}
		}
	}
	check()
	total, err := w.Seal(sealTime)
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
	if _, err := w.Seal(sealTime); err != nil {
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
	for i := range want {
		want[i].XXH3 = cas.XXH3{} // a footer has none
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
	newer[8] = Version + 1
	if err := checkFileHeader(newer, testID); !errors.Is(err, cas.ErrCorrupt) {
		t.Error("a flipped bit in the version is no newer version:", err)
	}
	if err := checkFileHeader(resum(newer), testID); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
	for v := byte(Oldest); v < Version; v++ {
		older := bytes.Clone(p)
		older[8] = v
		if err := checkFileHeader(resum(older), testID); err != nil {
			t.Error(err)
		}
	}
	for v := byte(0); v < Oldest; v++ {
		older := bytes.Clone(p)
		older[8] = v
		err := checkFileHeader(resum(older), testID)
		if !errors.Is(err, ErrOlder) || !strings.Contains(err.Error(), fmt.Sprintf("version %d: this program reads version %d and later: copy the files out", v, Oldest)) {
			t.Error(err)
		}
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
	if _, err := w.Seal(sealTime); err != nil {
		t.Fatal(err)
	}
	f := fileOf(t, m)
	q := f[len(f)-trailerSize:]
	q[8] = Version + 1
	le.PutUint32(q[156:], crc(q[:156]))
	if _, err := ReadFooter(bytes.NewReader(f), int64(len(f)), testID); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
	q[8] = Oldest
	le.PutUint32(q[156:], crc(q[:156]))
	if _, err := ReadFooter(bytes.NewReader(f), int64(len(f)), testID); err != nil {
		t.Error(err)
	}
	q[8] = Oldest - 1
	le.PutUint32(q[156:], crc(q[:156]))
	if _, err := ReadFooter(bytes.NewReader(f), int64(len(f)), testID); !errors.Is(err, ErrOlder) {
		t.Error(err)
	}
}

// A segment that was saved as a file is a chunk like any other: even in a damaged record its records are
// none.

// Across the scanner's buffer everything must work as within.

// A file full of headers that claim long payloads must not make a scan quadratic.

// A segment is sealed again without some of its records, whose bytes then go.
func TestDropRecords(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	for i := range 4 {
		mustPut(t, w, cas.Chunk, strings.Repeat(fmt.Sprint(i), 10_000))
	}
	if _, err := w.Seal(sealTime); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRW(m, dir, testID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	old, err := r.Footer()
	if err != nil || !old.Sealed.Equal(sealTime) {
		t.Fatal(old, err)
	}
	var recs []Record
	if err := r.Each(old, func(r *Record) error { recs = append(recs, *r); return nil }); err != nil {
		t.Fatal(err)
	}
	kept := []Record{recs[0], recs[3]}
	if _, err := r.Seal(kept, old.Sealed); err != nil {
		t.Fatal(err)
	}
	ft, err := r.Footer()
	if err != nil || ft.Records != 2 || !ft.Sealed.Equal(sealTime) {
		t.Fatalf("%+v, %v", ft, err)
	}
	before, _ := r.Allocated()
	for _, g := range []Range{{recs[1].Off, recs[2].End()}, {recs[3].End(), ft.Start()}} {
		if err := r.Punch(g); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := r.Allocated(); after > before-16<<10 {
		t.Errorf("%d bytes on the disk, %d before", after, before)
	}
	p := fileOf(t, m)
	got, _ := scanned(t, p[:len(p)-10]) // without a footer
	want := []string{"chunk at 64", fmt.Sprintf("gap %d-%d zero=true", recs[1].Off, recs[2].End()), fmt.Sprintf("chunk at %d", recs[3].Off)}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// A footer for which there is no room leaves the one before in force.
	size := len(p)
	m.Inject(disk.FailAt(m.Ops()+1, syscall.ENOSPC))
	if _, err := r.Seal(kept[:1], old.Sealed); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	m.Inject(nil)
	if ft, err := r.Footer(); err != nil || ft.Records != 2 || len(fileOf(t, m)) != size {
		t.Errorf("%+v, %v", ft, err)
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
	if _, err := r.Seal(recs, sealTime); err != nil {
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
