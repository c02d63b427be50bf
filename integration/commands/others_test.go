package commands

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// npy is a NumPy file of two numbers.
func npy(a, b uint32) []byte {
	h := "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }"
	h += strings.Repeat(" ", 117-len(h)) + "\n"
	p := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(h)))
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(append(p, h...), a), b)
}

// TestOthersSee: by the kernel, whose caches all users share, each user finds and reads of what is made up
// what that user could read by the path of its source, and nothing else: in whatever order they come, and
// beside root, who sees all.
func TestOthersSee(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "becomes other users")
	const group = 54400
	m := mounttest.Prepare(t, openDir(t), "--allow-other")
	m.Must(m.Start())
	m.Must(os.Chown(m.Dir, alice, alice)) // the owner of the mount's root is nobody's master
	type thing struct{ source, name string }
	var things []thing
	for i, f := range []struct {
		run  string
		dir  os.FileMode
		file os.FileMode
	}{{"open", 0o755, 0o644}, {"mine", 0o755, 0o600}, {"secret", 0o700, 0o644}, {"team", 0o750, 0o640},
		{"blind", 0o711, 0o644}} {
		dir := "runs/" + f.run + "/1"
		m.Must(os.MkdirAll(m.Path(dir), 0o755))
		m.Write(dir+"/m.npy", npy(uint32(i), 7))
		m.Write(dir+"/metrics.json", []byte(`{"loss": 1}`))
		id := make([]byte, 200)
		n, err := unix.Getxattr(m.Path(dir+"/m.npy"), "user.ckptfs.artifact", id)
		for start := time.Now(); err == unix.ENODATA && time.Since(start) < daemon.Patience; {
			// The daemon is told of the close a little later.
			time.Sleep(time.Millisecond)
			n, err = unix.Getxattr(m.Path(dir+"/m.npy"), "user.ckptfs.artifact", id)
		}
		m.Must(err)
		for _, file := range []string{"m.npy", "metrics.json"} {
			m.Must(os.Chown(m.Path(dir, file), bob, group))
			m.Must(os.Chmod(m.Path(dir, file), f.file))
		}
		m.Must(os.Chown(m.Path("runs", f.run), bob, group))
		m.Must(os.Chmod(m.Path("runs", f.run), f.dir))
		things = append(things, thing{dir + "/m.npy", dir + "/m.safetensors"},
			thing{dir + "/m.npy", ".ckptfs/tensors/" + dir + "/m.npy/arr_0.npy"},
			thing{dir + "/m.npy", ".ckptfs/tensors/" + dir + "/m.safetensors/arr_0.npy"},
			thing{dir + "/m.npy", ".ckptfs/artifacts/" + string(id[:n]) + ".safetensors"})
		things = append(things, thing{dir + "/metrics.json", ".ckptfs/best/" + f.run + "/loss.min/metrics.json"})
	}
	run := func(uid uint32, groups []uint32, script string) (string, error) {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = m.Dir
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var script strings.Builder
	for _, x := range things {
		list := "true" // a link names a step
		if run, ok := strings.CutPrefix(x.name, ".ckptfs/best/"); ok {
			list = "ls runs/" + path.Dir(path.Dir(run))
		}
		fmt.Fprintf(&script, "if { %s && cat %s; } >/dev/null 2>&1; then echo read; else echo no; fi\n",
			list, x.source)
		fmt.Fprintf(&script, "if cat '%s' >/dev/null 2>&1; then echo read; else echo no; fi\n", x.name)
		fmt.Fprintf(&script, "if stat '%s' >/dev/null 2>&1; then echo there; else echo no; fi\n", x.name)
		fmt.Fprintf(&script, "if ls '%s' 2>&1 | grep -qF '%s'; then echo listed; else echo no; fi\n",
			path.Dir(x.name), path.Base(x.name))
	}
	look := func(who string, uid uint32, groups ...uint32) {
		out, err := run(uid, groups, script.String())
		said := strings.Fields(out)
		if err != nil || len(said) != 4*len(things) {
			t.Errorf("%s: %v, %s", who, err, out)
			return
		}
		for i, x := range things {
			may, read, there, listed := said[4*i] != "no", said[4*i+1] != "no", said[4*i+2] != "no",
				said[4*i+3] != "no"
			if uid == 0 {
				may = true
			}
			if read != may || there != may || listed && !may {
				t.Errorf("%s: %s: read %v, there %v, listed %v; %s: read %v", who, x.name, read, there, listed,
					x.source, may)
			}
		}
		if uid == 0 {
			return
		}
		for _, c := range []string{"ls .ckptfs/query", "ls .ckptfs/lcp", "ls .ckptfs/artifacts", "ls .ckptfs/lcp/open",
			"echo {} >.ckptfs/query/new", "stat .ckptfs/query/root", "cat .ckptfs/query/root"} {
			if out, err := run(uid, groups, c); err == nil {
				t.Errorf("%s: %s: %s", who, c, out)
			}
		}
	}
	if out, err := run(0, nil, `echo '{"v":1,"nodes":[]}' >.ckptfs/query/root; ls .ckptfs/query .ckptfs/lcp`); err != nil {
		t.Logf("root asks: %s, %v", out, err)
	}
	for range 2 { // what one was told is not what the next is told
		look("stranger", 3000)
		look("root", 0)
		look("root's owner", alice)
		look("owner", bob)
		look("in the group", 4000, 60, group)
		look("stranger", 3000)
	}
	var all sync.WaitGroup
	for _, who := range []struct {
		uid    uint32
		groups []uint32
	}{{0, nil}, {alice, nil}, {bob, nil}, {4000, []uint32{group}}} {
		all.Go(func() {
			for range 3 {
				look(fmt.Sprint("beside the others, ", who.uid), who.uid, who.groups...)
			}
		})
	}
	all.Wait()

	// A view that is written makes a name.
	m.Must(os.Chmod(m.Path("runs/open/1/m.npy"), 0o666))
	for _, c := range []string{"echo x >runs/open/1/m.safetensors", "truncate -s 0 runs/open/1/m.safetensors",
		"echo x >>runs/open/1/m.safetensors"} {
		if out, err := run(3000, nil, c); err == nil || !strings.Contains(out, "ermission denied") {
			t.Errorf("%s: %s, %v", c, out, err)
		}
	}
	if _, err := os.Lstat(m.Store + "/tree/runs/open/1/m.safetensors"); err == nil {
		t.Error("a stranger made a name")
	}
}
