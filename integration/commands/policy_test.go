package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// rules is what `policy --json` prints.
type rules struct {
	Problem string `json:"problem"`
	Rules   []struct {
		Pattern       string `json:"pattern"`
		Rule          string `json:"rule"`
		Files         int64  `json:"files"`
		Bytes         int64  `json:"bytes"`
		ResidentBytes int64  `json:"resident_bytes"`
	} `json:"rules"`
}

// Rules hold for what is saved, and for what is there: never packed, always with a local copy.
func TestPolicy(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hot-size", "0")
	const size = 300 << 10
	m.Run("policy", "add", "--in", m.Dir, "*.gguf", "plain")
	m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
	for i, name := range []string{"x.gguf", "runs/a/1/y.gguf", "runs/a/1/w.bin", "w.bin"} {
		m.Write(name, mounttest.Noise(uint64(i), size))
	}
	m.Sync()
	m.WantState("x.gguf", mounttest.Plain)
	m.WantState("runs/a/1/y.gguf", mounttest.Plain)
	m.WantState("runs/a/1/w.bin", mounttest.Packed)

	// A pinned file comes, stays over a hot size of nothing, and goes by a user's word until the next mount.
	var pinned struct {
		Files   int
		Bytes   int64
		Mounted bool
	}
	m.JSON(&pinned, "pin", "--json", m.Path("runs/a"))
	if pinned.Files != 1 || pinned.Bytes != size || !pinned.Mounted {
		t.Errorf("%+v", pinned)
	}
	m.Write("runs/a/1/v.bin", mounttest.Noise(7, size))
	m.Write("v.bin", mounttest.Noise(8, size))
	m.Sync()
	m.WantState("v.bin", mounttest.Packed)
	m.WantState("runs/a/1/w.bin", mounttest.Resident)
	m.WantState("runs/a/1/v.bin", mounttest.Resident)
	var status struct {
		Files int   `json:"pinned_files"`
		Bytes int64 `json:"pinned_bytes"`
	}
	if m.JSON(&status, "status", "--json", m.Dir); status.Files != 2 || status.Bytes != 2*size {
		t.Errorf("%+v", status)
	}
	mounttest.WantSaid(t, m.Run("status", m.Dir), "pinned", "2 files")
	mounttest.WantSaid(t, m.Run("stats", m.Dir), "pinned")
	var is rules
	m.JSON(&is, "policy", "--json", m.Path("runs"))
	if len(is.Rules) != 2 || is.Rules[0].Files != 2 || is.Rules[0].Bytes != 2*size ||
		is.Rules[1].Pattern != "/runs/a" || is.Rules[1].Files != 3 || is.Rules[1].ResidentBytes != 2*size {
		t.Errorf("%+v", is)
	}
	m.Evict("runs/a/1/w.bin")
	m.Remount()
	m.WantState("runs/a/1/w.bin", mounttest.Resident)
	m.Want("runs/a/1/w.bin", mounttest.Noise(2, size))

	// The rule is of the path.
	m.Must(os.Rename(m.Path("w.bin"), m.Path("runs/a/2.bin")))
	m.WantState("runs/a/2.bin", mounttest.Resident)
	m.Must(os.Rename(m.Path("runs/a/1/v.bin"), m.Path("v.bin")))
	m.WantState("v.bin", mounttest.Packed)
	m.Run("unpin", m.Path("runs/a"))
	m.WantState("runs/a/1/w.bin", mounttest.Packed)
	said, _ := m.RunFails("unpin", m.Path("runs/a"))
	mounttest.WantSaid(t, said, "not pinned")

	// What cannot be read is named, and the rules before it hold.
	file := filepath.Join(m.Store, "policy")
	m.Must(os.WriteFile(file, []byte("ckptfs policy 1\n# mine\n*.gguf packed\n"), 0o600))
	said, _ = m.RunFails("policy", "load", "--in", m.Dir)
	mounttest.WantSaid(t, said, "line 3", "packed")
	said, _ = m.RunFails("pin", m.Path("x.gguf"))
	mounttest.WantSaid(t, said, "line 3")
	mounttest.WantSaid(t, m.Run("status", m.Dir), "policy", "line 3")
	m.Write("z.gguf", mounttest.Noise(9, size))
	m.Sync()
	m.WantState("z.gguf", mounttest.Plain)
	m.Must(os.WriteFile(file, []byte("ckptfs policy 1\n# mine\n"), 0o600))
	m.Run("policy", "load", "--in", m.Dir)
	m.Write("z.gguf", mounttest.Noise(9, size))
	m.Sync()
	m.WantState("z.gguf", mounttest.Packed)

	// Unmounted, the file is changed, and the next mount acts by it.
	m.Must(m.Stop())
	said = m.Run("pin", filepath.Join(m.Store, "tree/z.gguf"))
	mounttest.WantSaid(t, said, "the next mount hydrates")
	mounttest.WantSaid(t, m.Run("policy", m.Store), "/z.gguf", "hydrated")
	text, err := os.ReadFile(file)
	m.Must(err)
	if !strings.HasPrefix(string(text), "ckptfs policy 1\n# mine\n/z.gguf") {
		t.Errorf("%q", text)
	}
	m.Must(m.Start())
	m.WantState("z.gguf", mounttest.Resident)
	m.Run("check", m.Dir)
}

