package control

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel who is at the other end. The pid is 0 when that process is in a pid namespace that
// this one cannot see.
func peerOf(c net.Conn) (*unix.Ucred, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("a %T has no peer credentials", c)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}
