package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/fs/tree"
)

// What a check of an unmounted store found is known afterwards, also where one before it had found nothing.
// Of another user's store nothing is kept, and that is said.
func TestCheckUnmounted(t *testing.T) {
	store := packedStore(t)
	if code, out, errs := command(t, "check", "--read-data", store); code != exit.OK {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if _, out, _ := command(t, "status", store); !strings.Contains(out, "no damage found") {
		t.Errorf("a check is not known:\n%s", out)
	}
	segments, err := filepath.Glob(filepath.Join(store, tree.SegmentsDir, "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	for _, s := range segments {
		p, err := os.ReadFile(s)
		if err == nil {
			p[len(p)/2] ^= 0xff
			err = os.WriteFile(s, p, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		foreign := t.TempDir()
		if err := os.CopyFS(foreign, os.DirFS(store)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign, 54321, 54321); err != nil {
			t.Fatal(err)
		}
		before := snapshot(t, foreign)
		code, out, errs := command(t, "check", "--read-data", "--foreign", foreign)
		if code != exit.Damaged || !strings.Contains(out, "status will not know of this check: the store belongs to user 54321") {
			t.Errorf("exit %d\n%s%s", code, out, errs)
		}
		sameAs(t, "check", foreign, before)
	}
	code, out, errs := command(t, "check", "--read-data", store)
	if code != exit.Damaged || strings.Contains(out, "will not know") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for range 2 {
		if _, out, _ := command(t, "status", store); !strings.Contains(out, "damage was found") {
			t.Errorf("damage is not known:\n%s", out)
		}
		command(t, "check", store)
	}
}
