package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// troubles make each error that docs/trouble.md has a heading for, and return what was printed.
var troubles = map[string]func(t *testing.T) string{
	"Transport endpoint is not connected": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Write("f", []byte("x"))
		m.Kill()
		said := printed(t, nil, "cat", m.Path("f"))
		m.Must(m.Start())
		m.Want("f", []byte("x"))
		return said
	},
	"No space left on device": func(t *testing.T) string {
		d := mounttest.NewDisk(t, "ext4", 64<<20)
		m := mounttest.PrepareOn(d)
		m.Must(m.Start())
		defer os.Remove(m.Path("f")) // so that it unmounts in order
		return printed(t, nil, "dd", "if=/dev/urandom", "of="+m.Path("f"), "bs=1M", "count=100")
	},
	"Input/output error": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Write("f", mounttest.Noise(1, 1<<20))
		m.EvictAll()
		m.Must(m.Stop())
		m.Sh("cp -r " + m.Store + " " + m.Store + ".copy")
		copied := mounttest.Prepare(t, t.TempDir())
		copied.Store = m.Store + ".copy"
		copied.Must(copied.Start())
		return printed(t, nil, "cat", copied.Path("f"))
	},
	"target is busy": func(t *testing.T) string {
		mounttest.NeedRoot(t, "umount(8)")
		m := mounttest.New(t)
		m.Write("f", []byte("x"))
		f, err := os.Open(m.Path("f"))
		m.Must(err)
		defer f.Close()
		return printed(t, nil, "umount", m.Dir)
	},
	"run the command again once nothing uses it": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Write("f", []byte("x"))
		f, err := os.Open(m.Path("f"))
		m.Must(err)
		defer f.Close()
		return printed(t, nil, m.Bin, "leave", m.Dir)
	},
	"are on different disks": func(t *testing.T) string {
		other := mounttest.MountDisk(t, "tmpfs", 1)
		m := mounttest.New(t)
		m.Write("f", []byte("x"))
		return printed(t, nil, m.Bin, "leave", m.Store, filepath.Join(other, "out"))
	},
	"move that away, or name a new folder": func(t *testing.T) string {
		m, full := mounttest.New(t), t.TempDir()
		m.Write("f", []byte("x"))
		m.Must(os.WriteFile(filepath.Join(full, "x"), nil, 0o600))
		return printed(t, nil, m.Bin, "leave", m.Store, full)
	},
	"is there already": func(t *testing.T) string {
		m, dir := mounttest.New(t), t.TempDir()
		m.Must(os.Mkdir(m.Path("models"), 0o755))
		m.Must(os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600))
		return printed(t, nil, m.Bin, "adopt", dir, "--into", m.Path("models"))
	},
	"and did not end": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Write("f", []byte("x"))
		m.Must(m.Stop())
		journal := `{"way":"leave","dir":"` + m.Dir + `","ino":1}`
		m.Must(os.WriteFile(filepath.Join(m.Store, "moving"), []byte(journal), 0o600))
		return printed(t, nil, m.Bin, "adopt", "--store", m.Store, m.Dir)
	},
	"has files already": func(t *testing.T) string {
		m, dir := mounttest.New(t), t.TempDir()
		m.Write("f", []byte("x"))
		m.Must(m.Stop())
		m.Must(os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600))
		return printed(t, nil, m.Bin, "adopt", "--store", m.Store, dir)
	},
	"have names outside of the folder": func(t *testing.T) string {
		m := mounttest.Prepare(t, t.TempDir())
		m.Write("f", []byte("x"))
		m.Must(os.Link(m.Path("f"), filepath.Join(filepath.Dir(m.Dir), "other")))
		return printed(t, nil, m.Bin, "adopt", "--store", m.Store, m.Dir)
	},
	"does not answer: it died": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Kill()
		said := printed(t, nil, m.Bin, "stats", m.Dir)
		m.Must(m.Start())
		return said
	},
	"needs user_allow_other": notOthers,
	"was not closed in order": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Write("f", []byte("x"))
		m.Kill()
		said := printed(t, nil, m.Bin, "mount", "--read-only", m.Store, t.TempDir())
		m.Must(m.Start())
		return said
	},
	"being written": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
		f, err := os.Create(m.Path("runs/a/1/m.pt"))
		m.Must(err)
		defer f.Close()
		_, err = f.WriteString("x")
		m.Must(err)
		return printed(t, nil, m.Bin, "runs", m.Dir)
	},
	"is mounted on": func(t *testing.T) string {
		m := mounttest.New(t)
		return printed(t, nil, m.Bin, "mount", m.Store, t.TempDir())
	},
	"Stale file handle": func(t *testing.T) string {
		m := mounttest.New(t)
		saved, err := os.ReadFile("../../formats/testdata/same/model.pt")
		m.Must(err)
		m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
		m.Write("runs/a/1/m.pt", saved)
		view, err := os.Open(m.Path("runs/a/1/m.safetensors"))
		m.Must(err)
		defer view.Close()
		m.Write("runs/a/1/m.pt", saved)
		return printed(t, view, "cat")
	},
	"Read-only file system": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Must(m.Stop())
		m.Flags = append(m.Flags, "--read-only")
		m.Must(m.Start())
		return printed(t, nil, "touch", m.Path("f"))
	},
	"ckptfs: packed, read it through the mount of its store": func(t *testing.T) string {
		m := mounttest.New(t)
		m.Write("f", mounttest.Noise(1, 1<<20))
		m.EvictAll()
		return printed(t, nil, "head", "-c", "100", filepath.Join(m.Store, "tree", "f"))
	},
	"no such file or directory": func(t *testing.T) string {
		m := mounttest.New(t)
		return printed(t, nil, m.Bin, "prune", m.Path("nope"))
	},
	"in no ckptfs mount": func(t *testing.T) string {
		return printed(t, nil, mounttest.Bin, "stats", t.TempDir())
	},
	"there is no /dev/fuse":                        noDevice,
	"there is no fusermount3":                      noHelper,
	"fusermount3: mount failed: Permission denied": denied,
	"only the store's owner and root may ask for it": func(t *testing.T) string {
		mounttest.NeedRoot(t, "another user")
		dir, err := os.MkdirTemp("", "ckptfs-trouble-") // t.TempDir lies below a folder that is root's alone
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		m := mounttest.Prepare(t, dir, "--allow-other")
		m.Must(os.Chmod(dir, 0o755))
		m.Must(m.Start())
		nobody := strconv.Itoa(mounttest.Nobody)
		return printed(t, nil, "setpriv", "--reuid", nobody, "--clear-groups", m.Bin, "stats", m.Dir)
	},
}

