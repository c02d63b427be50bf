package text

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"ckptfs/cas/golden"
	"ckptfs/fs/control"
)

func TestGoldens(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	looked := int64(120_000)
	status := &control.Status{
		Version: "0.1.0", Store: "/data/store", Mountpoint: "/mnt/ckpt", Mode: control.ModeServed,
		ModeReason: "no CAP_SYS_ADMIN", PID: 4711,
		Started: at, Queue: control.Queue{Files: 2, Bytes: 90 << 20}, Packing: []string{"runs/a/19/model.pt"},
		UnpackedBytes: 135 << 20, Unidentified: control.Unknown{Files: 1024, More: true},
		ResidentBytes: 3 << 30, HotSize: 32 << 30, OpenFiles: 1,
		Failures: []control.Failure{{Path: "runs/a/7/model.pt", Reason: "no space left on device", Since: at, Attempts: 3}},
		Recovery: "2 files queued again",
		Refused:  control.Refused{Sidecars: []string{"runs/a/7/arch.json: it goes in circles: a, b"}, MoreSidecars: 2},
		Upkeep: control.Upkeep{Looking: &looked, Kernels: "avx2", ComparesBLAKE3: true,
			DiskBytes: 1 << 40, FreeBytes: 60 << 30,
			LastPrune: &control.LastPrune{At: at, FreedBytes: 3 << 30, ByItself: true},
			LastCheck: &control.LastCheck{At: at, ReadData: true, Problems: 2}},
	}
	chain := make([]control.Ancestor, 40)
	for i := range chain {
		m := control.Model{Seq: uint64(40 - i), Path: fmt.Sprintf("runs/a/%d/model.pt", 40-i),
			Tensors: 63, Parent: uint64(39 - i), How: "previous step", Retired: i == 38, RetiredAt: at}
		chain[i] = control.Ancestor{Model: m}
	}
	chain[0].OwnedTensors, chain[0].OwnedBytes = 2, 5<<20
	chain[2].OwnedTensors, chain[2].OwnedBytes = 1, 300
	chain[6].OwnedTensors, chain[6].OwnedBytes = 60, 40<<20
	chain[39].How = "none"
	lineage := &control.Lineage{Models: []control.ModelLineage{{Model: chain[0].Model, Chain: chain,
		Merged: []control.Model{chain[38].Model}}}}
	run := &control.Lineage{}
	for i := range 3 {
		c := []control.Ancestor{chain[i], chain[i+1], chain[6], chain[39]}
		c[2].Skipped, c[3].Skipped = 4-i, 32
		run.Models = append(run.Models, control.ModelLineage{Model: chain[i].Model, Chain: c})
	}
	unmounted := &control.Status{Store: "/data/store", Mode: control.ModeUnmounted, HotSize: -1}
	for name, print := range map[string]func(io.Writer){
		"lineage.golden":          func(w io.Writer) { Lineage(w, lineage) },
		"lineage-run.golden":      func(w io.Writer) { Lineage(w, run) },
		"lineage-dot.golden":      func(w io.Writer) { LineageDot(w, run) },
		"status.golden":           func(w io.Writer) { Status(w, status) },
		"status-unmounted.golden": func(w io.Writer) { Status(w, unmounted) },
	} {
		var b bytes.Buffer
		print(&b)
		golden.Same(t, name, b.String())
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"runs/a": "runs/a", "größe": "größe", "": "", "a\x1b[2J": `"a\x1b[2J"`, "a\nb": `"a\nb"`,
		"\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q prints as %s, want %s", in, got, want)
		}
	}
}

// What a command hydrates beyond --hot-size is said, but not of what a rule holds.
func TestNotKept(t *testing.T) {
	status := func(hot, pinned int64) *control.Status {
		st := &control.Status{HotSize: hot}
		st.PinnedBytes = pinned
		return st
	}
	for _, c := range []struct {
		hot, before, after, hydrated int64
		said                         bool
	}{
		{10, 0, 0, 11, true}, {10, 0, 0, 10, false}, {-1, 0, 0, 11, false}, {0, 0, 0, 1, true},
		{10, 50, 50, 11, true}, {10, 0, 11, 11, false}, {10, 5, 16, 30, true}, {10, 16, 5, 11, true},
	} {
		s := NotKept(status(c.hot, c.before), status(c.hot, c.after), c.hydrated)
		if (s != "") != c.said {
			t.Errorf("%+v: %q", c, s)
		}
	}
}
