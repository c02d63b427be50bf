package integration

import (
	"fmt"
	"os"
	"testing"
)

// TestOneTensorChanged: a second checkpoint stores about what changed in it.
func TestOneTensorChanged(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		m.must(os.MkdirAll(m.path("runs/a/1"), 0o755))
		m.must(os.MkdirAll(m.path("runs/a/2"), 0o755))
		runPython(t, "save.py", "plain", "4", m.path("runs/a/1/model.pt"), m.path("runs/a/1/model.safetensors"))
		m.sync()
		first := m.stats()
		if first.UniqueBytes > 8*mib+mib/4 {
			t.Errorf("8 MiB of tensors in two formats are %d unique bytes", first.UniqueBytes)
		}
		runPython(t, "change.py", m.path("runs/a/1/model.pt"), m.path("runs/a/2/model.pt"), "layers.3.weight")
		m.sync()
		second := m.stats()
		unique, stored := second.UniqueBytes-first.UniqueBytes, second.StoredBytes-first.StoredBytes
		t.Logf("one of 8 tensors (1 MiB) changed: %d unique bytes, %d stored", unique, stored)
		if unique < mib || unique > mib+mib/8 {
			t.Errorf("a changed tensor of 1 MiB added %d unique bytes", unique)
		}
		if stored > mib+mib/4 {
			t.Errorf("a changed tensor of 1 MiB added %d stored bytes", stored)
		}
		if second.Files != 3 || len(second.Runs) != 1 || second.Runs[0].Run != "a" {
			t.Errorf("stats: %+v", second)
		}
		shared := 0
		for _, tensor := range m.show("runs/a/2/model.pt").Tensors {
			if len(tensor.SharedWith) > 0 {
				shared++
			}
		}
		if shared != 7 {
			t.Errorf("show says that %d of 8 tensors are shared with other files, want 7", shared)
		}
	})
}

// TestFrozenBackbone: many checkpoints of one model whose backbone does not change cost less than one of its files.
func TestFrozenBackbone(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	out := runPython(t, "finetune.py", m.path("runs/frozen"), "12")
	m.sync()
	var one int64
	if _, err := fmt.Sscan(out, &one); err != nil {
		t.Fatal(err)
	}
	s := m.stats()
	t.Logf("12 checkpoints of %d bytes: logical %d, stored %d", one, s.LogicalBytes, s.StoredBytes)
	if s.LogicalBytes != 12*one {
		t.Errorf("logical bytes %d, want %d", s.LogicalBytes, 12*one)
	}
	if s.StoredBytes >= one {
		t.Errorf("stored %d bytes, more than one file of %d", s.StoredBytes, one)
	}
}

// TestUnknownFormat: bytes that nothing parses are cut where their content says, so that an insertion costs little.
func TestUnknownFormat(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		data := noise(9, 20*mib)
		m.write("a.dat", data)
		m.sync()
		before := m.stats()
		m.write("b.dat", append([]byte{42}, data...))
		m.sync()
		grown := m.stats().UniqueBytes - before.UniqueBytes
		t.Logf("a byte put before 20 MiB added %d unique bytes", grown)
		if grown > mib {
			t.Errorf("a byte put before 20 MiB of noise added %d unique bytes", grown)
		}
		m.evict("a.dat", "b.dat")
		m.want("a.dat", data)
		m.want("b.dat", append([]byte{42}, data...))
	})
}

// TestSmallFiles: what is under 64 KiB and no checkpoint stays as it is; a small checkpoint is packed.
func TestSmallFiles(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		m.write("runs/a/1/config.json", []byte(`{"lr": 0.1}`))
		m.write("empty", nil)
		m.write("under.dat", noise(1, 64<<10-1))
		m.write("over.dat", noise(2, 64<<10))
		runPython(t, "save_small.py", m.path("runs/a/1/small.pt"), m.path("runs/a/1/small.safetensors"))
		m.sync()
		for _, f := range []string{"runs/a/1/config.json", "empty", "under.dat"} {
			m.wantState(f, resident)
		}
		for _, f := range []string{"over.dat", "runs/a/1/small.pt", "runs/a/1/small.safetensors"} {
			m.wantState(f, packed, both)
		}
		m.cli("evict", m.Dir) // all that can go goes; in a folder the small ones are no failure
		m.want("runs/a/1/config.json", []byte(`{"lr": 0.1}`))
		m.want("empty", nil)
		m.want("under.dat", noise(1, 64<<10-1))
		m.remount()
		m.want("under.dat", noise(1, 64<<10-1))
		m.want("over.dat", noise(2, 64<<10))
	})
}
