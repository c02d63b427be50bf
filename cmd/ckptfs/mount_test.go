package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/logs"
	"ckptfs/cmd/ckptfs/place/placetest"
	"ckptfs/fs/tree"
)

// parseMount runs the mount command's own flags and options up to the point where it would mount.
func parseMount(args ...string) (*cobra.Command, error) {
	cmd := (&app{}).mountCmd()
	c := &mountConfig{}
	if err := cmd.ParseFlags(args); err != nil {
		return cmd, err
	}
	c.options, _ = cmd.Flags().GetStringArray("options")
	c.sloppy, _ = cmd.Flags().GetBool("sloppy")
	return cmd, c.applyOptions(cmd.Flags())
}

func TestMountOptions(t *testing.T) {
	cmd, err := parseMount("--hot-size=1G", "-o", "rw,noatime,hot_size=2G,cache_size=64MiB,no_views", "-o", "allow_other,x-systemd.automount,log-format=json")
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"hot-size":   "1G", // given by itself: goes before
		"cache-size": "64MiB", "no-views": "true", "allow-other": "true", "no-passthrough": "false",
		"log-format": "json",
	} {
		if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("%s is %s, want %s", flag, got, want)
		}
	}
	if _, err := parseMount("-o", "speed=11", "--sloppy"); err != nil {
		t.Errorf("--sloppy: %v", err)
	}
	for _, bad := range []string{"speed=11", "hot_size", "hot_size=much", "foreground", "remount"} {
		if _, err := parseMount("-o", bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("-o %s: %v", bad, err)
		}
	}
}

func TestCheckMountpoint(t *testing.T) {
	dir := placetest.RealDir(t)
	store := filepath.Join(dir, "store")
	for _, d := range []string{"mnt", "taken", "store/inside", "above"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	placetest.MakeFile(t, dir+"/full/x", "")
	placetest.MakeFile(t, dir+"/file", "")
	mounts := placetest.MountTable(t, "/ / ext4 /dev/sda", "/ "+dir+"/taken fuse.ckptfs /other/store", "/ "+dir+"/full ext4 /dev/sdb")
	for _, tc := range []struct {
		mountpoint, says string
		code             int
	}{
		{"mnt", "", exit.OK},
		{"full", `"x" is in it`, exit.Mountpoint},
		{"missing", "does not exist: `mkdir -p ", exit.Mountpoint},
		{"file", "is not a directory", exit.Mountpoint},
		{"taken", "/other/store is mounted there already", exit.Busy},
		{"store", "is to be the store and the mountpoint", exit.Mountpoint},
		{"store/inside", "lies in the store", exit.Mountpoint},
		{".", "which would cover it", exit.Mountpoint},
	} {
		c := &mountConfig{}
		if err := c.setPlaces(store, filepath.Join(dir, tc.mountpoint)); err != nil {
			t.Fatal(err)
		}
		err := (&app{}).checkMountpoint(t.Context(), c, mounts)
		if exit.Code(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v (%d)", tc.mountpoint, err, exit.Code(err))
		}
	}
	c := &mountConfig{nonEmpty: true}
	if err := c.setPlaces(store, dir+"/full"); err != nil {
		t.Fatal(err)
	}
	if err := (&app{}).checkMountpoint(t.Context(), c, mounts); err != nil {
		t.Errorf("--non-empty: %v", err)
	}
	for name, says := range map[string]string{
		"made": "", "mnt": "", "file": "is not a directory", "store/made": "does not exist", "no/parent": "no such file",
	} {
		c := &mountConfig{mkdir: true}
		if err := c.setPlaces(store, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		err := (&app{}).checkMountpoint(t.Context(), c, mounts)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("--mkdir %s: %v", name, err)
		}
	}
	if _, err := os.Stat(store + "/made"); err == nil {
		t.Error("--mkdir makes a folder in the store")
	}
}

func TestCheckStore(t *testing.T) {
	dir := placetest.RealDir(t)
	placetest.MakeFile(t, dir+"/file", "")
	placetest.MakeFile(t, dir+"/newer/format", "ckptfs 999\n")
	placetest.MakeFile(t, dir+"/broken/format", "ckptfs one\n")
	mounted := serveShelf(t, &shelf{})
	mounts := placetest.MountTable(t, "/ / ext4 /dev/sda", "/ /mnt/there fuse.ckptfs "+mounted, "/ /mnt/dead fuse.ckptfs "+dir+"/dead")
	if err := os.Mkdir(dir+"/dead", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		store, says string
		code        int
	}{
		{dir + "/new", "", exit.OK},
		{dir + "/dead", "", exit.OK}, // the lock decides
		{dir + "/no/parent", "there is no folder", exit.NotStore},
		{dir + "/file", "is not a directory", exit.NotStore},
		{dir + "/newer", "newer version", exit.Newer},
		{dir + "/broken", "corrupt", exit.Damaged},
		{mounted, "is mounted on /mnt/there already, by process ", exit.Busy},
	} {
		err := (&app{}).checkStore(t.Context(), &mountConfig{store: tc.store}, mounts)
		if exit.Code(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v (%d)", tc.store, err, exit.Code(err))
		}
	}
}

// A store that was copied without its attributes is told of, with the repair, and mounted.
func TestLostAttributesAreTold(t *testing.T) {
	store := packedStore(t)
	ckptfs(t, exit.OK, "evict", store)
	check := func() string {
		var said strings.Builder
		if err := (&app{err: &said}).checkStore(t.Context(), &mountConfig{store: store}, nil); err != nil {
			t.Error(err)
		}
		return said.String()
	}
	if said := check(); said != "" {
		t.Error(said)
	}
	if err := unix.Removexattr(filepath.Join(store, "tree", "kept"), tree.XattrName); err != nil {
		t.Fatal(err)
	}
	if said := check(); !strings.Contains(said, "tree/kept") || !strings.Contains(said, "`ckptfs repair tree "+store+"`") {
		t.Errorf("%q", said)
	}
}

func TestLogWriterKeepsTheEarly(t *testing.T) {
	var b strings.Builder
	lw := &logs.Writer{}
	log := logs.New(lw, "json", "warn")
	log.Warn("early")
	log.Info("not wanted")
	if b.Len() > 0 {
		t.Fatal("written before there was a place for it")
	}
	lw.Attach(&b)
	log.Error("late")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"early"`) || !strings.Contains(lines[1], `"late"`) {
		t.Errorf("%q", lines)
	}
}
