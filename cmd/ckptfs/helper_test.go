package main

import (
	"bytes"
	"strings"
	"testing"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place/placetest"
)

func TestHelperCommandLines(t *testing.T) {
	commands := (&app{}).root().Commands()
	for _, tc := range []struct{ called, want string }{ // want "" is no helper
		{"/sbin/mount.fuse.ckptfs /s /m -o rw,hot_size=1G", "mount -o rw,hot_size=1G -- /s /m"},
		{"mount.ckptfs /s /m", "mount -- /s /m"},
		{"mount.ckptfs /s /m -sfnv -N /proc/1/ns/mnt -t fuse.ckptfs -o a -o b", "mount --sloppy --fake -o a -o b -- /s /m"},
		{"mount.ckptfs -r -o rw -- -s /m", "mount -o rw -o ro -- -s /m"},
		{"umount.fuse.ckptfs /m -t fuse.ckptfs", "umount --no-wait -- /m"},
		{"umount.ckptfs /m -lnrv", "umount --no-wait --lazy -- /m"},
		{"umount.ckptfs -f /m", "umount --no-wait --force -- /m"},
		{"ckptfs /s /m -o rw,dev,suid", "mount -o rw,dev,suid -- /s /m"},
		{"ckptfs mount /s /m", ""},
		{"ckptfs mount /s -o rw", ""},
		{"ckptfs unmount /s -o rw", ""},
		{"ckptfs --json mount -o rw", ""},
	} {
		argv := strings.Fields(tc.called)
		h, err := asHelper(argv[0], argv[1:], commands)
		if err != nil {
			t.Errorf("%s: %v", tc.called, err)
			continue
		}
		got := ""
		if h != nil {
			got = strings.Join(h.args, " ")
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.called, got, tc.want)
		}
	}
	if h, err := asHelper("umount.ckptfs", []string{"/m", "-lv"}, commands); err != nil || !h.verbose {
		t.Errorf("-v: %+v, %v", h, err)
	}
	if _, err := asHelper("mount.ckptfs", []string{"-q"}, commands); err == nil {
		t.Error("an option that mount(8) does not have is taken")
	}
}

func TestHelperExitCodes(t *testing.T) {
	store := placetest.MakeStore(t)
	for _, tc := range []struct {
		argv []string
		code int
		says string
	}{
		{[]string{"mount.ckptfs", "-q"}, mountUsage, "mount.ckptfs: unknown shorthand"},
		{[]string{"mount.ckptfs", store}, mountUsage, "mount takes STORE MOUNTPOINT"},
		{[]string{"mount.ckptfs", store, "/", "-o", "speed=11"}, mountUsage, "speed=11"},
		{[]string{"mount.ckptfs", store, store + "/none"}, mountFailed, "does not exist"},
		{[]string{"umount.ckptfs", store}, mountFailed, "is not mounted"},
		{[]string{"ckptfs", "umount", store}, exit.NotStore, "is not mounted"},
	} {
		var out, errs bytes.Buffer
		if code := start(t.Context(), tc.argv, &out, &errs); code != tc.code ||
			!strings.Contains(errs.String(), tc.says) || out.Len() > 0 {
			t.Errorf("%v: exit %d, %s%s", tc.argv, code, out.String(), errs.String())
		}
	}
}
