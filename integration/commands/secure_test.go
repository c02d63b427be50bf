package commands

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ckptfs/integration/mounttest"
)

// Two users who are not root.
const (
	alice = 54321
	bob   = 54322
)

// as runs a shell command as a user and returns what it said, and whether it succeeded.
func as(t *testing.T, uid uint32, dir, command string) (string, bool) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "cd \"$1\" && "+command, "sh", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err == nil
}

// try is a shell command of a user.
type try struct {
	uid  uint32
	what string
}

// asAll runs commands of one user in a folder, and returns what each said and its exit status.
func asAll(t *testing.T, uid uint32, dir string, tries []try) []string {
	t.Helper()
	var script strings.Builder
	for _, c := range tries {
		script.WriteString("( " + c.what + " ) 2>&1; echo \" -> $?\"; echo =====\n")
	}
	out, _ := as(t, uid, dir, "{\n"+script.String()+"}")
	said := strings.Split(out, "=====")
	if len(said) < len(tries) {
		t.Fatalf("the shell ended early: %s", out)
	}
	return said
}

// openDir is a folder that all users can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptfs-open-") // t.TempDir lies below a folder that is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOtherUsers: with --allow-other users get from the mount what the permissions of a plain folder give
// them.
func TestOtherUsers(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "becomes two other users")
	modes := []string{"passthrough", "served"}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			flags := []string{"--allow-other"}
			if mode == "served" {
				flags = append(flags, "--no-passthrough")
			}
			dir := openDir(t)
			m := mounttest.Prepare(t, dir, flags...)
			m.Must(m.Start())
			plain := filepath.Join(dir, "plain")
			m.Must(os.Mkdir(plain, 0o755))
			model, err := os.ReadFile("../../formats/testdata/torch/flat.pt")
			m.Must(err)
			m.Must(os.WriteFile(filepath.Join(dir, "model.pt"), model, 0o600))
			root := func(command string) {
				t.Helper()
				for _, where := range []string{m.Dir, plain} {
					if out, ok := as(t, 0, where, "umask 022; "+command); !ok {
						t.Fatalf("%s: %s", command, out)
					}
				}
			}
			root(`mkdir -p runs/a/1 open team private; chmod 1777 open; chmod 700 private; chown 54321:54322 team; chmod 2770 team
				cp ../model.pt runs/a/1/secret.pt; chmod 600 runs/a/1/secret.pt
				cp ../model.pt runs/a/1/model.pt; chmod 644 runs/a/1/model.pt
				cp ../model.pt private/model.pt; chmod 666 private/model.pt
				cp ../model.pt open/alices.pt; chown 54321 open/alices.pt; chmod 640 open/alices.pt`)
			tries := []try{
				{alice, "cat runs/a/1/model.pt | sha256sum"},
				{alice, "cat runs/a/1/secret.pt"},
				{alice, "cat private/model.pt"},
				{alice, "ls private"},
				{alice, "echo x >>runs/a/1/model.pt"},
				{alice, "truncate -s 0 runs/a/1/model.pt"},
				{alice, "touch runs/new"},
				{alice, "rm -f runs/a/1/model.pt"},
				{alice, "mv runs/a/1/model.pt open/"},
				{alice, "ln runs/a/1/model.pt open/link && rm open/link"},
				{alice, "chmod 777 runs/a/1/model.pt"},
				{alice, "setfattr -n user.x -v 1 runs/a/1/model.pt"},
				{alice, "chmod 600 open/alices.pt && stat -c %a:%u open/alices.pt"},
				{alice, "chown 54322 open/alices.pt"},
				{alice, "echo mine >open/new && stat -c %u:%g:%a open/new"},
				{alice, "echo shared >team/x && stat -c %u:%g team/x"},
				{bob, "cat open/alices.pt"},
				{bob, "rm -f open/alices.pt"},
				{bob, "mv open/alices.pt open/bobs.pt"},
				{bob, "echo x >>open/new"},
				{bob, "cat open/new"},
				{bob, "cp team/x team/y && stat -c %u:%g team/y"},
				{bob, "touch -d 2001-01-01 team/x"},
				{bob, "cp --reflink=auto runs/a/1/secret.pt open/"},
				{alice, "rm open/alices.pt open/new && ls open"},
			}
			compare := func(when string, tries []try) {
				t.Helper()
				for len(tries) > 0 {
					n := 1 // those of one user in a row are run by one shell
					for n < len(tries) && tries[n].uid == tries[0].uid {
						n++
					}
					got, want := asAll(t, tries[0].uid, m.Dir, tries[:n]),
						asAll(t, tries[0].uid, plain, tries[:n])
					for i, c := range tries[:n] {
						if got[i] != want[i] {
							t.Errorf("%s, as %d: %s\nmount: %s\nplain: %s", when, c.uid, c.what, got[i], want[i])
						}
					}
					tries = tries[n:]
				}
			}
			compare("resident", tries)
			root("cp ../model.pt open/alices.pt; chown 54321 open/alices.pt; chmod 640 open/alices.pt; rm -f team/*")
			m.Sync()
			m.Run("evict", m.Path("runs"))
			m.Run("evict", m.Path("open"))
			compare("packed", tries)

			// A view is as private as its source.
			if out, ok := as(t, alice, m.Dir, "cat runs/a/1/model.safetensors | sha256sum"); !ok {
				t.Errorf("the view of a file that all may read: %s", out)
			}
			if out, ok := as(t, alice, m.Dir, "cat runs/a/1/secret.safetensors"); ok {
				t.Errorf("the view of a file that is root's alone was read: %.100s", out)
			}
		})
	}
}

