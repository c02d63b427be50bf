package lineage

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
)

// The records are formats: these bytes must never change.
func TestGolden(t *testing.T) {
	m := Model{Seq: 300, Parent: 290, How: Transfer, MergedFrom: []uint64{7, 299},
		Owned: []Share{{4, 2, 100}, {290, 1, 5000}, {300, 3, 1}}}
	p, err := m.Encode()
	if got := fmt.Sprintf("%x", p); err != nil ||
		got != "434b4e3102"+"0a"+"02a50201"+"03"+"040264"+"9e02018827"+"0a0301" {
		t.Errorf("%s, %v", got, err)
	}
	m = Model{Seq: 2, RetiredAt: 0x0102030405060708}
	p, err = m.Encode()
	if got := fmt.Sprintf("%x", p); err != nil || got != "434b4e3108"+"00"+"00"+"0807060504030201"+"00" {
		t.Errorf("%s, %v", got, err)
	}
	if got := fmt.Sprintf("%x", EncodeOwners(300, []uint64{300, 300, 4,
		300})); got != "434b4f31"+"03"+"0200"+"01a802"+"0100" {
		t.Error(got)
	}
}

func TestRecordRefused(t *testing.T) {
	for _, s := range []string{"", "CKN", "CKX1", "CKN1", "CKN1\x01\x00\x00\x00", "CKN1\x00\x01\x00\x00",
		"CKN1\x10\x00\x00\x00", "CKN1\x00\x09\x00\x00",
		"CKN1\x00\x00\x00\x00\x00", "CKN1\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"CKN1\x00\x00\xff\xff\x03\x00", "CKN1\x00\x00\x00\x01\x00\x01\x01",
		"CKN1\x00\x00\x00\x01\x08\x01\x01", "CKN1\x00\x00\x00\x80\x00", "CKN0\x00\x00\x00\x00"} {
		if m, err := DecodeModel(7, []byte(s)); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%q: %+v, %v", s, m, err)
		}
	}
	if _, err := DecodeModel(7, []byte("CKN2")); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
	for _, s := range []string{"", "CKO1", "CKO1\x00", "CKO1\x01\x02\x00", "CKO1\x01\x03\x07",
		"CKO1\x02\x01\x00\x02\x00", "CKO1\x01\x04\x00", "CKO1\x01\x03\x00\x00", "CKO1\x02\x03\x00\x00\x01"} {
		if o, err := DecodeOwners(7, 3, []byte(s)); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%q: %d, %v", s, o, err)
		}
	}
	if _, err := DecodeOwners(7, 3, []byte("CKO9")); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
}

func TestOwnersRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seq := rapid.Uint64Range(1, 1<<40).Draw(t, "seq")
		owners := rapid.SliceOf(rapid.OneOf(rapid.Just(seq), rapid.Uint64Range(1, seq))).Draw(t, "owners")
		p := EncodeOwners(seq, owners)
		got, err := DecodeOwners(seq, len(owners), p)
		if err != nil || !slices.Equal(got, owners) {
			t.Fatalf("%d, %v, want %d", got, err, owners)
		}
		if len(owners) > 0 {
			if _, err := DecodeOwners(seq, len(owners)-1, p); !errors.Is(err, cas.ErrCorrupt) {
				t.Fatalf("of fewer tensors: %v", err)
			}
		}
	})
}

func FuzzModel(f *testing.F) {
	m := Model{Seq: 300, Parent: 290, How: Transfer, MergedFrom: []uint64{7, 299},
		Owned: []Share{{4, 2, 100}, {290, 1, 5000}, {300, 3, 1}}}
	p, _ := m.Encode()
	f.Add(uint64(300), p)
	f.Fuzz(func(t *testing.T, seq uint64, p []byte) {
		bounded(t, 64*len(p), func() {
			m, err := DecodeModel(seq, p)
			if err != nil {
				if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
					t.Fatalf("error of no kind: %v", err)
				}
				return
			}
			if q, err := m.Encode(); err != nil || string(q) != string(p) {
				t.Fatalf("accepted, encodes to other bytes: %v\n% x\n% x", err, p, q)
			}
		})
	})
}

func FuzzOwners(f *testing.F) {
	f.Add(uint64(300), uint16(4), EncodeOwners(300, []uint64{300, 300, 4, 300}))
	f.Fuzz(func(t *testing.T, seq uint64, n uint16, p []byte) {
		bounded(t, 8*len(p)+16*int(n), func() {
			owners, err := DecodeOwners(seq, int(n), p)
			if err != nil {
				if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
					t.Fatalf("error of no kind: %v", err)
				}
				return
			}
			if q := EncodeOwners(seq, owners); string(q) != string(p) {
				t.Fatalf("accepted, encodes to other bytes:\n% x\n% x", p, q)
			}
		})
	})
}

// bounded holds that f allocates no more than limit bytes and 256 KiB.
func bounded(t *testing.T, limit int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(limit+256<<10) {
		t.Errorf("%d bytes allocated, at most %d wanted", got, limit)
	}
}