// noDevice, noHelper and denied are what keeps users from mounting.
func noDevice(t *testing.T) string {
	mounttest.NeedRoot(t, "a root without devices")
	m := mounttest.Prepare(t, t.TempDir())
	return printed(t, nil, "unshare", "--mount", "sh", "-ec", alone+`
mount -t tmpfs none /dev
exec "$0" mount "$1" "$2"`, m.Bin, m.Store, m.Dir)
}

func noHelper(t *testing.T) string {
	m := ofNobody(t)
	return printed(t, nil, "setpriv", append(nobodys, "env", "PATH=/nonexistent", m.Bin, "mount", m.Store,
		m.Dir)...)
}

// denied has another program in the place of fusermount3, which says what that says under AppArmor.
func denied(t *testing.T) string {
	m := ofNobody(t)
	bin := openDir(t)
	helper := filepath.Join(bin, "fusermount3")
	script := "#!/bin/sh\necho \"$0: mount failed: Permission denied\" >&2\nexit 1\n"
	m.Must(os.WriteFile(helper, []byte(script), 0o755))
	m.Must(os.Chmod(helper, 0o755|os.ModeSetuid))
	return printed(t, nil, "setpriv", append(nobodys, "env", "PATH="+bin, m.Bin, "mount", m.Store, m.Dir)...)
}

// notOthers has a folder adopted by a user who may not let others see a mount.
func notOthers(t *testing.T) string {
	m := ofNobody(t)
	return printed(t, nil, "unshare", append([]string{"--mount", "sh", "-ec", alone + `
mount --bind /dev/null /etc/fuse.conf
bin=$0 store=$1 dir=$2
shift 2
"$@" "$bin" adopt --store "$store" "$dir"
"$@" "$bin" leave "$dir"`, m.Bin, m.Store, m.Dir, "setpriv"}, nobodys...)...)
}

// printed is what a program printed, to either end.
func printed(t *testing.T, stdin *os.File, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if stdin != nil {
		cmd.Stdin = stdin
	}
	out, err := cmd.CombinedOutput()
	if len(out) == 0 {
		t.Fatalf("%s %s: %v, and nothing was printed", name, strings.Join(args, " "), err)
	}
	return string(out)
}

// TestTrouble: the headings of docs/trouble.md are the texts that people see and search for.
func TestTrouble(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/trouble.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for _, h := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1) {
		headings = append(headings, h[1])
		if troubles[h[1]] == nil {
			t.Errorf("docs/trouble.md has %q, which nothing makes here", h[1])
		}
	}
	for text, trouble := range troubles {
		t.Run(text, func(t *testing.T) {
			if !slices.Contains(headings, text) {
				t.Error("docs/trouble.md has no such heading")
			}
			if said := trouble(t); !strings.Contains(said, text) {
				t.Errorf("it prints:\n%s", said)
			}
		})
	}
}
