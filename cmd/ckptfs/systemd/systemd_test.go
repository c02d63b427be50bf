package systemd_test

import (
	"net"
	"path/filepath"
	"testing"

	"ckptfs/cmd/ckptfs/systemd"
)

func TestNotify(t *testing.T) {
	systemd.Notify("READY=1") // nobody asked
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	systemd.Notify("READY=1", "STATUS=there")
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err != nil || string(b[:n]) != "READY=1\nSTATUS=there" {
		t.Errorf("%q, %v", b[:n], err)
	}
	t.Setenv("NOTIFY_SOCKET", path+".none")
	systemd.Notify("STOPPING=1") // and nobody listens
}
