package nofuse

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func says(t *testing.T, err error, words ...string) {
	t.Helper()
	var no *Error
	if !errors.As(err, &no) {
		t.Fatalf("%v is no Error", err)
	}
	for _, w := range append(words, "ckptfs ls|cat|cp|export") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v: does not say %q", err, w)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	says(t, Check(filepath.Join(dir, "fuse"), "", false), "modprobe fuse", "--device /dev/fuse")
	for conf, want := range map[string]bool{"": false, "#user_allow_other\n": false,
		"mount_max = 10\n user_allow_other\n": true} {
		write(t, dir+"/fuse.conf", conf)
		if got := allowsOthers(dir + "/fuse.conf"); got != want {
			t.Errorf("%q allows others: %v", conf, got)
		}
	}
}

func TestRefused(t *testing.T) {
	const nobody, unnamed, denied = 65534, 4242424, "fusermount3: mount failed: Permission denied"
	root := t.TempDir() + "/"
	says(t, refused("/data/mnt", denied, 0, root), denied, "CAP_SYS_ADMIN", "--cap-add SYS_ADMIN")
	says(t, refused("/data/mnt", denied, unnamed, root), "user 4242424 has none in /etc/passwd")
	if err := refused("/data/mnt", denied, nobody, root); strings.Contains(err.Error(), "AppArmor") {
		t.Errorf("without AppArmor: %v", err)
	}
	write(t, root+profile, "")
	if err := refused("/data/mnt", denied, nobody, root); strings.Contains(err.Error(), "AppArmor") {
		t.Errorf("with AppArmor off: %v", err)
	}
	write(t, root+"sys/module/apparmor/parameters/enabled", "Y\n")
	says(t, refused("/data/mnt", denied, nobody, root), "AppArmor", "-> /data/mnt/,", "umount /data/mnt/,",
		"apparmor_parser -r /etc/apparmor.d/fusermount3")
}
