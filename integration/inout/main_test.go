// Package inout tests that a folder becomes a mounted store and a folder again, in place: under programs that
// use it, killed at each moment, and with the power cut.
package inout

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk/killtest"
	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
	"ckptfs/integration/recipe"
)

func TestMain(m *testing.M) {
	if bin := os.Getenv(killedBin); bin != "" {
		os.Exit(killed(bin))
	}
	os.Exit(mounttest.Main(m))
}

// killedBin names the program that a child runs under killtest.
const killedBin = "INOUT_KILLED_BIN"

// killed runs a command whose changes the parent watches, ends what that started, and kills itself.
func killed(bin string) int {
	if err := killtest.Watch(); err != nil {
		fmt.Println(err)
		return 1
	}
	args := os.Args[1:]
	if out, err := exec.Command(bin, args...).CombinedOutput(); err != nil {
		fmt.Printf("%v: %v\n%s", args, err, out)
		return 1
	}
	store, dir := args[len(args)-2], args[len(args)-1]
	if err := (&daemon.Daemon{Bin: bin, Store: store, Dir: dir}).End(); err != nil {
		fmt.Println(err)
		return 1
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
	return 1
}

// folder is a folder with files, which is a mount or not.
type folder struct {
	*mounttest.Mount
	want map[string][]byte
}

// newFolder fills the folder of a mount that is not made yet. The store is beside it.
func newFolder(m *mounttest.Mount) *folder {
	f := &folder{m, map[string][]byte{}}
	f.fill()
	return f
}

func (f *folder) fill() {
	f.T.Helper()
	for i, kind := range recipe.Kinds {
		f.put(fmt.Sprintf("runs/a/%d/model-%v", i, kind),
			recipe.Recipe{Kind: kind, Seed: 1, Step: uint64(i), Size: 300 << 10}.Bytes())
	}
	f.put("small.json", []byte(`{"a": 1}`))
	f.put("hard", []byte("linked"))
	f.Must(os.Link(f.Path("hard"), f.Path("runs/link")))
	f.Must(os.Symlink(f.Path("small.json"), f.Path("absolute")))
	f.want["runs/link"], f.want["absolute"] = f.want["hard"], f.want["small.json"]
}

func (f *folder) put(name string, p []byte) {
	f.T.Helper()
	f.Must(os.MkdirAll(filepath.Dir(f.Path(name)), 0o755))
	f.Must(os.WriteFile(f.Path(name), p, 0o640))
	f.want[name] = p
}

// same compares the folder's files, as they are at its path or at another.
func (f *folder) same(when, at string) {
	f.T.Helper()
	for name, want := range f.want {
		got, err := os.ReadFile(filepath.Join(at, name))
		if err != nil || !bytes.Equal(got, want) {
			f.T.Fatalf("%s: %s: %d bytes, want %d: %v", when, name, len(got), len(want), err)
		}
	}
}

// plain fails unless the folder is one without a trace of the store.
func (f *folder) plain(when string) {
	f.T.Helper()
	if f.Mounted() {
		f.T.Fatalf("%s: it is mounted", when)
	}
	f.same(when, f.Dir)
	f.Must(filepath.WalkDir(f.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n, err := unix.Llistxattr(path, nil); n > 0 || err != nil {
			f.T.Errorf("%s: %s has attributes: %d bytes, %v", when, path, n, err)
		}
		return nil
	}))
}

// inStore reports whether the store's folder has a name.
func (f *folder) inStore(name string) bool {
	_, err := os.Lstat(filepath.Join(f.Store, name))
	return err == nil
}

// names is how many names there are in a folder.
func (f *folder) names(dir string) int {
	f.T.Helper()
	all, err := os.ReadDir(dir)
	f.Must(err)
	return len(all)
}

// adopt adopts the folder.
func (f *folder) adopt(args ...string) error {
	_, err := f.CLI(append(append([]string{"adopt"}, args...), "--store", f.Store, f.Dir)...)
	return err
}
