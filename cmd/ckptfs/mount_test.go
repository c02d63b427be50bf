package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// parseMount runs the mount command's own flags and options up to the point where it would mount.
func parseMount(args ...string) (*cobra.Command, error) {
	cmd := (&app{}).mountCmd()
	c := &mountConfig{}
	if err := cmd.ParseFlags(args); err != nil {
		return cmd, err
	}
	c.options, _ = cmd.Flags().GetStringArray("options")
	return cmd, c.applyOptions(cmd.Flags())
}

func TestMountOptions(t *testing.T) {
	cmd, err := parseMount("--hot-size=1G", "-o", "rw,noatime,hot_size=2G,cache_size=64MiB,no_views", "-o", "allow_other,x-systemd.automount,log-format=json")
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"hot-size":   "1G", // given by itself: goes before
		"cache-size": "64MiB", "no-views": "true", "allow-other": "true", "no-passthrough": "false", "log-format": "json",
	} {
		if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("%s is %s, want %s", flag, got, want)
		}
	}
	for _, bad := range []string{"speed=11", "hot_size", "hot_size=much", "foreground", "ro"} {
		if _, err := parseMount("-o", bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("-o %s: %v", bad, err)
		}
	}
}

func TestCheckMountpoint(t *testing.T) {
	dir := realDir(t)
	store := filepath.Join(dir, "store")
	for _, d := range []string{"mnt", "taken", "full", "store/inside", "above"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	makeFile(t, dir+"/full/x", "")
	makeFile(t, dir+"/file", "")
	mounts := mountTable(t, "/ / ext4 /dev/sda", "/ "+dir+"/taken fuse.ckptfs /other/store", "/ "+dir+"/full ext4 /dev/sdb")
	for _, tc := range []struct {
		mountpoint, says string
		code             int
	}{
		{"mnt", "", exitOK},
		{"full", "", exitOK},
		{"missing", "does not exist: `mkdir -p ", exitFailure},
		{"file", "is not a directory", exitFailure},
		{"taken", "/other/store is mounted there already", exitBusy},
		{"store", "lies in the store", exitFailure},
		{"store/inside", "lies in the store", exitFailure},
		{".", "which would cover it", exitFailure},
	} {
		c := &mountConfig{}
		if err := c.setPlaces(store, filepath.Join(dir, tc.mountpoint)); err != nil {
			t.Fatal(err)
		}
		err := (&app{}).checkMountpoint(t.Context(), c, mounts)
		if exitCode(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v (%d)", tc.mountpoint, err, exitCode(err))
		}
	}
}

func TestCheckStore(t *testing.T) {
	dir := realDir(t)
	makeFile(t, dir+"/file", "")
	makeFile(t, dir+"/newer/format", "ckptfs 999\n")
	makeFile(t, dir+"/broken/format", "ckptfs one\n")
	mounted := serveShelf(t, &shelf{})
	mounts := mountTable(t, "/ / ext4 /dev/sda", "/ /mnt/there fuse.ckptfs "+mounted, "/ /mnt/dead fuse.ckptfs "+dir+"/dead")
	if err := os.Mkdir(dir+"/dead", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		store, says string
		code        int
	}{
		{dir + "/new", "", exitOK},
		{dir + "/dead", "", exitOK}, // the lock decides
		{dir + "/no/parent", "there is no folder", exitNotStore},
		{dir + "/file", "is not a directory", exitNotStore},
		{dir + "/newer", "newer version", exitNewer},
		{dir + "/broken", "corrupt", exitDamaged},
		{mounted, "is mounted on /mnt/there already, by process ", exitBusy},
	} {
		err := checkStore(t.Context(), &mountConfig{store: tc.store}, mounts)
		if exitCode(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v (%d)", tc.store, err, exitCode(err))
		}
	}
}

func TestCheckFUSE(t *testing.T) {
	err := checkFUSE(filepath.Join(t.TempDir(), "fuse"))
	if err == nil || !strings.Contains(err.Error(), "modprobe fuse") || !strings.Contains(err.Error(), "--device /dev/fuse") {
		t.Errorf("%v", err)
	}
}

func TestHolders(t *testing.T) {
	proc := t.TempDir()
	link := func(name, to string) {
		t.Helper()
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	makeFile(t, proc+"/10/comm", "bash\n")
	link("10/cwd", "/mnt/ckpt/runs")
	makeFile(t, proc+"/11/comm", "python3\n")
	link("11/cwd", "/mnt/ckpt2")
	link("11/fd/0", "/dev/null")
	link("11/fd/3", "/mnt/ckpt/runs/a/model.pt")
	makeFile(t, proc+"/12/comm", "reader\n")
	makeFile(t, proc+"/12/maps", "7f00-7f01 r--p 00000000 00:2a 12   /mnt/ckpt/model.pt\n")
	makeFile(t, proc+"/13/comm", "idle\n")
	makeFile(t, proc+"/13/maps", "7f00-7f01 r--p 00000000 00:2a 12   /usr/lib/libc.so\n7f02-7f03 rw-p 0 00:00 0\n")
	makeFile(t, proc+"/self/comm", "not a number\n")

	got := strings.Join(holders(proc, "/mnt/ckpt"), ", ")
	if want := "bash (10: cwd), python3 (11: open runs/a/model.pt), reader (12: mapped model.pt)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLogWriterKeepsTheEarly(t *testing.T) {
	var b strings.Builder
	lw := &logWriter{}
	log := newLogger(lw, "json", "warn")
	log.Warn("early")
	log.Info("not wanted")
	if b.Len() > 0 {
		t.Fatal("written before there was a place for it")
	}
	lw.attach(&b)
	log.Error("late")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"early"`) || !strings.Contains(lines[1], `"late"`) {
		t.Errorf("%q", lines)
	}
}
