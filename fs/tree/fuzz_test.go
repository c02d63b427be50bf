package tree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ckptfs/cas"
)

// Whatever stands in a format file, it is read as what it says or refused as damaged or newer or older.
func FuzzParseFormat(f *testing.F) {
	whole := Format{Version: Version, ID: [16]byte{1, 2, 3}, Created: time.Unix(1_700_000_000, 0)}
	f.Add(whole.encode())
	f.Add([]byte("ckptfs 999\nid 00\n"))
	f.Add([]byte("ckptfs 1\nid 6f0c6f0c6f0c6f0c6f0c6f0c6f0c6f0c\ncreated 2026-11-21T12:00:00Z\n"))
	f.Add([]byte("ckptfs -1\nckptfs 9999999999999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseFormat(b)
		if err != nil {
			if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) && !errors.Is(err, ErrOlder) {
				t.Errorf("%q: %v", b, err)
			}
			return
		}
		again, err := parseFormat(got.encode())
		if err != nil || again.Version != got.Version || again.ID != got.ID {
			t.Errorf("%+v reads as %+v, %v", got, again, err)
		}
	})
}

// What is accepted as the header of a hollow file is one that would be written so.
func FuzzDecodeHeader(f *testing.F) {
	for _, r := range records {
		if r.rec.Hollow {
			h := Header{Store: [16]byte{1}, Record: r.rec, Size: 1 << 20}
			b := h.Encode()
			f.Add(b[:])
		}
	}
	f.Add([]byte(headerText))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHeader(b)
		if err != nil {
			if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
				t.Errorf("%x: %v", b, err)
			}
			return
		}
		if !LooksHollow(b, h.Store) {
			t.Error("it does not look like what it is")
		}
		if again := h.Encode(); string(again[:]) != string(b[:HeaderSize]) {
			t.Errorf("%x\nencodes as\n%x", b[:HeaderSize], again)
		}
	})
}

// Whatever stands in a lock file, the store opens, and nothing but a line that says so makes the last end a
// clean one.
func FuzzLock(f *testing.F) {
	for _, s := range []string{"", "{", `{"pid":1,"clean":true}`, `{"host":"h","pid":-1,"started":"x"}`, `{"pid":1e99}`, "null", "[]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, LockFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Acquire(folder(t, dir), time.Unix(1_700_000_000, 0))
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if l.Before.PID == 0 {
			t.Errorf("%q is taken for a store that nobody opened", b)
		}
		if err := l.Release(true); err != nil {
			t.Error(err)
		}
	})
}
