package clients

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// everyState calls check while files are plain, packed and resident, evicted, and mounted again.
func everyState(t *testing.T, m *mounttest.Mount, check func()) {
	t.Helper()
	t.Log("before packing, or while it goes on")
	check()
	m.Sync()
	t.Log("packed and resident")
	check()
	m.EvictAll()
	t.Log("evicted")
	check()
	m.Remount()
	t.Log("mounted again")
	check()
}

// TestMake: files below .ckptfs/make have the bytes that torch and safetensors write, whatever became of
// their sources, and take no space.
func TestMake(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		mounttest.RunPython(t, "make.py", "save", m.Path())
		m.Sync()
		before := m.Taken()
		// A process imports the libraries for seconds; for soups torch is told which vectors to use.
		all := mounttest.StartSession(t, "make.py", "cast,shard,merge,dcp,zero", m.Path(), "--each")
		soups := mounttest.StartSession(t, "make.py", "soup", m.Path(), "--each")
		everyState(t, m, func() {
			for _, s := range []*mounttest.Session{all, soups} {
				if differs := s.Ask(); differs != "[]" {
					t.Error(differs)
				}
			}
		})
		if now := m.Taken(); now > before+1<<20 {
			t.Errorf("the store grew from %d to %d bytes", before, now)
		}
	})
}

// TestMakeCopied: what is computed below .ckptfs/make costs next to nothing when a program saves the same
// bytes beside what they are computed of.
func TestMakeCopied(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	mounttest.RunPython(t, "make.py", "copy", m.Path())
	m.Sync()
	m.Run("compact", m.Path())
	logical := int64(0)
	for _, name := range m.Names("models/copied") {
		st, err := os.Stat(m.Path("models/copied", name))
		m.Must(err)
		logical += st.Size()
	}
	st, err := os.Stat(m.Path("models/copied/model.safetensors"))
	m.Must(err)
	taken := m.Stats().StoredBytes
	t.Logf("%d bytes, of which the model has %d, take %d", logical, st.Size(), taken)
	if most := st.Size() + (logical-st.Size())/50; taken > most {
		t.Errorf("the files take %d bytes, more than %d", taken, most)
	}
}

// TestMakeShardedState: the folders below .ckptfs/make/sharded_state have the bytes that vLLM saves, for each
// of its ranks, and vLLM loads them.
func TestMakeShardedState(t *testing.T) {
	t.Parallel()
	mounttest.NeedFUSE(t)
	needTool(t, "vllm")
	m := mounttest.New(t)
	mounttest.RunPython(t, "sharded_state.py", "save", m.Path())
	m.Sync()
	m.EvictAll()
	before := m.Taken()
	t.Log(mounttest.RunPython(t, "sharded_state.py", "check", m.Path(), t.TempDir()))
	if now := m.Taken(); now > before+1<<20 {
		t.Errorf("the store grew from %d to %d bytes", before, now)
	}
}

// needTool ends a test where scripts/setup-NAME has put nothing.
func needTool(t *testing.T, name string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "ckptfs/tools", name+"-*"))
	if err != nil || found == nil {
		mounttest.Missing(t, "no %s here: scripts/setup-%s puts it there", name, name)
	}
}

// TestMakeMegatron: the folders below .ckptfs/make/megatron have the bytes that torch.save writes of what
// mbridge makes of a model, for each rank of Megatron-core, which loads them; and files below .ckptfs/make/hf
// those of what mbridge makes of Megatron-core's checkpoints. The way back leads to the first file.
func TestMakeMegatron(t *testing.T) {
	t.Parallel()
	mounttest.NeedFUSE(t)
	needTool(t, "megatron")
	m := mounttest.New(t)
	mounttest.RunPython(t, "mcore.py", "save", m.Path())
	m.Sync()
	m.EvictAll()
	t.Log(mounttest.RunPython(t, "mcore.py", "check", m.Path(), t.TempDir()))
	m.Sync()
	m.EvictAll()
	mounttest.RunPython(t, "mcore.py", "again", m.Path())
}

// TestMakeFolderSwapped: the kernel keeps the folders of a path below .ckptfs/make, and links, for a moment.
// Who opens a name right after a folder took another's place gets what is made of the new one.
func TestMakeFolderSwapped(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	mounttest.RunPython(t, "make.py", "copy", m.Path())
	old, next := m.Path("models/copied"), m.Path("models/next")
	m.Must(os.Mkdir(next, 0o755))
	m.Must(os.WriteFile(filepath.Join(next, "other.json"), []byte("{}"), 0o644))
	made := m.Path(".ckptfs/make/cast/bf16/models/copied")
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(made, name))
		return err == nil
	}
	for i := range 50 {
		if swapped := i%2 == 1; has("other.json") != swapped || has("model.safetensors") == swapped {
			t.Fatalf("after %d times another folder's files are there", i)
		}
		m.Must(unix.Renameat2(unix.AT_FDCWD, old, unix.AT_FDCWD, next, unix.RENAME_EXCHANGE))
	}
}
