package remote

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// remoteState is what the attribute says that tells what a file is to the remote.
func remoteState(path string) string {
	state := make([]byte, 16)
	n, err := unix.Getxattr(path, "user.ckptfs.remote", state)
	if err != nil {
		return err.Error()
	}
	return string(state[:n])
}

// What one mount publishes another lists, reads, maps and copies, although it was never there. It vanishes
// where it is removed, and who has it open keeps it.
func TestStubs(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	in := func(m *mounttest.Mount, p string) string { return filepath.Join(m.Dir, p) }
	model := random(6<<20, 1)
	save(t, in(a, "runs/x/1/model.bin"), model)
	for i := range 50 {
		save(t, in(a, fmt.Sprintf("runs/y/%d/model.bin", i)), random(10_000, byte(i)))
		save(t, in(a, fmt.Sprintf("runs/y/%d/metrics.json", i)), []byte(fmt.Sprintf(`{"loss": %d}`, 100-i)))
	}
	for _, p := range []string{"runs", "runs/x", "runs/x/1"} { // the kernel knows that these are not there
		if _, err := os.Stat(in(b, p)); err == nil {
			t.Fatalf("%s is there already", p)
		}
	}
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)

	file := in(b, "runs/x/1/model.bin")
	if st, err := os.Stat(file); err != nil || st.Size() != int64(len(model)) {
		t.Fatalf("%v, %v", st, err)
	}
	if is := remoteState(file); is != "remote" {
		t.Errorf("%s is %s", file, is)
	}
	if out, err := exec.Command("ls", "-lR", in(b, "runs")).CombinedOutput(); err != nil ||
		bytes.Count(out, []byte("model.bin")) != 51 {
		t.Errorf("%v\n%s", err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, len(model), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mapped[1<<20:2<<20], model[1<<20:2<<20]) {
		t.Error("the mapped file has other bytes")
	}
	copied := in(b, "runs/x/1/copy.bin")
	if out, err := exec.Command("cp", file, copied).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	same(t, copied, model)
	if said := b.Run("log", in(b, "runs/y")); !bytes.Contains([]byte(said), []byte("51")) {
		t.Errorf("log: %s", said)
	}

	// Another version, and a removal, while it is open and mapped.
	next := random(6<<20, 2)
	save(t, in(a, "runs/x/1/model.bin"), next)
	if err := os.RemoveAll(in(a, "runs/y")); err != nil {
		t.Fatal(err)
	}
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)
	same(t, file, next)
	if !bytes.Equal(mapped, model) {
		t.Error("the mapped file has other bytes since another has its name")
	}
	unix.Munmap(mapped)
	f.Close()
	gone := func() bool { _, err := os.Stat(in(b, "runs/y/7")); return err != nil }
	if err := daemon.Until("", gone); err != nil {
		t.Error("what was removed is there")
	}

	// Without the engine what was read can be read, also by the next daemon, and names are as they were.
	e.Kill()
	same(t, file, next)
	b.Remount()
	same(t, file, next)
	same(t, copied, model)
	save(t, in(b, "runs/z/1/model.bin"), model)
	e.Start()

	// What is published is left to the remote, and comes back.
	b.Run("push", b.Dir)
	b.Run("drop", in(b, "runs/z"))
	if is := remoteState(in(b, "runs/z/1/model.bin")); is != "remote" {
		t.Errorf("dropped, it is %s", is)
	}
	b.Run("prune", b.Dir)
	same(t, in(b, "runs/z/1/model.bin"), model)
	b.Run("pull", in(b, "runs/z"))
	if is := remoteState(in(b, "runs/z/1/model.bin")); is != "pushed" {
		t.Errorf("pulled, it is %s", is)
	}
	if said := b.Run("check", b.Dir); !bytes.Contains([]byte(said), []byte("no damage")) {
		t.Error(said)
	}
}
