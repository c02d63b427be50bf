package main

import (
	"os"
	"testing"
	"time"

	"ckptfs/integration/recipe"
	"ckptfs/integration/torture/setup"
)

func TestMain(m *testing.M) {
	if os.Getenv(asWriter) != "" {
		os.Exit(writerMain())
	}
	os.Exit(m.Run())
}

// TestTorture is a short run of the program. CKPTFS_TORTURE_TIME makes it a longer one, CKPTFS_TORTURE_SEED
// another.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: no mounts")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no /dev/fuse here")
		}
		t.Skip("no /dev/fuse here")
	}
	// A bound on cycles, too: what a fast machine does in the time is enough.
	o := options{Options: setup.Options{Dir: t.TempDir(), Time: 15 * time.Second,
		Seed: uint64(time.Now().UnixNano())},
		cycles: 12, writers: 3, files: 16, size: 1 << 20, maxStore: 3 << 30}
	timed, err := o.Environ()
	if err != nil {
		t.Fatal(err)
	}
	if timed {
		o.cycles, o.files, o.size = 0, 24, 3<<20
	}
	if err := o.Fill(tempDir); err != nil {
		t.Fatal(err)
	}
	r := newRun(o)
	err = r.run()
	t.Log(r.summary())
	if err == nil && r.alone.struck == 0 {
		t.Error("the daemon was never killed alone")
	}
	if err != nil {
		if kept := o.Keep(); kept != "" { // t.TempDir would take it away
			t.Logf("kept: %s", kept)
		}
		t.Fatal(err)
	}
}

// TestCaught: what an operation that was cut off may leave, and what not.
func TestCaught(t *testing.T) {
	of := func(r recipe.Recipe) *file { return &file{Recipe: r} }
	old := recipe.Recipe{Kind: recipe.Noise, Seed: 1, Size: 1000}
	longer := old.With(recipe.Edit{Off: 1000, N: 500, Seed: 2})
	patched := old.With(recipe.Edit{Off: 900, N: 300, Seed: 3})
	a, b, p := old.Bytes(), longer.Bytes(), patched.Bytes()
	torn := append([]byte(nil), a...)
	copy(torn[910:950], p[910:])
	holed := append([]byte(nil), p...)
	clear(holed[1000:1100])
	lost := append([]byte(nil), p...)
	clear(lost[100:200])
	for _, c := range []struct {
		what string
		ch   change
		got  []byte
		ok   bool
	}{
		{"made, not begun", change{nil, of(old), fresh}, nil, true},
		{"made, half", change{nil, of(old), fresh}, a[:400], true},
		{"made, half of it zeros", change{nil, of(old), fresh}, make([]byte, 400), false},
		{"replaced, not begun", change{of(patched), of(old), fresh}, p, true},
		{"grown, half", change{of(old), of(longer), grown}, b[:1200], true},
		{"grown, cut", change{of(old), of(longer), grown}, b[:999], false},
		{"patched, torn", change{of(old), of(patched), mixed}, torn, true},
		{"patched, a hole where it ends", change{of(old), of(patched), mixed}, holed, true},
		{"patched, a hole elsewhere", change{of(old), of(patched), mixed}, lost, false},
		{"cut or not", change{of(longer), of(old), whole}, b[:1200], false},
	} {
		r, ok := caught(c.ch, c.got)
		if ok != c.ok || r != nil && sum(r.Bytes()) != sum(c.got) {
			t.Errorf("%s: %v, %v", c.what, r, ok)
		}
	}
}