// warm has the files in memory that it was given, and makes local copies unless it is told not to.
func TestWarm(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	const size = 4 << 20
	m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
	model, err := os.ReadFile("../../formats/testdata/torch/flat.pt")
	m.Must(err)
	m.Write("runs/a/1/model.pt", model) // which has a view
	m.Write("runs/a/1/w.bin", mounttest.Noise(1, size))
	m.EvictAll()
	var out struct {
		Files    int   `json:"files"`
		Bytes    int64 `json:"bytes"`
		Hydrated int   `json:"hydrated_files"`
	}
	m.JSON(&out, "warm", "--json", "--hydrate=false", m.Path("runs"))
	if out.Files != 2 || out.Bytes != size+int64(len(model)) || out.Hydrated != 0 {
		t.Errorf("%+v", out)
	}
	m.EvictAll()
	m.JSON(&out, "warm", "--json", m.Path("runs"))
	if out.Files != 2 || out.Bytes != size+int64(len(model)) || out.Hydrated != 2 {
		t.Errorf("%+v", out)
	}
	m.WantState("runs/a/1/w.bin", mounttest.Resident)
	m.Want("runs/a/1/w.bin", mounttest.Noise(1, size))
	in := m.Path("runs/a/1/w.bin")
	if m.Status().Mode == "passthrough" {
		in = filepath.Join(m.Store, "tree/runs/a/1/w.bin")
	}
	f, err := os.Open(in)
	m.Must(err)
	defer f.Close()
	var cached unix.Cachestat_t
	err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Len: size}, &cached, 0)
	if err == nil && int64(cached.Cache)*int64(os.Getpagesize()) < size {
		t.Errorf("%d pages of %s are in memory", cached.Cache, in)
	}
	m.Must(m.Stop())
	said, _ := m.RunFails("warm", filepath.Join(m.Store, "tree/runs"))
	mounttest.WantSaid(t, said, "mount")
	m.Must(m.Start())
}

