package holder

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// The kinds of datagrams.
const (
	msgHold   = 'H'
	msgKeep   = 'K'
	msgDrop   = 'D'
	msgReady  = 'R'
	msgNext   = 'N'
	msgWrites = 'W'
	msgTake   = 'T'
	msgKept   = 'k'
	msgGo     = 'G'
)

// mostKept is how many descriptors one Kept carries; the kernel takes up to 253.
const mostKept = 128

// datagram is one message.
type datagram struct {
	kind byte
	body []byte // what follows the kind
	fds  []int
	lost bool // not all of its descriptors found a place in this process; then fds is empty
}

func (d *datagram) close() {
	for _, fd := range d.fds {
		unix.Close(fd)
	}
	d.fds = nil
}

// id is the number at the start of the body.
func (d *datagram) id() (uint64, bool) {
	if len(d.body) < 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(d.body), true
}

// send sends d. The descriptors stay open here.
func (d *datagram) send(sock, flags int) error {
	var space [1 + 8]byte
	p := append(append(space[:0], d.kind), d.body...)
	var rights []byte
	if len(d.fds) > 0 {
		rights = unix.UnixRights(d.fds...)
	}
	for {
		err := unix.Sendmsg(sock, p, rights, nil, flags|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// receive receives one datagram with up to most descriptors, which are closed on exec. The error at the end
// of the link is EPIPE.
func receive(sock, most, flags int) (datagram, error) {
	p := make([]byte, 1+8*max(4, most))
	rights := make([]byte, unix.CmsgSpace(4*most))
	var n, rn, got int
	for {
		var err error
		n, rn, got, _, err = unix.Recvmsg(sock, p, rights, flags|unix.MSG_CMSG_CLOEXEC)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return datagram{}, err
		}
	}
	var d datagram
	if msgs, err := unix.ParseSocketControlMessage(rights[:rn]); err == nil {
		for i := range msgs {
			if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
				d.fds = append(d.fds, fds...)
			}
		}
	}
	if got&unix.MSG_CTRUNC != 0 {
		d.lost = true
		d.close() // some of them are no use
	}
	if n == 0 { // no message is empty
		d.close()
		return datagram{}, unix.EPIPE
	}
	d.kind, d.body = p[0], p[1:n]
	return d, nil
}

// take is the fields of a Take.
type take struct {
	status          unix.WaitStatus
	tries           uint32
	ended, unserved time.Duration // of CLOCK_MONOTONIC
}

func (t take) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(t.status))
	b = binary.LittleEndian.AppendUint32(b, t.tries)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.ended))
	return binary.LittleEndian.AppendUint64(b, uint64(t.unserved))
}

func decodeTake(b []byte) (take, bool) {
	if len(b) < 24 {
		return take{}, false
	}
	return take{
		status:   unix.WaitStatus(binary.LittleEndian.Uint32(b)),
		tries:    binary.LittleEndian.Uint32(b[4:]),
		ended:    time.Duration(binary.LittleEndian.Uint64(b[8:])),
		unserved: time.Duration(binary.LittleEndian.Uint64(b[16:])),
	}, true
}
