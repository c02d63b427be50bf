package clients

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ckptfs/integration/mounttest"
)

// clients are the programs of programs/clients, by the names of their modules. Those marked heavy take
// seconds to import.
var clients = []struct {
	name  string
	heavy bool
}{
	{"torch_save", false}, {"safetensors_", false}, {"numpy_", false}, {"h5py_", false}, {"arrow_", false},
	{"gguf_", false},
	{"onnx_", false}, {"sqlite_", false}, {"tools", false}, {"git_", false}, {"sklearn_", false},
	{"xgboost_", false},
	{"tensorstore_", false}, {"orbax_", false}, {"dcp", false}, {"transformers_", true},
	{"accelerate_", true},
	{"lightning_", true}, {"keras_", true}, {"mlflow_", true}, {"dvc_", true}, {"dvc_few", true},
	{"lfs_", false}, {"folders", false}, {"wandb_", false}, {"hf_cache", true}, {"peft_", true},
	{"mergekit_", true}, {"deepspeed_", true},
}

// ownClients run as the user who runs the tests: they start programs of the Python environment, which others
// may not read.
var ownClients = []string{"wandb_"}

// fewClients are those that also run where the daemon serves every byte, as somebody else with a daemon of
// their own (nobody), and as somebody else beside root's daemon (other), unless CKPTFS_CLIENTS=all asks for
// every one of them everywhere.
var fewClients = map[string][]string{
	"served": {"torch_save", "numpy_", "h5py_", "sqlite_", "arrow_", "dvc_few"},
	"nobody": {"torch_save", "numpy_", "h5py_", "sqlite_", "git_"},
	"other":  {"torch_save", "dvc_few"},
}

// client is one program that is driven on a mount and in a plain folder beside each other.
type client struct {
	*mounttest.Mount
	s *mounttest.Session
}

// newClient starts the program of that name and mounts a store for it; size is what it saves, in bytes,
// about.
func newClient(t *testing.T, name, size, how string) *client {
	t.Helper()
	mounttest.NeedFUSE(t)
	dir, err := os.MkdirTemp("", "ckptfs-client-") // t.TempDir lies below a folder that is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	plain := filepath.Join(dir, "plain")
	args := []string{name, filepath.Join(dir, "mnt"), plain, size}
	if err := os.Mkdir(plain, 0o755); err != nil {
		t.Fatal(err)
	}
	var flags []string
	var who *syscall.Credential // of the daemon
	switch how {
	case "served":
		flags = []string{"--no-passthrough"}
	case "nobody":
		who = &syscall.Credential{Uid: mounttest.Nobody, Gid: mounttest.Nobody}
	case "other":
		flags = []string{"--allow-other"}
	}
	root := how != "nobody" && how != "other"
	if !root {
		args = append(args, "65534")
	}
	own := func(path string) {
		t.Helper()
		if root {
			return
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, mounttest.Nobody, mounttest.Nobody); err != nil {
			t.Fatal(err)
		}
	}
	own(dir)
	own(plain)
	s := mounttest.StartSession(t, "clients/run.py", args...)
	if said := s.Answer(); said != "ready" { // the imports are over before the mount's time begins to count
		mounttest.Missing(t, "%s", said)
	}
	c := &client{Mount: mounttest.Prepare(t, dir, flags...), s: s}
	own(c.Dir)
	c.Credential = who
	c.Must(c.Start())
	if how == "other" {
		own(c.Dir)
	}
	if mode := c.Status().Mode; how == "passthrough" && mode != "passthrough" {
		t.Skipf("no passthrough here: mode %q", mode)
	}
	return c
}

// do sends a command to the program, which has to succeed.
func (c *client) do(when, command string) {
	c.T.Helper()
	if said := c.s.Tell(command); !strings.HasPrefix(said, "ok ") {
		c.T.Fatalf("%s, %s: %s", command, when, said)
	}
}

func (c *client) kill() {
	c.T.Helper()
	c.Kill()
	c.Must(c.Start())
}

// conditions takes the program through everything that happens to its files: just written, packed, evicted,
// after the daemon was killed before and after packing; changed in place and written over when only chunks
// are left.
func (c *client) conditions() {
	c.T.Helper()
	c.do("at first", "save 1")
	c.kill()
	c.do("unpacked, after kill -9", "check")
	c.Sync()
	c.do("packed and resident", "check")
	c.EvictAll()
	if s := c.Stats(); s.PackedFiles == 0 {
		c.T.Error("nothing is packed: the test sees nothing")
	}
	c.do("evicted", "check")
	c.EvictAll()
	c.kill()
	c.do("evicted, after kill -9", "check")
	c.EvictAll()
	c.do("evicted", "change 2")
	c.kill()
	c.do("changed, after kill -9", "check")
	c.EvictAll()
	c.do("changed and evicted", "check")
	c.Remount()
	c.do("mounted again", "save 3")
	c.EvictAll()
	c.do("saved over and evicted", "check")
}

// TestClients drives the programs that ckptfs is for, unchanged, on a mount and in a plain folder. Whatever
// they save has to load the same in every condition, and its files stay what they were.
func TestClients(t *testing.T) {
	t.Parallel()
	all := os.Getenv("CKPTFS_CLIENTS") == "all"
	size := os.Getenv("CKPTFS_CLIENT_SIZE")
	if size == "" {
		size = "600000"
	}
	for _, how := range []string{"passthrough", "served", "nobody", "other"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			if (how == "nobody" || how == "other") && os.Geteuid() != 0 {
				t.Skip("needs root, to become somebody else (without root every test here runs unprivileged)")
			}
			for _, p := range clients {
				if p.name == "dvc_few" && (all || how == "passthrough") {
					continue // dvc_ has its cases
				}
				if slices.Contains(ownClients, p.name) && (how == "nobody" || how == "other") {
					continue
				}
				if how != "passthrough" && !all && !slices.Contains(fewClients[how], p.name) {
					continue
				}
				t.Run(strings.TrimSuffix(p.name, "_"), func(t *testing.T) {
					t.Parallel()
					newClient(t, p.name, size, how).conditions()
				})
			}
		})
	}
}