// Old steps lose their optimizer's state by a rule, and nothing else does: not the last ones, none that is
// torn or being written, no view, and nothing of a folder that is one checkpoint.
func TestForgetByPolicy(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	mixed, err := os.ReadFile("../../formats/testdata/torch/adamw.pt")
	m.Must(err)
	only, _ := mounttest.SafetensorsOf([]string{"optimizer.state.0.exp_avg", "optimizer.state.0.exp_avg_sq"},
		[][]byte{mounttest.Noise(1, 64<<10), mounttest.Noise(2, 64<<10)})
	weights, _ := mounttest.SafetensorsOf([]string{"layer.weight"}, [][]byte{mounttest.Noise(3, 64<<10)})
	files := map[string][]byte{"model.pt": mixed, "state.safetensors": only, "w.safetensors": weights,
		"notes.txt": []byte("x")}
	old := time.Now().Add(-48 * time.Hour)
	save := func(step string) {
		m.Must(os.MkdirAll(m.Path(step), 0o755))
		for name, data := range files {
			m.Write(step+"/"+name, data)
			m.Must(os.Chtimes(m.Path(step, name), old, old))
		}
	}
	for i := 1; i <= 5; i++ {
		save(fmt.Sprint("runs/a/", i))
		save(fmt.Sprint("runs/other/", i))
	}
	save("runs/a/best")
	m.Must(os.Chmod(m.Path("runs/a/1/model.pt"), 0o640))
	m.Sync()

	mounttest.WantSaid(t, m.Run("forget", "--policy", m.Dir), "0 files")
	m.Run("policy", "add", "--in", m.Dir, "runs/a/**", "drop-optimizer", "keep-last=2", "older-than=1d")
	var out struct {
		Files []struct {
			File, Weights string
			Kept          int `json:"tensors_kept"`
		}
		Skipped []struct{ Path string }
	}
	names := m.Names("runs/a/1")
	m.JSON(&out, "forget", "--policy", "--dry-run", "--json", m.Dir)
	if len(out.Files) != 6 || len(out.Skipped) != 0 {
		t.Errorf("%+v", out)
	}
	m.WantNames("runs/a/1", names...)

	// What somebody has open for writing is not the run's last step, and takes no part.
	m.Must(os.MkdirAll(m.Path("runs/a/6"), 0o755))
	w, err := os.Create(m.Path("runs/a/6/model.pt"))
	m.Must(err)
	defer w.Close()
	_, err = w.Write(mixed)
	m.Must(err)
	m.JSON(&out, "forget", "--policy", "--json", m.Path("runs/a"))
	if len(out.Files) != 6 || len(out.Skipped) != 0 || out.Files[0].File != "runs/a/1/model.pt" ||
		out.Files[0].Weights != "runs/a/1/model.weights.safetensors" || out.Files[0].Kept != 8 {
		t.Errorf("%+v", out)
	}
	for _, step := range []string{"runs/a/1", "runs/a/2", "runs/a/3"} {
		m.WantNames(step, "model.weights.safetensors", "notes.txt", "w.safetensors")
		m.Want(step+"/w.safetensors", weights)
	}
	st, err := os.Stat(m.Path("runs/a/1/model.weights.safetensors"))
	m.Must(err)
	if st.Mode().Perm() != 0o640 || st.ModTime().Unix() != old.Unix() {
		t.Errorf("%v, %v", st.Mode(), st.ModTime())
	}
	for _, step := range []string{"runs/a/4", "runs/a/5", "runs/a/best", "runs/other/1"} {
		for name, data := range files {
			m.Want(step+"/"+name, data)
		}
	}
	mounttest.WantSaid(t, m.LogText(), "optimizer state was removed by the policy", "runs/a/1/model.pt")
	if to, err := os.Readlink(m.Path(".ckptfs/latest/a")); err != nil || filepath.Base(to) != "5" {
		t.Errorf("%s, %v", to, err)
	}
	mounttest.WantSaid(t, m.Run("forget", "--policy", m.Dir), "0 files")

	// A policy that cannot be read removes nothing.
	m.Must(os.WriteFile(filepath.Join(m.Store, "policy"), []byte("ckptfs policy 1\nruns/** drop\n"), 0o600))
	m.RunFails("policy", "load", "--in", m.Dir)
	said, _ := m.RunFails("policy", m.Dir)
	mounttest.WantSaid(t, said, "drop-optimizer", "line 2")
	said, _ = m.RunFails("forget", "--policy", m.Dir)
	mounttest.WantSaid(t, said, "line 2")
	m.Run("check", m.Dir)
}

