package store

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
	"ckptfs/cas/salvage"
	"ckptfs/cas/segment"
	"ckptfs/cas/trust"
)

// plant stores content as the record of h, with x, whatever they say of it.
func plant(t *testing.T, s *Store, h cas.Hash, x cas.XXH3, content []byte) {
	t.Helper()
	b := s.Begin()
	r, err := b.claim(cas.Chunk, h, true)
	if err != nil {
		t.Fatal(err)
	}
	id, buf := codec.Encode(make([]byte, segment.RecordHeaderSize), content, fp32)
	rec := &segment.Record{Kind: cas.Chunk, Codec: id, Raw: uint32(len(content)), Hash: h, XXH3: x}
	if _, err := s.appender.append(r, rec, buf); err != nil {
		t.Fatal(err)
	}
	commit(t, b)
}

func wantFound(t *testing.T, s *Store, data bool, want ...damage.Problem) {
	t.Helper()
	_, fs := checkAll(t, s, CheckOptions{ReadData: data})
	var got []damage.Problem
	for _, f := range fs {
		got = append(got, f.Problem)
	}
	if len(got) != len(want) || len(want) > 0 && got[0] != want[0] {
		t.Errorf("found %v, want %v", fs, want)
	}
}

// A changed bit is found where no CRC is looked at: in a payload that was read ahead.
func TestXXH3FindsRot(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	chunks, hashes := large(t, s, 4)
	loc := x.m[hashes[1]]
	patch(t, m, segment.Path(dir, loc.Segment), loc.Off+segment.RecordHeaderSize+99, chunks[1][99]^1)
	done := s.Expect(hashes, false)
	defer done()
	for i, h := range hashes {
		got, err := s.Get(h, nil)
		if i == 1 {
			wantErr(t, err, cas.ErrCorrupt)
		} else if err != nil || !bytes.Equal(got, chunks[i]) {
			t.Error(i, err)
		}
	}
	if !s.reader.trust.Is() {
		t.Error("rot ended the trust")
	}
}

// A record whose XXH3 alone is wrong is served; a check tells of it, and a compaction or a salvage mends it.
func TestXXH3Wrong(t *testing.T) {
	raw := version(1, 0)
	for _, by := range []string{"compaction", "salvage"} {
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{})
		plant(t, s, cas.Sum(raw), cas.XXH3{1, 2, 3}, raw)
		for range 3 {
			wantGet(t, s, raw)
		}
		wantFound(t, s, false)
		wantFound(t, s, true, damage.BadSum)
		if by == "compaction" {
			if st, err := recode(t.Context(), s, [][2]int{{1, 0}},
				func(int) int { return -1 }, nil); err != nil || st.Records != 1 {
				t.Errorf("%+v, %v", st, err)
			}
		} else {
			s.Close()
			st, err := salvage.Segments(m, dir, storeID, salvage.Options{Aside: "/store/lost", Now: time.Now})
			if err != nil || len(st.Moved) != 1 || st.Moved[0].Lost != 0 || st.Moved[0].Records != 1 {
				t.Fatalf("%+v, %v", st, err)
			}
			s = open(t, m, newIndex(), Options{})
		}
		wantGet(t, s, raw)
		b := s.Begin()
		if put(t, b, cas.Chunk, raw) {
			t.Error("lost")
		}
		b.Release()
		_, fs := checkAll(t, s, CheckOptions{ReadData: true})
		for _, f := range fs {
			if f.Problem == damage.BadSum && x.m[f.Hash].Off == f.Off {
				t.Errorf("%s: %v", by, f)
			}
		}
	}
}

// A record whose XXH3 is right and whose hash is not is found by one read in 64, after which there is no
// trust, by every read where there is none, by a check, and by whatever would write the record again.
func TestXXH3Forged(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	raw, other := version(1, 0), version(2, 0)
	for i := range 70 {
		wantErr(t, func() error { _, err := s.Get(cas.Sum(chunk(i)), nil); return err }(), cas.ErrNotFound)
	}
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	commit(t, b)
	wantGet(t, s, chunk(1)) // the first read of 64
	plant(t, s, cas.Sum(raw), cas.SumXXH3(other), other)
	reads := 1
	for ; reads <= 65; reads++ {
		got, err := s.Get(cas.Sum(raw), nil)
		if err != nil {
			wantErr(t, err, cas.ErrCorrupt)
			break
		}
		if !bytes.Equal(got, other) {
			t.Fatal("neither of the two")
		}
	}
	if reads == 1 || reads > 65 {
		t.Errorf("found by read %d", reads)
	}
	if s.reader.trust.Is() {
		t.Error("there is trust")
	}
	_, err := s.Get(cas.Sum(raw), nil)
	wantErr(t, err, cas.ErrCorrupt)
	wantFound(t, s, true, damage.BadChunk)
	if st, err := recode(t.Context(), s, [][2]int{{1, 0}},
		func(int) int { return -1 }, nil); err != nil || st.Records != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	s.Close()

	var verified int
	s = open(t, m, x, Options{Untrusted: true, Verified: func() { verified++ }})
	_, err = s.Get(cas.Sum(raw), nil)
	wantErr(t, err, cas.ErrCorrupt)
	wantFound(t, s, true, damage.BadChunk)
	if verified > 0 || s.reader.trust.Is() {
		t.Error("a damaged store is trusted")
	}
	b = s.Begin()
	put(t, b, cas.Chunk, raw) // afresh, since the read failed
	commit(t, b)
	_, _ = checkAll(t, s, CheckOptions{ReadData: true, Subset: 0.5})
	if verified > 0 {
		t.Error("trusted by half a check")
	}
	wantFound(t, s, true)
	if verified != 1 || !s.reader.trust.Is() {
		t.Errorf("verified %d times", verified)
	}
}

// A delta that is decoded against other bytes than it was encoded against does not have its XXH3.
func TestXXH3WrongBase(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	evolve(t, b, 1, 0)
	if _, delta := evolve(t, b, 1, 1); !delta {
		t.Fatal("no delta")
	}
	commit(t, b)
	base, wrong := version(1, 0), version(2, 0)
	plant(t, s, cas.Sum(base), cas.SumXXH3(wrong), wrong)
	for range 3 {
		_, err := s.Get(cas.Sum(version(1, 1)), nil)
		wantErr(t, err, cas.ErrCorrupt)
	}
	// Nor is anything written against it.
	b = s.Begin()
	raw := version(1, 2)
	if _, delta, err := b.PutAgainst(cas.Chunk, cas.Sum(raw), raw, fp32, cas.Sum(base)); delta || err != nil {
		t.Error(delta, err)
	}
	commit(t, b)
	wantGet(t, s, raw)
}

// What changed in memory since its hash was taken is not stored.
func TestXXH3Changed(t *testing.T) {
	for what, raw := range map[string][]byte{"encoded": version(1, 0), "a copy": chunk(1)} {
		s := open(t, newMem(), newIndex(), Options{})
		h, sum := cas.Sum(raw), cas.SumXXH3(raw)
		raw = bytes.Clone(raw)
		raw[50] ^= 4
		b := s.Begin()
		_, _, err := b.PutRelated(cas.Chunk, h, raw, fp32, cas.Related{XXH3: sum})
		if !errors.Is(err, trust.ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
		if err := b.Commit(); !errors.Is(err, trust.ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
		b.Release()
		_, err = s.Get(h, nil)
		wantErr(t, err, cas.ErrNotFound)
	}
}
