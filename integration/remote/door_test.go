package remote

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// shells are the blocks that docs/remote.md begins with: what is typed on one machine, and on another.
func shells(t *testing.T) (blocks []string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/remote.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(doc), "```sh\n")
	for _, p := range parts[1:3] {
		block, _, _ := strings.Cut(p, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

// typed has a shell do what docs/remote.md says in the folder of a machine, where its program trains and its
// places are the test's.
func typed(t *testing.T, m *mounttest.Mount, e *mounttest.Engine, block string) string {
	t.Helper()
	block = strings.NewReplacer("https://s3.example.org", e.Endpoint, "/mnt/ckpt", m.Dir,
		"python train.py --out", "save").Replace(block)
	script := "set -e\nckptfs() { '" + m.Bin + `' "$@"; }
save() { mkdir -p "$1/1"; head -c 3000000 /dev/zero | tr '\0' w > "$1/1/model.bin"; }
` + block
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = filepath.Dir(m.Store)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// docs/remote.md begins with what is to be typed on two machines. It works as it is written.
func TestBegin(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := mounttest.Prepare(t, t.TempDir()), mounttest.Prepare(t, t.TempDir())
	blocks := shells(t)
	if len(blocks) != 2 || !strings.Contains(blocks[0], "mount --remote") {
		t.Fatalf("%q", blocks)
	}
	mounttest.WantSaid(t, typed(t, a, e, blocks[0]), e.URL("team")+": a new remote")
	model := filepath.Join(a.Dir, "runs/a/1/model.bin")
	if err := daemon.Until("", func() bool { return remoteState(model) == "pushed" }); err != nil {
		t.Fatalf("the step was not published: %s", a.Run("status", a.Dir))
	}
	said := typed(t, b, e, blocks[1])
	if !strings.Contains(said, e.URL("team")+": joined the remote of 2") || !strings.HasSuffix(said, "\n1\n") {
		t.Errorf("mount and ls say %s", said)
	}
	other := filepath.Join(b.Dir, "runs/a/1/model.bin")
	if is := remoteState(other); is != "remote" {
		t.Errorf("%s is %s", other, is)
	}
	same(t, other, []byte(strings.Repeat("w", 3000000)))

	// A later mount needs neither the flag nor the network; with the flag it is the same.
	b.Must(b.Stop())
	e.Kill()
	b.Must(b.Start())
	if names := b.Names("runs/a/1"); len(names) != 1 {
		t.Errorf("without the network: %q", names)
	}
	b.Must(b.Stop())
	b.Flags = append(b.Flags, "--remote", e.URL("team"), "--endpoint", e.Endpoint)
	b.Must(b.Start())
	b.Must(b.Stop())
	b.Flags = append(b.Flags, "--remote", e.URL("another"))
	if err := b.Start(); err == nil || !strings.Contains(err.Error(), "has a remote already") {
		t.Errorf("mounted with another remote: %v", err)
	}
}

// Where a mount cannot join the remote nothing is made.
func TestMountRefused(t *testing.T) {
	e := mounttest.StartEngine(t)
	e.Kill()
	m := mounttest.Prepare(t, t.TempDir(), "--remote", e.URL("team"), "--endpoint", e.Endpoint)
	for want, flags := range map[string][]string{
		"cannot be reached":              nil,
		"--read-only uses no remote":     {"--read-only"},
		"STORE MOUNTPOINT":               {"one", "two"},
		"--endpoint, --region":           {"--remote="},
		"a pattern of a run's name":      {"--runs", "a/b"},
		"over plain HTTP takes no endpo": {"--remote=https://mirror.example.org/team"},
	} {
		args := append(append([]string{"mount"}, m.Flags...), flags...)
		said, code := m.RunFails(append(args, m.Store, m.Dir)...)
		if code == 0 || !strings.Contains(said, want) {
			t.Errorf("%q: %d, %s", flags, code, said)
		}
		if _, err := os.Stat(m.Store); err == nil {
			t.Fatalf("%q: a store was made", flags)
		}
	}
	// The next try is the first one.
	e.Start()
	m.Must(m.Start())
}

// A mount may be given no store: the remote has one of its own among the user's data.
func TestMountWithoutStore(t *testing.T) {
	e := mounttest.StartEngine(t)
	home := t.TempDir()
	t.Setenv("XDG_DATA_HOME", home)
	m := mounttest.Prepare(t, t.TempDir())
	var said struct{ Remote struct{ Made bool } }
	m.JSON(&said, "mount", "--json", "--remote", e.URL("team/a"), "--endpoint", e.Endpoint,
		"--log-file", m.Log, m.Dir)
	if !said.Remote.Made {
		t.Error("mount does not say that it made the remote")
	}
	m.Store = filepath.Join(home, "ckptfs", "models+team+a")
	save(t, filepath.Join(m.Dir, "runs/x/1/f"), []byte("f"))
	m.Run("push", m.Dir)
	if _, err := os.Stat(filepath.Join(m.Store, "remote")); err != nil {
		t.Error(err)
	}
}

// A clone has the names, and no bytes before they are read; --all brings all.
func TestClone(t *testing.T) {
	e := mounttest.StartEngine(t)
	a := joined(t, e, "team", "a")
	model := random(3<<20, 1)
	store := func() string { return filepath.Join(t.TempDir(), "store") }
	empty := store()
	a.Run("clone", "--all", e.URL("team"), empty, "--endpoint", e.Endpoint)
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), model)
	a.Run("push", a.Dir)
	whole := store()
	said := a.Run("clone", "--all", e.URL("team"), whole, "--endpoint", e.Endpoint)
	if !strings.Contains(said, "pulled 1 file") {
		t.Error(said)
	}
	lazy := mounttest.Prepare(t, t.TempDir())
	a.Run("clone", e.URL("team"), lazy.Store, "--endpoint", e.Endpoint)
	e.Kill()
	if said := a.Run("check", "--read-data", whole); !strings.Contains(said, "no damage") {
		t.Error(said)
	}
	lazy.Must(lazy.Start())
	p := filepath.Join(lazy.Dir, "runs/x/1/model.bin")
	if is := remoteState(p); is != "remote" { // without a request: clone has read the names
		t.Errorf("%s is %s", p, is)
	}
	nothing := store()
	if said, code := a.RunFails("clone", e.URL("team"), nothing, "--endpoint", e.Endpoint); code != 11 {
		t.Errorf("clone without an engine: %d, %s", code, said)
	}
	e.Start()
	a.Run("clone", e.URL("team"), nothing, "--endpoint", e.Endpoint) // nothing was left there
	same(t, p, model)
}

// A clone that was killed goes on when it is run again, whatever it had made. A store with files of its own
// is none.
func TestCloneGoesOn(t *testing.T) {
	e := mounttest.StartEngine(t)
	a := joined(t, e, "team", "a")
	model := random(30<<20, 1)
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), model)
	a.Run("push", a.Dir)
	remove := func(store string, names ...string) {
		for _, name := range names {
			if err := os.RemoveAll(filepath.Join(store, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, flags := range [][]string{nil, {"--reader"}} {
		clone := append([]string{"clone", "--all", e.URL("team"), "", "--endpoint", e.Endpoint}, flags...)
		for name, kill := range map[string]func(store string){
			"in the making": func(store string) {
				for _, sub := range []string{"tree", "segments"} {
					if err := os.MkdirAll(filepath.Join(store, sub), 0o755); err != nil {
						t.Fatal(err)
					}
				}
			},
			"made": func(store string) {
				a.Run(clone...)
				remove(store, "remote", "remote.db", "remote.log", "tree/runs")
			},
			"joined": func(store string) {
				a.Run(clone...)
				remove(store, "remote.db", "remote.log", "tree/runs")
			},
			"pulling": func(store string) {
				p := mounttest.Begin(t, "", a.Bin, clone...)
				err := daemon.Until("it pulls", func() bool {
					_, err := os.Stat(filepath.Join(store, "remote.db"))
					return err == nil
				})
				if err != nil {
					t.Fatal(err)
				}
				p.Kill()
			},
		} {
			t.Run(strings.Join(append(flags, name), " "), func(t *testing.T) {
				store := filepath.Join(t.TempDir(), "store")
				clone[3] = store
				kill(store)
				a.Run(clone...)
				if said := a.Run("check", "--read-data", store); !strings.Contains(said, "no damage") {
					t.Error(said)
				}
				if _, err := os.Stat(filepath.Join(store, "tree/runs/x/1/model.bin")); err != nil {
					t.Error(err)
				}
			})
		}
	}
	clone := []string{"clone", e.URL("team"), a.Store, "--endpoint", e.Endpoint, "--reader"}
	if said, _ := a.RunFails(clone...); !strings.Contains(said, "give another one") {
		t.Error(said)
	}
	own := mounttest.New(t)
	save(t, filepath.Join(own.Dir, "f"), []byte("f"))
	clone = []string{"clone", e.URL("team"), own.Store, "--endpoint", e.Endpoint}
	if said, _ := own.RunFails(clone...); !strings.Contains(said, "files of its own") {
		t.Error(said)
	}
	other := t.TempDir()
	save(t, filepath.Join(other, "f"), []byte("f"))
	clone[2] = other
	if said, _ := own.RunFails(clone...); !strings.Contains(said, "not empty") {
		t.Error(said)
	}
}

// A mirror over plain HTTP is cloned and mounted without credentials, shows what was exported, and is only
// read.
func TestMirrorAlone(t *testing.T) {
	e := mounttest.StartEngine(t)
	a := joined(t, e, "team", "a")
	model := random(3<<20, 1)
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), model)
	save(t, filepath.Join(a.Dir, "runs/secret/1/f"), []byte("not exported"))
	a.Run("push", a.Dir)
	a.Run("remote", "export", "shown", filepath.Join(a.Dir, "runs/x"), "--serving")
	// What versitygw keeps in a folder is what nginx would show of it.
	mirror := httptest.NewServer(http.FileServer(http.Dir(e.Folder())))
	defer mirror.Close()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	b := mounttest.Prepare(t, t.TempDir(), "--remote", mirror.URL+"/models/team")
	b.Must(b.Start())
	if names := b.Names("runs"); len(names) != 1 || names[0] != "shown" {
		t.Errorf("%q", names)
	}
	p := filepath.Join(b.Dir, "runs/shown/1/model.bin")
	same(t, p, model)
	if err := os.Remove(p); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("removed: %v", err)
	}
	if err := os.WriteFile(filepath.Join(b.Dir, "f"), nil, 0o644); err == nil {
		t.Error("it is written to")
	}
	if said := b.Run("status", b.Dir); !strings.Contains(said, "only read") {
		t.Error(said)
	}
	if said, code := b.RunFails("push", b.Dir); code != 12 {
		t.Errorf("push: %d, %s", code, said)
	}
	if said := b.Run("remote", "status", b.Dir); !strings.Contains(said, "reads "+mirror.URL) {
		t.Error(said)
	}
	b.Run("pull", filepath.Join(b.Dir, "runs/shown"))
	store := filepath.Join(t.TempDir(), "store")
	b.Run("clone", "--all", mirror.URL+"/models/team", store)
	if said := b.Run("check", "--read-data", store); !strings.Contains(said, "no damage") {
		t.Error(said)
	}
	if said, code := b.RunFails("remote", "add", mirror.URL+"/models/team", store); code != 2 {
		t.Errorf("remote add: %d, %s", code, said)
	}
	said, code := b.RunFails("clone", mirror.URL+"/models/none", filepath.Join(t.TempDir(), "s"))
	if code != 1 || !strings.Contains(said, "there is no remote") {
		t.Errorf("no remote there: %d, %s", code, said)
	}
	same(t, p, model)
}

