package fusefs

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fakeKernel is the other end of a loop's device: a socket that keeps messages apart, as /dev/fuse does.
type fakeKernel struct {
	t    *testing.T
	fd   int
	loop *loop
	done chan struct{} // closed when the loop has ended
}

// sockets are the two ends of a device; what is lost of either is closed at the test's end.
func sockets(t *testing.T) (kernel, dev int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	wait := unix.NsecToTimeval(int64(20 * time.Second))
	if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatal(err)
	}
	return pair[0], pair[1]
}

// serveFake serves fs, and READ by file, for a fake kernel that has been answered its INIT.
func serveFake(t *testing.T, fs fuse.RawFileSystem, file reader) *fakeKernel {
	t.Helper()
	k := fakeLoop(t, fs, file)
	k.begin()
	return k
}

// fakeLoop is what begin serves.
func fakeLoop(t *testing.T, fs fuse.RawFileSystem, file reader) *fakeKernel {
	t.Helper()
	kernel, dev := sockets(t)
	ps := fuse.NewProtocolServer(fs, &fuse.MountOptions{MaxWrite: maxRequest, PanicHandler: crash})
	if _, err := answerInit(ps, initRequest(45, ^uint64(0))); err != nil {
		t.Fatal(err)
	}
	k := &fakeKernel{t: t, fd: kernel, done: make(chan struct{})}
	k.loop = &loop{dev: &device{fd: dev}, ps: ps, file: file, dead: make(chan struct{}),
		memory: newMemory(t), answered: func(uint64) {}, refused: func(*fuse.InHeader) {},
		log: func(_ slog.Level, msg string, args ...any) { t.Log(append([]any{msg}, args...)...) }}
	return k
}

func (k *fakeKernel) begin() {
	k.loop.start()
	go func() {
		k.loop.wait()
		close(k.done)
	}()
	k.t.Cleanup(k.end)
}

// end is an unmount.
func (k *fakeKernel) end() {
	if k.fd < 0 {
		return
	}
	unix.Close(k.fd)
	k.fd = -1
	select {
	case <-k.done:
	case <-time.After(20 * time.Second):
		k.t.Error("the loop does not end")
	}
}

// request is a request of the kernel: its header, and a body.
func request(op uint32, unique, node uint64, body ...any) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 0)
	b = binary.NativeEndian.AppendUint32(b, op)
	b = binary.NativeEndian.AppendUint64(b, unique)
	b = binary.NativeEndian.AppendUint64(b, node)
	b = append(b, make([]byte, 16)...)
	for _, v := range body {
		switch v := v.(type) {
		case string:
			b = append(append(b, v...), 0)
		case []byte:
			b = append(b, v...)
		case uint32:
			b = binary.NativeEndian.AppendUint32(b, v)
		case uint64:
			b = binary.NativeEndian.AppendUint64(b, v)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// readRequest is a READ of handle 1.
func readRequest(unique uint64, off uint64, size uint32) []byte {
	return request(opRead, unique, 5, uint64(1), off, size, uint32(0), uint64(0), uint32(0), uint32(0))
}

func initRequest(minor uint32, flags uint64) []byte {
	return request(26, 2, 0, uint32(7), minor, uint32(131072), uint32(flags), uint32(flags>>32),
		make([]byte, 44))
}

func (k *fakeKernel) send(req []byte) {
	k.t.Helper()
	if _, err := unix.Write(k.fd, req); err != nil {
		k.t.Fatal(err)
	}
}

// answer is the next answer: whose it is, its status and its bytes.
func (k *fakeKernel) answer() (unique uint64, st fuse.Status, body []byte) {
	k.t.Helper()
	buf := make([]byte, 2<<20)
	n, err := unix.Read(k.fd, buf)
	if err != nil {
		k.t.Fatalf("no answer: %v", err)
	}
	h := as[fuse.OutHeader](buf[:n])
	if h == nil || int(h.Length) != n {
		k.t.Fatalf("an answer of %d bytes: %v", n, h)
	}
	return h.Unique, fuse.Status(-h.Status), buf[unsafe.Sizeof(*h):n]
}
