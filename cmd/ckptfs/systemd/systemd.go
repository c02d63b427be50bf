// Package systemd tells the service manager how the daemon is.
package systemd

import (
	"net"
	"os"
	"strings"
)

// Notify tells the service manager how things stand, if one asked to be told (systemd's Type=notify: a
// datagram of lines NAME=value to the socket in NOTIFY_SOCKET). Nothing depends on its being heard.
func Notify(lines ...string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if path[0] == '@' {
		path = "\x00" + path[1:] // an abstract name
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte(strings.Join(lines, "\n")))
}
