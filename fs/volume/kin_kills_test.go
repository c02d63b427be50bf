package volume

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk/killtest"
	"ckptfs/fs/control"
)

// kinScene is what a daemon does with files that are computed of others while it is killed.
type kinScene struct {
	name  string
	begin func(r *rig) // the store before
	does  func(r *rig) error
	gone  []string // files that are not there any more
	// what holds once it is done
	done func(r *rig) bool
}

var kinScenes = []kinScene{
	{name: "pack",
		begin: func(r *rig) {
			for _, f := range kin(r.test) {
				r.saveRelative(f)
			}
		},
		does: func(r *rig) error { return r.Sync(r.test.Context(), nil) },
		done: func(r *rig) bool { return r.recipesOf() > 0 }},
	{name: "compact",
		begin: func(r *rig) { r.saveKin(kin(r.test)) },
		does: func(r *rig) error {
			_, err := r.Compact(r.test.Context(), control.CompactOptions{}, nil)
			return err
		},
		done: func(r *rig) bool { return r.recipesOf() > 0 }},
	{name: "prune",
		begin: func(r *rig) {
			r.saveKin(kin(r.test))
			r.evictAll()
			r.unlink(kinBase)
			r.unlink("other/model.safetensors")
			r.unlink("code/model.safetensors")
		},
		does: func(r *rig) error {
			_, err := r.Prune(r.test.Context(), now, nil)
			return err
		},
		gone: []string{kinBase, "other/model.safetensors", "code/model.safetensors"},
		done: func(r *rig) bool { return r.computedOf("other/fp8.safetensors") == 0 }},
}

// options are those of the store before and of the daemon that is killed.
func (s *kinScene) options(first bool) func(*Options) {
	return func(o *Options) { o.NoDelta = first && s.name == "compact" }
}

const (
	kinSceneOf = "CKPTFS_KILLED_KIN"
	kinSceneAt = "CKPTFS_KILLED_KIN_STORE"
	kinIsFull  = "CKPTFS_KILLED_KIN_FULL" // the process is not killed: changes fail
)

// kinVictim is the process that is killed, or whose changes fail.
func kinVictim(t *testing.T, name string) {
	s := &kinScenes[slices.IndexFunc(kinScenes, func(s kinScene) bool { return s.name == name })]
	r := openRig(t, os.Getenv(kinSceneAt), s.options(false))
	if err := killtest.Watch(); err != nil {
		t.Fatal(err)
	}
	err := s.does(r)
	if os.Getenv(kinIsFull) == "" {
		if err != nil {
			t.Fatal(err)
		}
	} else {
		s.same(r)
	}
	if !t.Failed() {
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
}

// TestKilledKin: a daemon is killed before a change that it makes to a file, while it packs what it can
// compute, while it stores again as that what it had stored otherwise, and while it stores alone what was
// computed of removed files. All bytes are right then, and it does it again. CKPTFS_KILLS=all kills before
// each change.
func TestKilledKin(t *testing.T) {
	if name := os.Getenv(kinSceneOf); name != "" {
		kinVictim(t, name)
		return
	}
	onMemory(t)
	for i := range kinScenes {
		s := &kinScenes[i]
		t.Run(s.name, func(t *testing.T) {
			s.anywhere(t, func(cmd *exec.Cmd, n int) ([]killtest.Change, error) {
				changes, _, err := killtest.Run(cmd, n)
				return changes, err
			})
		})
	}
}

// TestFullKin: the same where a change fails since the disk is full, once or from there on, and the daemon is
// killed later. It reads the right bytes all the while.
func TestFullKin(t *testing.T) {
	onMemory(t)
	for i := range kinScenes {
		for what, last := range map[string]int{"once": 0, "from there on": never} {
			s := &kinScenes[i]
			t.Run(s.name+", "+what, func(t *testing.T) {
				s.anywhere(t, func(cmd *exec.Cmd, n int) ([]killtest.Change, error) {
					cmd.Env = append(cmd.Env, kinIsFull+"=1")
					return killtest.Fail(cmd, func(i int, c killtest.Change) unix.Errno {
						if i < n || i-n > last || !slices.Contains(takeRoom, c.Call) {
							return 0
						}
						return unix.ENOSPC
					})
				})
			})
		}
	}
}

// takeRoom are the changes for which a disk may have no room.
var takeRoom = []string{"open", "mkdir", "link", "symlink", "setxattr", "write", "fallocate"}

// anywhere has each change struck, or some of them.
func (s *kinScene) anywhere(t *testing.T, strike func(cmd *exec.Cmd, n int) ([]killtest.Change, error)) {
	first := filepath.Join(t.TempDir(), "store")
	r := openRig(t, first, s.options(true))
	s.begin(r)
	r.close()
	struck := func(n int) []killtest.Change {
		t.Helper()
		dir := filepath.Join(filepath.Dir(first), "killed")
		defer os.RemoveAll(dir)
		copyTree(t, first, dir)
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledKin$")
		cmd.Env = append(os.Environ(), kinSceneOf+"="+s.name, kinSceneAt+"="+dir)
		changes, err := strike(cmd, n)
		if err != nil {
			t.Fatalf("change %d: %v", n, err)
		}
		s.right(t, dir)
		if t.Failed() {
			t.Fatalf("change %d: %v", n, changes[min(n, len(changes)-1)])
		}
		return changes
	}
	n := len(struck(never))
	step, some := 1, 8
	if testing.Short() || raceDetector {
		some = 2
	}
	if os.Getenv("CKPTFS_KILLS") != "all" {
		step = n/some + 1
	}
	t.Logf("%d changes, each %d", n, step)
	for k := 0; k < n; k += step {
		struck(k)
	}
}

// same compares all files.
func (s *kinScene) same(r *rig) {
	r.t.Helper()
	for _, f := range kin(r.test) {
		if !slices.Contains(s.gone, f.path) {
			r.same(f.path, f.bytes)
		} else if r.exists(f.path) {
			r.t.Errorf("%s is there again", f.path)
		}
	}
}

// right compares all files, has it be done, and compares them again.
func (s *kinScene) right(t *testing.T, dir string) {
	t.Helper()
	r := openRig(t, dir, s.options(false))
	same := func() {
		t.Helper()
		s.same(r)
		r.sound()
	}
	same()
	if err := s.does(r); err != nil {
		t.Error(err)
	}
	r.sync()
	r.evictAll()
	if !s.done(r) {
		t.Error("it was not done when it was done again")
	}
	same()
	r = r.withoutIndex()
	same()
	r.close()
}
