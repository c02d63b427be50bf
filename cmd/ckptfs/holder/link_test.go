package holder

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (int, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// A daemon without a holder needs no special cases.
func TestNilLink(t *testing.T) {
	l, err := Connect()
	if l != nil || err != nil {
		t.Fatal(l, err)
	}
	if err := errors.Join(l.Hold(0, 0), l.Keep(1, 0), l.Drop(1), l.Ready(), l.Next(0)); err != nil {
		t.Error(err)
	}
	if l.Taken() != nil || l.Lost() != nil {
		t.Error("a nil link has something")
	}
}

func TestConnectRefuses(t *testing.T) {
	for _, value := range []string{"", "x", "1", "99999"} {
		t.Setenv(fdEnv, value)
		if l, err := Connect(); l != nil || err == nil {
			t.Errorf("%q is a link", value)
		}
		if _, ok := os.LookupEnv(fdEnv); ok {
			t.Errorf("%s is left", fdEnv)
		}
	}
}

// The bytes of the package comment.
func TestDatagrams(t *testing.T) {
	here, there := pair(t)
	defer unix.Close(here)
	defer unix.Close(there)
	l := &Link{sock: here}
	for _, c := range []struct {
		send func() error
		want []byte
		fds  int
	}{
		{func() error { return l.Hold(0, 1) }, []byte{0x48}, 2},
		{func() error { return l.Keep(0x0102030405060708, 0) }, []byte{0x4b, 8, 7, 6, 5, 4, 3, 2, 1}, 1},
		{func() error { return l.Drop(1) }, []byte{0x44, 1, 0, 0, 0, 0, 0, 0, 0}, 0},
		{l.Ready, []byte{0x52}, 0},
		{func() error { return l.Next(0) }, []byte{0x4e}, 1},
		{func() error {
			d := datagram{kind: msgTake, body: take{9, 2, time.Second, 3}.encode(), fds: []int{0, 1}}
			return d.send(here, 0)
		}, []byte{0x54, 9, 0, 0, 0, 2, 0, 0, 0, 0, 0xca, 0x9a, 0x3b, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, 2},
		{func() error {
			d := (&custody{kept: map[uint64]int{258: 0}}).keptDatagrams()[0]
			return d.send(here, 0)
		}, []byte{0x6b, 2, 1, 0, 0, 0, 0, 0, 0}, 1},
		{func() error { return (&datagram{kind: msgGo}).send(here, 0) }, []byte{0x47}, 0},
	} {
		if err := c.send(); err != nil {
			t.Fatal(err)
		}
		d, err := receive(there, mostKept, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := append([]byte{d.kind}, d.body...)
		if !bytes.Equal(got, c.want) || len(d.fds) != c.fds || d.lost {
			t.Errorf("%x with %d descriptors, not %x with %d", got, len(d.fds), c.want, c.fds)
		}
		for _, fd := range d.fds {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor %d: flags %x, %v", fd, flags, err)
			}
		}
		d.close()
	}
}

// What a dead daemon has sent is read though it had not read what it was told, which the kernel tells as
// ECONNRESET first.
func TestUnreadByTheDaemon(t *testing.T) {
	here, there := pair(t)
	l := &Link{sock: there}
	h := &holder{things: newCustody()}
	defer h.things.close()
	life := &life{sock: here, pidfd: -1}
	defer life.close()
	life.queue(datagram{kind: msgGo})
	life.tell()
	if err := errors.Join(l.Keep(5, 0), l.Keep(6, 0), l.Ready()); err != nil {
		t.Fatal(err)
	}
	unix.Close(there)
	h.listen(life)
	if len(h.things.kept) != 2 || !life.ready || !life.deaf {
		t.Errorf("%d kept, ready %v, deaf %v", len(h.things.kept), life.ready, life.deaf)
	}
}

// What is not known, or not whole, changes nothing and leaves no descriptor.
func TestUnknown(t *testing.T) {
	here, there := pair(t)
	h := &holder{things: newCustody()}
	defer h.things.close()
	life := &life{sock: here, pidfd: -1}
	defer life.close()
	sent, err := unix.MemfdCreate("sent", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sent)
	for _, d := range []datagram{
		{kind: 'x', fds: []int{sent}},
		{kind: 'x', body: make([]byte, 500)},
		{kind: msgHold, fds: []int{sent}},
		{kind: msgKeep, body: make([]byte, 7), fds: []int{sent}},
		{kind: msgKeep, body: make([]byte, 8), fds: []int{sent, sent}},
		{kind: msgKeep, body: make([]byte, 8), fds: slices.Repeat([]int{sent}, 5)}, // more than it takes
		{kind: msgDrop, fds: []int{sent}},
		{kind: msgNext},
		{kind: msgGo},
	} {
		if err := d.send(there, 0); err != nil {
			t.Fatal(err)
		}
	}
	h.listen(life)
	unix.Close(there)
	if h.things.held() || len(h.things.kept) != 0 || life.ready {
		t.Errorf("%+v", h.things)
	}
	n := 0
	for _, link := range files("self") {
		if strings.HasPrefix(link, "/memfd:sent") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d descriptors of what was sent, not 1", n)
	}
}

func TestEnviron(t *testing.T) {
	got := environ([]string{"A=1", "B=2", "A=3"}, []string{"B=4"}, []string{"C=5"})
	if want := []string{"A=3", "B=4", "C=5"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
