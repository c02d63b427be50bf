package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/integration/engine"
	"ckptfs/integration/torture/setup"
)

// TestTorture is a short run of the program. CKPTFS_TORTURE_TIME makes it a longer one, CKPTFS_TORTURE_SEED
// another.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: no mounts")
	}
	o := options{Options: setup.Options{Dir: t.TempDir(), Time: 20 * time.Second,
		Seed: uint64(time.Now().UnixNano())},
		rounds: 1, round: 12 * time.Second, machines: 2, size: 256 << 10}
	timed, err := o.Environ()
	if err != nil {
		t.Fatal(err)
	}
	if timed {
		o.rounds, o.round, o.machines, o.size = 0, 30*time.Second, 3, 1<<20
	}
	missing := engine.Find()
	if missing == nil {
		_, missing = os.Stat("/dev/fuse")
	}
	if missing != nil && os.Getenv("CI") != "true" {
		t.Skip(missing)
	}
	if err := errors.Join(missing, o.Fill(tempDir)); err != nil {
		t.Fatal(err)
	}
	r := newRun(o)
	err = r.run()
	t.Log(r.summary())
	if err != nil {
		if kept := o.Keep(); kept != "" { // t.TempDir would take it away
			t.Logf("kept: %s", kept)
		}
		t.Fatal(err)
	}
}

// The ledger tells what is lost from what was replaced.
func TestLedger(t *testing.T) {
	const own, common = "runs/m0/1/f", "runs/shared/1/common.bin"
	a, b, c := []byte("a"), []byte("bb"), []byte("ccc")
	for what, test := range map[string]struct {
		do    func(l *ledger)
		found map[string]string
		sizes map[string][]int
		wrong string // what is said of it; "": nothing
	}{
		"as saved last": {do: func(l *ledger) { l.begin(0, own, a, false)(); l.begin(0, own, b, false)() },
			found: map[string]string{own: sumOf(b)}},
		"as saved before": {do: func(l *ledger) { l.begin(0, own, a, false)(); l.begin(0, own, b, false)() },
			found: map[string]string{own: sumOf(a)}, wrong: own},
		"gone": {do: func(l *ledger) { l.begin(0, own, a, false)() }, wrong: own},
		"came back": {do: func(l *ledger) { l.begin(0, own, a, false)(); l.begin(0, own, nil, false)() },
			found: map[string]string{own: sumOf(a)}, wrong: own},
		"nobody's": {do: func(*ledger) {}, found: map[string]string{own: sumOf(a)}, wrong: own},
		"lost with its disk": {do: func(l *ledger) {
			l.begin(0, own, a, false)()
			l.ack(l.saved(0))
			l.begin(0, own, b, false)()
			l.lost(0)
		}, found: map[string]string{own: sumOf(a)}},
		"acknowledged, lost with its disk": {do: func(l *ledger) {
			l.begin(0, own, a, false)()
			l.begin(0, own, b, false)()
			l.ack(l.saved(0))
			l.lost(0)
		}, found: map[string]string{own: sumOf(a)}, wrong: own},
		"lost with its disk before an acknowledgement": {do: func(l *ledger) {
			l.begin(0, own, a, false)()
			l.lost(0)
			l.ack(l.saved(0))
		}},
		"a conflict": {do: func(l *ledger) {
			l.begin(0, common, a, true)()
			l.begin(1, common, b, true)()
			l.ack(l.saved(0))
		}, found: map[string]string{common: sumOf(b)}, sizes: map[string][]int{common: {1, 2}}},
		"a conflict that is lost": {do: func(l *ledger) {
			l.begin(0, common, a, true)()
			l.begin(1, common, b, true)()
			l.ack(l.saved(0))
		}, found: map[string]string{common: sumOf(b)}, wrong: common},
		"replaced by who has seen it": {do: func(l *ledger) {
			l.begin(0, common, a, true)()
			l.ack(l.saved(0))
			l.pulling(1)()
			l.begin(1, common, b, true)()
		}, found: map[string]string{common: sumOf(b)}},
		"replaced by a version that was lost": {do: func(l *ledger) {
			l.begin(0, common, a, true)()
			l.ack(l.saved(0))
			l.begin(0, common, b, true)()
			l.lost(0)
			l.begin(1, common, c, true)()
		}, found: map[string]string{common: sumOf(c)}, wrong: common},
	} {
		l := newLedger()
		test.do(l)
		wrong := l.check(test.found, test.sizes)
		named := slices.ContainsFunc(wrong,
			func(w string) bool { return strings.HasPrefix(w, test.wrong+":") })
		if test.wrong == "" && len(wrong) > 0 || test.wrong != "" && !named {
			t.Errorf("%s: %q", what, wrong)
		}
		if again := l.check(test.found, test.sizes); test.wrong == "" && len(again) > 0 {
			t.Errorf("%s, again: %q", what, again)
		}
	}
}
