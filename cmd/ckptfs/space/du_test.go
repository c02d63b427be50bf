package space

import (
	"strings"
	"testing"

	"ckptfs/fs/control"
)

func TestPrintDu(t *testing.T) {
	const mib = 1 << 20
	d := &control.Du{
		Use: control.Use{Name: "runs/a", Files: 4, LogicalBytes: 96 * mib, StoredBytes: 40 * mib,
			AloneBytes: 30 * mib, LocalBytes: 96 * mib, FreedBytes: 48 * mib},
		YoungBytes: 12 * mib,
		Parts: []control.Use{
			{Name: "runs/a/1", Files: 2, StoredBytes: 31 * mib, AloneBytes: 3 * mib},
			{Name: "runs/a/2", Files: 2, StoredBytes: 29 * mib, AloneBytes: 2 * mib},
		},
		MoreParts:  7,
		SharedWith: []control.Sharer{{Path: "models/base.pt", Bytes: 10 * mib}},
		MoreShare:  3,
	}
	var out strings.Builder
	printDu(&out, d, map[string]string{"runs/a": "/mnt/runs/a/"}, false)
	want := `PATH          FILES      SIZE    STORED     ALONE     LOCAL
1                 2       0 B  31.0 MiB  3.00 MiB       0 B
2                 2       0 B  29.0 MiB  2.00 MiB       0 B
and 7 more
/mnt/runs/a/      4  96.0 MiB  40.0 MiB  30.0 MiB  96.0 MiB
Removing /mnt/runs/a/ gives back 48.0 MiB at once, and 30.0 MiB by ` + "`ckptfs prune`" +
		`: of that 12.0 MiB after 24h, or now with --grace 0.
10.0 MiB of it is shared:
WITH              SHARED
models/base.pt  10.0 MiB
and 3 more
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	d.YoungBytes = d.AloneBytes
	if s := Removal(d); s != "48.0 MiB at once, and 30.0 MiB by `ckptfs prune`: after 24h, or now with --grace 0" {
		t.Error(s)
	}
	d.YoungBytes, d.StoredBytes = 0, d.AloneBytes
	if s := Removal(d); s != "48.0 MiB at once, and 30.0 MiB by `ckptfs prune`" {
		t.Error(s)
	}
}

// Of a whole store nothing invites to remove the store, and it says when what is not packed will be.
func TestPrintDuOfStore(t *testing.T) {
	d := &control.Du{Unmounted: true,
		Use: control.Use{Files: 2, LogicalBytes: 96, LocalBytes: 96, FreedBytes: 96}}
	var out strings.Builder
	printDu(&out, d, map[string]string{"": "/models.ckptfs"}, false)
	want := "Removing all these files gives back 96 B at once, and 0 B by `ckptfs prune`.\n" +
		"Nothing of it is packed: a store packs while it is mounted.\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Error(out.String())
	}
}

// What is not looked at yet is not said to stay as it is.
func TestStatsUnknown(t *testing.T) {
	st := &control.Stats{LogicalBytes: 96, PlainBytes: 96}
	st.Waiting.Unmounted = true
	for _, says := range []string{"packs what is not packed once it is", "looks at all names still"} {
		var out strings.Builder
		Stats(&out, st)
		if s := out.String(); !strings.Contains(s, says) || !strings.Contains(s, "0 B packed, 96 B not packed") {
			t.Error(s)
		}
		st.Waiting.Unmounted, st.Waiting.Unknown = false, true
	}
}

func TestDeltas(t *testing.T) {
	st := &control.Stats{Encoded: control.Encoded{Deltas: 949, DeltaRawBytes: 176 << 20, DeltaBytes: 90 << 20,
		BaseBytes: 25 << 20}}
	if s := deltas(st); s != "949 chunks of 176 MiB, stored as differences of 90.0 MiB; they need 25.0 MiB of chunks that no file has" {
		t.Error(s)
	}
	st.Encodings = []control.Encoding{{Codec: "recipe", Records: 900, RawBytes: 170 << 20, Bytes: 1 << 20}}
	if s := recipes(st); s != "900 chunks of 170 MiB, computed from others by recipes of 1.00 MiB" {
		t.Error(s)
	}
	if s := deltas(st); s != "49 chunks of 6.00 MiB, stored as differences of 89.0 MiB; they need 25.0 MiB of chunks that no file has" {
		t.Error(s)
	}
}
