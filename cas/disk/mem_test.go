package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
)

func memFileOf(t *testing.T, m *Mem, name string) File {
	t.Helper()
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func memContent(t *testing.T, m *Mem, name string) string {
	t.Helper()
	f, err := m.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	if err != nil {
		t.Fatal(err)
	}
	n, _ := f.Size()
	p := make([]byte, n)
	if _, err := f.ReadAt(p, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(p)
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	m := NewMem()
	f := memFileOf(t, m, "/f")
	f.WriteAt([]byte("synced"), 0)
	f.Sync()
	if got := memContent(t, m.CrashClone(nil), "/f"); got != "(none)" {
		t.Errorf("the name was not synced, yet %q", got)
	}
	m.SyncDir("/")
	f.WriteAt([]byte("SYN"), 0)
	f.WriteAt([]byte("more"), 6)
	if got := memContent(t, m.CrashClone(nil), "/f"); got != "synced" {
		t.Errorf("%q", got)
	}
	f.Sync()
	m.Rename("/f", "/g")
	c := m.CrashClone(nil)
	if got := memContent(t, c, "/f"); got != "SYNcedmore" || memContent(t, c, "/g") != "(none)" {
		t.Errorf("%q", got)
	}
	m.SyncDir("/")
	m.Remove("/g")
	if got := memContent(t, m.CrashClone(nil), "/g"); got != "SYNcedmore" {
		t.Errorf("%q", got)
	}
	// The clone is another disk.
	memFileOf(t, c, "/f").WriteAt([]byte("other"), 0)
	if got := memContent(t, m.CrashClone(nil), "/g"); got != "SYNcedmore" {
		t.Errorf("%q", got)
	}
}

func TestCrashMayKeepAnything(t *testing.T) {
	m := NewMem()
	f := memFileOf(t, m, "/f")
	f.Sync()
	m.SyncDir("/")
	f.WriteAt(bytes.Repeat([]byte("a"), 2*sector), 0)
	f.WriteAt(bytes.Repeat([]byte("b"), sector), 2*sector)
	seen := map[string]bool{}
	for seed := range uint64(200) {
		c := memContent(t, m.CrashClone(rand.New(rand.NewPCG(seed, 0))), "/f")
		var s string
		for i := 0; i < len(c); i += sector {
			s += c[i : i+1]
		}
		seen[s] = true
	}
	for _, want := range []string{"", "a", "aa", "aab", "a\x00b", "\x00\x00b"} {
		if !seen[want] {
			t.Errorf("never %q", want)
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d outcomes: %v", len(seen), seen)
	}
}

func TestFailedSyncLosesForGood(t *testing.T) {
	m := NewMem()
	f := memFileOf(t, m, "/f")
	m.SyncDir("/")
	f.WriteAt([]byte("lost"), 0)
	m.Inject(FailAt(m.Ops(), syscall.EIO))
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if got := memContent(t, m, "/f"); got != "lost" {
		t.Errorf("the cache holds %q", got)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := memContent(t, m.CrashClone(nil), "/f"); got != "" {
		t.Errorf("the disk holds %q", got)
	}
	f.WriteAt([]byte(" on"), 4)
	if err := f.Forget(2); err != nil {
		t.Fatal(err)
	}
	if got := memContent(t, m, "/f"); got != "lo\x00\x00 on" {
		t.Errorf("forgotten but for the start, and written to: %q", got)
	}
	if err := f.Forget(0); err != nil {
		t.Fatal(err)
	}
	if got := memContent(t, m, "/f"); got != "\x00\x00\x00\x00 on" {
		t.Errorf("forgotten: %q", got)
	}
}

func TestInject(t *testing.T) {
	m := NewMem()
	f := memFileOf(t, m, "/f")
	m.Inject(FailAt(m.Ops(), syscall.ENOSPC))
	if n, err := f.WriteAt([]byte("abcd"), 0); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Error(n, err)
	}
	if got := memContent(t, m, "/f"); got != "ab" {
		t.Errorf("%q", got)
	}
	m.Inject(CrashAfter(m.Ops() + 1))
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := m.SyncDir("/"); !errors.Is(err, ErrCrashed) {
			t.Error(err)
		}
	}
}
