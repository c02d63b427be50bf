package clients

import (
	"fmt"
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestOneTensorChanged: a second checkpoint stores about what changed in it.
func TestOneTensorChanged(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
		m.Must(os.MkdirAll(m.Path("runs/a/2"), 0o755))
		mounttest.RunPython(t, "save.py", "plain", "4", m.Path("runs/a/1/model.pt"), m.Path("runs/a/1/model.safetensors"))
		m.Sync()
		first := m.Stats()
		if first.UniqueBytes > 8*mib+mib/4 {
			t.Errorf("8 MiB of tensors in two formats are %d unique bytes", first.UniqueBytes)
		}
		mounttest.RunPython(t, "change.py", m.Path("runs/a/1/model.pt"), m.Path("runs/a/2/model.pt"),
			"layers.3.weight")
		m.Sync()
		second := m.Stats()
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
		for _, tensor := range m.Show("runs/a/2/model.pt").Tensors {
			if len(tensor.SharedWith) > 0 {
				shared++
			}
		}
		if shared != 7 {
			t.Errorf("show says that %d of 8 tensors are shared with other files, want 7", shared)
		}
	})
}

// TestFrozenBackbone: many checkpoints of one model whose backbone does not change cost less than one of its
// files.
func TestFrozenBackbone(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	out := mounttest.RunPython(t, "finetune.py", m.Path("runs/frozen"), "12")
	m.Sync()
	var one int64
	if _, err := fmt.Sscan(out, &one); err != nil {
		t.Fatal(err)
	}
	s := m.Stats()
	t.Logf("12 checkpoints of %d bytes: logical %d, stored %d", one, s.LogicalBytes, s.StoredBytes)
	if s.LogicalBytes != 12*one {
		t.Errorf("logical bytes %d, want %d", s.LogicalBytes, 12*one)
	}
	if s.StoredBytes >= one {
		t.Errorf("stored %d bytes, more than one file of %d", s.StoredBytes, one)
	}
}

// TestUnknownFormat: bytes that nothing parses are cut where their content says, so that an insertion costs
// little.
func TestUnknownFormat(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		data := mounttest.Noise(9, 20*mib)
		m.Write("a.dat", data)
		m.Sync()
		before := m.Stats()
		m.Write("b.dat", append([]byte{42}, data...))
		m.Sync()
		grown := m.Stats().UniqueBytes - before.UniqueBytes
		t.Logf("a byte put before 20 MiB added %d unique bytes", grown)
		if grown > mib {
			t.Errorf("a byte put before 20 MiB of noise added %d unique bytes", grown)
		}
		m.Evict("a.dat", "b.dat")
		m.Want("a.dat", data)
		m.Want("b.dat", append([]byte{42}, data...))
	})
}

// TestSmallFiles: what is under 64 KiB and no checkpoint stays as it is; a small checkpoint is packed.
func TestSmallFiles(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Write("runs/a/1/config.json", []byte(`{"lr": 0.1}`))
		m.Write("empty", nil)
		m.Write("under.dat", mounttest.Noise(1, 64<<10-1))
		m.Write("over.dat", mounttest.Noise(2, 64<<10))
		mounttest.RunPython(t, "save_small.py", m.Path("runs/a/1/small.pt"), m.Path("runs/a/1/small.safetensors"))
		m.Sync()
		for _, f := range []string{"runs/a/1/config.json", "empty", "under.dat"} {
			m.WantState(f, mounttest.Plain)
		}
		for _, f := range []string{"over.dat", "runs/a/1/small.pt", "runs/a/1/small.safetensors"} {
			m.WantState(f, mounttest.Packed, mounttest.Resident)
		}
		m.Run("evict", m.Dir) // all that can go goes; in a folder the small ones are no failure
		m.Want("runs/a/1/config.json", []byte(`{"lr": 0.1}`))
		m.Want("empty", nil)
		m.Want("under.dat", mounttest.Noise(1, 64<<10-1))
		m.Remount()
		m.Want("under.dat", mounttest.Noise(1, 64<<10-1))
		m.Want("over.dat", mounttest.Noise(2, 64<<10))
	})
}