// A server that gives whole objects alone is refused before anything is made: its files could not be read.
func TestServerWithoutRanges(t *testing.T) {
	e := mounttest.StartEngine(t)
	a := joined(t, e, "team", "a")
	files := http.FileServer(http.Dir(e.Folder()))
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		files.ServeHTTP(w, r)
	}))
	defer mirror.Close()
	url, store := mirror.URL+"/models/team", filepath.Join(t.TempDir(), "store")
	a.Must(a.Stop())
	for _, args := range [][]string{{"clone", url, store}, {"mount", "--remote", url, store, t.TempDir()},
		{"mount", "--mirror", url, a.Store, a.Dir}} {
		said, code := a.RunFails(args...)
		if code != 13 || !strings.Contains(said, url) || !strings.Contains(said, "requests with Range") {
			t.Errorf("%q: %d, %s", args, code, said)
		}
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("a store was made")
	}
	mirror.Close() // one that does not answer is no reason not to mount
	a.Run("mount", "--mirror", url, a.Store, a.Dir)
}

// A reader publishes nothing, and is no writer of the remote.
func TestReader(t *testing.T) {
	e := mounttest.StartEngine(t)
	a := joined(t, e, "team", "a")
	model := random(1<<20, 1)
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), model)
	a.Run("push", a.Dir)
	b := mounttest.Prepare(t, t.TempDir(), "--remote", e.URL("team"), "--endpoint", e.Endpoint, "--reader")
	b.Must(b.Start())
	same(t, filepath.Join(b.Dir, "runs/x/1/model.bin"), model)
	if err := os.RemoveAll(filepath.Join(b.Dir, "runs/x")); err == nil {
		t.Error("a reader removes")
	}
	if said := a.Run("remote", "status", a.Dir); strings.Contains(said, "so does") {
		t.Error(said)
	}
	for _, c := range []string{"push", "prune --remote", "remote index"} {
		said, code := b.RunFails(append(strings.Fields(c), b.Dir)...)
		if code != 12 || !strings.Contains(said, "only reads") {
			t.Errorf("%s: %d, %s", c, code, said)
		}
	}
	b.Run("umount", "--remote", b.Dir) // it has nothing to publish
	b.Must(b.Start())
	same(t, filepath.Join(b.Dir, "runs/x/1/model.bin"), model)

	// A store that publishes is none that only reads, nor is one with files of its own; an empty one may be.
	a.Must(a.Stop())
	a.Flags = append(a.Flags, b.Flags...)
	if err := a.Start(); err == nil || !strings.Contains(err.Error(), "publishes to") {
		t.Errorf("a writer was mounted as a reader: %v", err)
	}
	for own, want := range map[string]string{"f": "files of its own", "": ""} {
		m := mounttest.New(t)
		if own != "" {
			save(t, filepath.Join(m.Dir, own), []byte("own"))
		}
		m.Must(m.Stop())
		m.Flags = append(m.Flags, b.Flags...)
		err := m.Start()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %q in it: %v, want %q", own, err, want)
		}
	}
}
