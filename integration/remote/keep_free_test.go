package remote

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// A mount whose disk gets short since others' files are read leaves to the remote what is published, and
// nothing else.
func TestKeepFree(t *testing.T) {
	const keep = 150 << 20
	e := mounttest.StartEngine(t)
	a := joined(t, e, "team", "a")
	disk := mounttest.NewDisk(t, "ext4", 400<<20)
	b := mounttest.PrepareOn(disk, "--push", "manual", "--remote-poll", "24h", "--remote-cache", "200M",
		"--keep-free", fmt.Sprint(keep))
	b.Bin = mounttest.BuildWith(t, "fault") // published files rest after a second
	b.Must(b.Start())
	b.Join(e, "team", "b")

	own := func(i int) string { return b.Path("runs/own", fmt.Sprint(i), "model.bin") }
	for i := range 4 {
		save(t, own(i), random(30<<20, byte(i)))
	}
	b.Run("push", b.Dir)
	mine, outside := b.Path("runs/mine/1/model.bin"), b.Path("outside/model.bin")
	save(t, mine, random(20<<20, 10))
	save(t, outside, random(20<<20, 11))
	b.Sync()
	b.EvictAll()
	other := func(i int) string { return fmt.Sprintf("runs/other/%d/model.bin", i) }
	for i := range 4 {
		save(t, a.Path(other(i)), random(30<<20, byte(20+i)))
	}
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)
	free := func() int64 {
		var st unix.Statfs_t
		b.Must(unix.Statfs(disk.Dir, &st))
		return int64(st.Bavail) * st.Bsize
	}
	if free() < keep {
		t.Fatalf("%d bytes are free before anything is read", free())
	}
	for i := range 4 {
		same(t, b.Path(other(i)), random(30<<20, byte(20+i)))
	}
	isDropped := func(i int) bool { return remoteState(own(i)) == "remote" }
	b.Must(daemon.Until("a published file to be dropped, and the disk to have room", func() bool {
		return free() >= keep && (isDropped(0) || isDropped(1) || isDropped(2) || isDropped(3))
	}))
	for i := range 4 {
		same(t, own(i), random(30<<20, byte(i)))
	}
	for p, want := range map[string]string{mine: "pending", outside: "no"} {
		if is := remoteState(p); is != want {
			t.Errorf("%s is %s", p, is)
		}
	}
	e.Kill()
	same(t, mine, random(20<<20, 10))
	same(t, outside, random(20<<20, 11))
}