// TestStoreIsPrivate: nobody reaches a store around its mount, or its daemon.
func TestStoreIsPrivate(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "becomes another user")
	dir := openDir(t)
	m := mounttest.Prepare(t, dir)
	m.Must(os.Mkdir(m.Store, 0o777)) // an empty folder that is too open
	m.Must(os.Chmod(m.Store, 0o777))
	m.Must(m.Start())
	m.Write("x", mounttest.Noise(1, mib))
	perm := func(name string) os.FileMode {
		t.Helper()
		st, err := os.Stat(filepath.Join(m.Store, name))
		m.Must(err)
		return st.Mode().Perm()
	}
	for name, want := range map[string]os.FileMode{"": 0o700, "control.sock": 0o600, "segments": 0o700,
		"lost+found": 0o700, "lock": 0o600, "index.db": 0o600} {
		if got := perm(name); got&^want != 0 {
			t.Errorf("%s has mode %o, want %o", filepath.Join("store", name), got, want)
		}
	}
	for _, command := range []string{"ls", "cat tree/x", "cat " + m.Dir + "/x"} {
		if out, ok := as(t, alice, "/", "cd "+m.Store+" && "+command); ok {
			t.Errorf("another user could %s: %s", command, out)
		}
	}
	for _, args := range []string{"stats", "status", "sync", "umount"} {
		if out, ok := as(t, alice, "/", m.Bin+" "+args+" "+m.Store); ok {
			t.Errorf("another user could ask for %s: %s", args, out)
		}
	}
	// Even if the folder and the socket let them in, the daemon asks who they are.
	m.Must(os.Chmod(m.Store, 0o777))
	m.Must(os.Chmod(filepath.Join(m.Store, "control.sock"), 0o666))
	for _, args := range []string{"stats", "status", "umount"} {
		out, ok := as(t, alice, "/", m.Bin+" "+args+" "+m.Store)
		if ok {
			t.Errorf("another user could ask for %s: %s", args, out)
		}
		mounttest.WantSaid(t, out, "user 0")
	}
	if !m.Mounted() {
		t.Error("another user unmounted it")
	}
	m.Must(m.Stop())
	if _, err := os.Stat(filepath.Join(m.Store, "control.sock")); err == nil {
		t.Error("the socket outlives the daemon")
	}
}

// TestLinksOutOfTheStore: what is a symbolic link in a store's own folder is not followed.
func TestLinksOutOfTheStore(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	m.Must(m.Stop())
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	for _, name := range []string{"segments", "tree", "lost+found", "index.db", "lock", "log", "format"} {
		own, away := filepath.Join(m.Store, name), filepath.Join(outside, name)
		m.Must(os.WriteFile(victim, []byte("mine"), 0o600))
		_, err := os.Lstat(own)
		there := err == nil
		if there {
			m.Must(os.Rename(own, away))
			m.Must(os.Symlink(away, own))
		} else {
			m.Must(os.Symlink(victim, own))
		}
		for _, args := range [][]string{{"mount", m.Store, m.Dir}, {"stats", m.Store}, {"sync", m.Store}} {
			said, code := m.RunFails(args...)
			if code != exitDamaged {
				t.Errorf("%s with %s a link: exit status %d: %s", args[0], name, code, said)
			}
			mounttest.WantSaid(t, said, own, "symbolic link")
		}
		m.Must(os.Remove(own))
		if there {
			m.Must(os.Rename(away, own))
		}
		if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" {
			t.Errorf("what the link %s led to was written: %q, %v", name, b, err)
		}
	}
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, mib))
}

// TestPathsOfRequests: no path of a request leads out of the mount.
func TestPathsOfRequests(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("dir/x", mounttest.Noise(1, mib))
	outside := t.TempDir()
	m.Must(os.WriteFile(filepath.Join(outside, "secret"), mounttest.Noise(2, mib), 0o600))
	m.Must(os.Symlink(outside, m.Path("out")))
	m.Must(os.Symlink(filepath.Join(outside, "secret"), m.Path("dir/secret")))
	m.Must(os.Symlink("dir", m.Path("in")))
	m.Sync()
	ask := m.Asker()
	for _, path := range []string{"out/secret", "dir/secret", "../../../../../../../../" + outside + "/secret", outside + "/secret", "dir/../out/secret", "\x00", strings.Repeat("x/", 5000)} {
		if code, body := ask("GET", "show", path); code == http.StatusOK {
			var f struct {
				Size int64
				Path string
			}
			if m.Must(json.Unmarshal([]byte(body), &f)); f.Size == mib {
				t.Errorf("show %q went outside: %s", path, body)
			}
		}
		for _, verb := range []string{"evict", "hydrate"} {
			if _, body := ask("POST", verb, path); strings.Contains(body, `"files":1`) {
				t.Errorf("%s %q: %s", verb, path, body)
			}
		}
	}
	if code, body := ask("GET", "show", "../dir/./x"); code != http.StatusOK {
		t.Errorf("a path that is only odd: %d: %s", code, body)
	}
	// The command line resolves links as any program does, and stays in the mount.
	if f := m.Show("in/x"); f.Size != mib {
		t.Errorf("by a link within the mount: %+v", f)
	}
	if said, code := m.RunFails("show", m.Path("out/secret")); code != exitNotStore {
		t.Errorf("by a link out of the mount: exit status %d: %s", code, said)
	}
}