// The same rule is given for once with the runs that it is of. A file that is named loses its optimizer's
// state unless its step is the last that the run can be gone on from.
func TestForgetOptimizerOfRuns(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	mixed, err := os.ReadFile("../../formats/testdata/torch/adamw.pt")
	m.Must(err)
	old := time.Now().Add(-48 * time.Hour)
	for _, run := range []string{"a", "b [1]"} {
		for i := 1; i <= 5; i++ {
			name := fmt.Sprintf("runs/%s/%d/model.pt", run, i)
			m.Write(name, mixed)
			m.Must(os.Chtimes(m.Path(name), old, old))
		}
	}
	m.Sync()
	drop := func(args ...string) []string { return append([]string{"forget", "--drop-optimizer"}, args...) }
	a, b := m.Path("runs/a"), m.Path("runs/b [1]")
	for _, args := range [][]string{{"--keep-best", "loss=1"}, {"--keep-last", "2", "--forget-torn"},
		{"--keep-last", "-1"}} {
		if _, code := m.RunFails(append(drop(a), args...)...); code != 2 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	var out struct{ Files []struct{ File string } }
	m.JSON(&out, drop("--keep-last", "3", "--keep-within", "7d", "--json", a)...)
	if len(out.Files) != 0 {
		t.Errorf("%+v", out)
	}
	m.JSON(&out, drop("--keep-last", "3", "--json", a, b)...)
	if len(out.Files) != 4 {
		t.Errorf("%+v", out)
	}
	for _, run := range []string{"a", "b [1]"} {
		m.WantNames("runs/"+run+"/2", "model.weights.safetensors")
		m.Want("runs/"+run+"/3/model.pt", mixed)
	}

	said, _ := m.RunFails(drop(m.Path("runs/a/4/model.pt"), m.Path("runs/a/5/model.pt"))...)
	mounttest.WantSaid(t, said, "last step that runs/a can be gone on from", "--even-last")
	m.WantNames("runs/a/4", "model.weights.safetensors")
	m.Want("runs/a/5/model.pt", mixed)
	m.Run(drop("--even-last", m.Path("runs/a/5/model.pt"))...)
	m.WantNames("runs/a/5", "model.weights.safetensors")
}

// What has the name that the weights would have, and is not these, leaves the checkpoint as it is: of a link,
// what it leads to may go, and a FIFO waits. A dry run says so, too.
func TestForgetByPolicyOther(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	mixed, err := os.ReadFile("../../formats/testdata/torch/adamw.pt")
	m.Must(err)
	old := time.Now().Add(-48 * time.Hour)
	for i := 1; i <= 7; i++ {
		name := fmt.Sprintf("runs/a/%d/model.pt", i)
		m.Must(os.MkdirAll(filepath.Dir(m.Path(name)), 0o755))
		m.Write(name, mixed)
		m.Must(os.Chtimes(m.Path(name), old, old))
	}
	m.Sync()
	m.Run("policy", "add", "--in", m.Dir, "runs/**", "drop-optimizer", "keep-last=2")
	m.Must(os.Rename(m.Path("runs/a/1"), m.Path("1")))
	m.Run("forget", "--policy", m.Dir)
	weights := "model.weights.safetensors"
	for i := 2; i <= 5; i++ {
		m.WantNames(fmt.Sprint("runs/a/", i), weights)
	}
	m.Must(os.Rename(m.Path("1"), m.Path("runs/a/1")))
	skipped := 3
	if os.Getuid() == 0 { // a run that cannot be opened is named, and others are gone on with
		m.Sh("cp -a runs/a runs/0; cp -a runs/a/7 runs/0/8; mount -t tmpfs none runs/0")
		defer m.Sh("umount runs/0")
		skipped++
	}
	for _, name := range []string{"2", "3", "4"} {
		m.Must(os.Rename(m.Path("runs/a", name, weights), m.Path(name)))
		m.Write("runs/a/"+name+"/model.pt", mixed)
		m.Must(os.Chtimes(m.Path("runs/a", name, "model.pt"), old, old))
	}
	m.Must(unix.Mkfifo(m.Path("runs/a/1", weights), 0o600))
	m.Must(os.Symlink("../5/"+weights, m.Path("runs/a/2", weights)))
	m.Write("runs/a/3/"+weights, []byte("another"))
	m.Must(os.Chtimes(m.Path("runs/a/3", weights), old, old))
	m.Must(os.Rename(m.Path("4"), m.Path("runs/a/4", weights))) // as an interruption leaves it
	m.Must(unix.Setxattr(m.Path("runs/a/4/model.pt"), "user.note", []byte("kept"), 0))
	type outcome struct {
		Files   []struct{ File string }
		Skipped []struct{ Path, Reason string }
	}
	for _, args := range [][]string{{"--dry-run"}, nil} {
		said, err := m.CLI(append([]string{"forget", "--policy", "--json", m.Dir}, args...)...)
		var exit *daemon.ExitError
		var out outcome
		m.Must(json.Unmarshal([]byte(said), &out))
		if !errors.As(err, &exit) || exit.Code != 7 || len(out.Skipped) != skipped || len(out.Files) != 1 ||
			out.Files[0].File != "runs/a/4/model.pt" {
			t.Errorf("%q: %v, %+v", args, err, out)
		}
		for _, s := range out.Skipped {
			if s.Path != "runs/0" {
				mounttest.WantSaid(t, s.Reason, "another file of the name")
			}
		}
	}
	for _, name := range []string{"1", "2", "3"} {
		m.Want("runs/a/"+name+"/model.pt", mixed)
	}
	value := make([]byte, 16)
	n, err := unix.Getxattr(m.Path("runs/a/4", weights), "user.note", value)
	if err != nil || string(value[:n]) != "kept" {
		t.Errorf("%q, %v", value[:max(n, 0)], err)
	}
	m.WantNames("runs/a/4", weights)
}

// A snapshot of Hugging Face's cache is a folder of symbolic links, and a server is given that folder: what
// the links lead to in the mount is warmed, evicted, hydrated, pinned and unpinned with it.
func TestLinksAreFollowed(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	const size = 1 << 20
	m.Write("hub/blobs/aaaa", mounttest.Noise(1, size))
	m.Write("hub/blobs/bbbb", mounttest.Noise(2, size))
	m.Write("hub/blobs/other", mounttest.Noise(3, size))
	snapshot := m.Path("hub/snapshots/r1")
	m.Must(os.MkdirAll(filepath.Join(snapshot, "sub"), 0o755))
	for name, to := range map[string]string{
		"model.safetensors": "../../blobs/aaaa", "sub/again": m.Path("hub/snapshots/r1/model.safetensors"),
		"sub/b": m.Path("hub/blobs/bbbb"), "up": "..", "loop": "loop", "nowhere": "gone", "out": "/etc",
		"far": "../../../../../../etc/passwd",
	} {
		m.Must(os.Symlink(to, filepath.Join(snapshot, name)))
	}
	states := func(want string) {
		t.Helper()
		m.WantState("hub/blobs/aaaa", want)
		m.WantState("hub/blobs/bbbb", want)
	}
	m.EvictAll()
	mounttest.WantSaid(t, m.Run("hydrate", snapshot), "hydrated 2 files")
	states(mounttest.Resident)
	mounttest.WantSaid(t, m.Run("evict", snapshot), "evicted 2 files")
	states(mounttest.Packed)
	mounttest.WantSaid(t, m.Run("warm", snapshot), "read 2 files", "hydrated 2 files")
	m.Run("evict", snapshot)
	mounttest.WantSaid(t, m.Run("pin", snapshot), "pinned hub/snapshots/r1, hub/blobs/aaaa, hub/blobs/bbbb",
		"2 files hydrated")
	states(mounttest.Resident)
	m.WantState("hub/blobs/other", mounttest.Packed)
	// What another pin, or another link, may hold stays until it is said that it need not.
	said := withErrors(m, nil, "unpin", snapshot)
	mounttest.WantSaid(t, said, "still pinned", "hub/blobs/aaaa, hub/blobs/bbbb", "--links")
	mounttest.WantSaid(t, m.Run("policy", m.Dir), "/hub/blobs/aaaa", "/hub/blobs/bbbb")
	m.RunFails("unpin", snapshot)
	mounttest.WantSaid(t, m.Run("unpin", "--links", snapshot), "unpinned hub/blobs/aaaa, hub/blobs/bbbb")
	mounttest.WantSaid(t, m.Run("policy", m.Dir), "no rules")
	m.RunFails("unpin", "--links", snapshot)
}

// What a rule cannot do is said where it is asked for: by a mount whose rules cannot be read, and when local
// copies are made beyond --hot-size.
func TestWarningsOfResidency(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hot-size", "1MiB")
	m.Write("big.bin", mounttest.Noise(1, 4<<20))
	m.EvictAll()
	for _, args := range [][]string{{"hydrate", m.Path("big.bin")}, {"warm", m.Path("big.bin")}} {
		out, code := m.RunOutcome(args...)
		said := withErrors(m, nil, args...)
		if code != 0 || !strings.Contains(said, "--hot-size is 1.00 MiB") {
			t.Errorf("%q: %d, %s, %s", args, code, out, said)
		}
	}
	m.Run("pin", m.Path("big.bin"))
	if said := withErrors(m, nil, "hydrate", m.Path("big.bin")); strings.Contains(said, "hot-size") {
		t.Errorf("of a pinned file: %s", said)
	}
	said, _ := m.RunFails("policy", "add", "--in", m.Dir, m.Path("big.bin"), "plain")
	mounttest.WantSaid(t, said, "give /big.bin")
	m.Must(m.Stop())
	m.Must(os.WriteFile(filepath.Join(m.Store, "policy"), []byte("ckptfs policy 1\n*.pt packd\n"), 0o600))
	mounttest.WantSaid(t, m.Run("mount", m.Store, m.Dir), "no rule of the store holds", "line 2", "packd")
	m.Run("umount", m.Dir)
}
