package control

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel who is at the other end. The pid is 0 when that process is in a pid namespace that
// this one cannot see.
func peerOf(c net.Conn) (*unix.Ucred, error) {
	var cred *unix.Ucred
	err := onSocket(c, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	return cred, err
}

// sendBuffer is what the kernel keeps of an answer that was sent and not read yet. Where many processes wait
// for processors, an answer takes as long as it takes turns: with the usual 208 KiB, a log of 50,000 steps
// takes more than a hundred.
const sendBuffer = 4 << 20

// roomToSend has the kernel keep so much, as only root may. Else it keeps what it allows to all.
func roomToSend(c net.Conn) {
	_ = onSocket(c, func(fd int) error {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) == nil {
			return nil
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	})
}

func onSocket(c net.Conn, do func(fd int) error) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("a %T is no unix socket", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	var derr error
	if err := raw.Control(func(fd uintptr) { derr = do(int(fd)) }); err != nil {
		return err
	}
	return derr
}
