package commands

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// fillAttributes sets attributes of a file until one is refused.
func fillAttributes(t *testing.T, path string) {
	t.Helper()
	for size := 512; size > 0; size /= 2 {
		for n := 0; ; n++ {
			err := unix.Setxattr(path, fmt.Sprintf("user.f%d.%d", size, n), make([]byte, size), 0)
			if err == unix.ENOSPC || err == unix.EDQUOT {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if n == 2000 {
				t.Skip("this filesystem bounds no attributes")
			}
		}
	}
}

// TestFullAttributes: attributes that fill what a file may have of them keep it from being packed no more;
// those of an older store do, and neither sync nor umount fails of it: they name it.
func TestFullAttributes(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("new.bin", nil)
	fillAttributes(t, m.Path("new.bin"))
	m.Write("new.bin", mounttest.Noise(1, 200<<10))
	m.Sync()
	m.WantState("new.bin", mounttest.Resident)

	m.Write("old.bin", nil)
	fillAttributes(t, filepath.Join(m.Store, "tree", "old.bin"))
	m.Write("old.bin", mounttest.Noise(2, 200<<10))
	named := func(command, path string) {
		t.Helper()
		p, err := exec.Command(m.Bin, command, path).CombinedOutput()
		said := string(p)
		if err != nil || !strings.Contains(said, "old.bin stays plain") || !strings.Contains(said, "getfattr") {
			t.Errorf("%v: %s", err, said)
		}
	}
	m.Must(daemon.Until("the file to be looked at", func() bool { // a child of another test may have it open
		m.Sync()
		return strings.Contains(m.Run("status", m.Dir), "old.bin stays plain")
	}))
	named("sync", m.Dir)
	m.WantState("old.bin", mounttest.Plain)
	named("umount", m.Dir)
	m.Must(m.Start())
	m.Want("old.bin", mounttest.Noise(2, 200<<10))
	m.Must(unix.Removexattr(m.Path("old.bin"), "user.f512.0"))
	m.Sync()
	m.WantState("old.bin", mounttest.Resident)
}

// TestNoAttributes: a store is refused where there are no attributes of users, and nothing is made there.
func TestNoAttributes(t *testing.T) {
	mounttest.NeedRoot(t, "mounts a ramfs")
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "ramfs", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("no ramfs: %s", out)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if _, err := unix.Getxattr(dir, "user.x", nil); err != unix.EOPNOTSUPP {
		t.Skipf("this kernel's ramfs has attributes: %v", err)
	}
	m := mounttest.Prepare(t, t.TempDir())
	m.Must(m.Start())
	m.Must(m.Stop())
	copied := filepath.Join(dir, "copied")
	if out, err := exec.Command("cp", "-r", m.Store, copied).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	for _, command := range [][]string{{"mount", filepath.Join(dir, "s"), m.Dir}, {"stats", copied}} {
		said, code := m.RunFails(command...)
		if code != 1 || !strings.Contains(said, "extended attributes") || !strings.Contains(said, "ext4") {
			t.Errorf("%v: exit code %d: %s", command, code, said)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "s")); err == nil {
		t.Error("a folder was made")
	}
}

// TestEvictPinned: evict names the query that has a file open, and how to drop the pin.
func TestEvictPinned(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		graph := []byte(`{"v":1,"nodes":[{"id":"n","op":"x","params":["a"]}]}`)
		m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
		b, _ := mounttest.SafetensorsOf([]string{"a"}, [][]byte{mounttest.Noise(1, mib)})
		m.Write("runs/a/1/m.safetensors", b)
		m.Write("runs/a/1/arch.json", graph)
		m.Sync()
		m.Run("match", "--like", m.Path("runs/a/1"), "--pin", "before") // of no other model: none
		query := filepath.Join(t.TempDir(), "q.json")
		m.Must(os.WriteFile(query, graph, 0o644))
		m.Run("match", query, "--in", m.Dir, "--pin", "mine")
		said, code := m.RunOutcome("evict", m.Path("runs/a/1/m.safetensors"))
		if m.Status().Mode == "passthrough" {
			if code != 7 || !strings.Contains(said, m.Path(".ckptfs/query/mine")) || !strings.Contains(said, "rm") {
				t.Errorf("exit code %d: %s", code, said)
			}
		} else if code != 0 {
			t.Errorf("exit code %d: %s", code, said)
		}
		m.Must(os.Remove(m.Path(".ckptfs/query/mine")))
		m.Run("evict", m.Path("runs/a/1/m.safetensors"))
		m.WantState("runs/a/1/m.safetensors", mounttest.Packed)
	})
}

// TestAnswerCancelled: who waits for an answer that takes long, and is killed, does not wait on.
func TestAnswerCancelled(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	var b strings.Builder
	b.WriteString(`{"v":1,"nodes":[{"id":"x","op":"Input"}`)
	for i := range 50_000 {
		fmt.Fprintf(&b, `,{"id":"0_%d","op":"A","cfg":{},"in":["x"]}`, i)
	}
	for i, step := range []string{"adv/1", "adv/2", "adv/3"} {
		m.Must(os.MkdirAll(m.Path("runs", step), 0o755))
		p, _ := mounttest.SafetensorsOf([]string{"a"}, [][]byte{mounttest.Noise(uint64(i), mib)})
		m.Write("runs/"+step+"/m.safetensors", p)
		more := strings.Repeat(`,{"id":"y","op":"B","in":["x"]}`, min(i, 1))
		m.Write("runs/"+step+"/arch.json", []byte(b.String()+more+"]}"))
	}
	m.Sync()
	start := time.Now()
	head := exec.Command("head", "-c", "100", m.Path(".ckptfs/lcp/adv/3"))
	m.Must(head.Start())
	time.Sleep(300 * time.Millisecond)
	m.Must(head.Process.Kill())
	_ = head.Wait()
	t.Logf("ended after %v", time.Since(start))
	start = time.Now()
	p, err := os.ReadFile(m.Path(".ckptfs/lcp/adv/3"))
	if err != nil || !strings.Contains(string(p), `"exact"`) {
		t.Errorf("%.300s, %v", p, err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("the answer took %v", took)
	}
	t.Logf("answered after %v", time.Since(start))
}
