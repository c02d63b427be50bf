package holder

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// mostWritten bounds one write for the daemon.
const mostWritten = 64 << 10

// writes are what a daemon has its holder write to the device.
type writes struct {
	open sync.Once
	conn net.Conn // nil: the holder cannot
	own  threads  // of this process, for when it cannot

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan error
	gone    bool // no answer comes any more
}

// Write has the holder write to the device, which is dev here. The kernel may let it wait until this daemon,
// or the next one, has answered a request, and lets the writer not be killed before. Without a holder a
// thread of this process writes, which leaves the rest of it free to end.
func (l *Link) Write(dev int, p []byte) error {
	if l == nil {
		return asError(write(dev, p))
	}
	w := &l.writes
	if did, err := w.byHolder(l, p); did {
		return err
	}
	var errno unix.Errno
	w.own.run(dev, func() { errno = write(dev, p) })
	return asError(errno)
}

// byHolder has the holder write. did is false if it cannot, or has ended before it said what came of it.
func (w *writes) byHolder(l *Link, p []byte) (did bool, err error) {
	if len(p) > mostWritten {
		return false, nil
	}
	w.open.Do(func() { w.begin(l) })
	if w.conn == nil {
		return false, nil
	}
	id, answer := w.expect()
	if answer == nil {
		return false, nil
	}
	if _, err := w.conn.Write(append(binary.LittleEndian.AppendUint64(nil, id), p...)); err != nil {
		w.end()
	}
	err, did = <-answer
	return did, err
}

// begin gives the holder its end of a socket for them.
func (w *writes) begin(l *Link) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(pair[1])
	conn, err := fileConn(pair[0])
	if err != nil {
		return
	}
	if l.send(datagram{kind: msgWrites, fds: pair[1:]}) != nil {
		conn.Close()
		return
	}
	w.conn, w.waiting = conn, map[uint64]chan error{}
	go w.read()
}

// expect is the next number, and where its answer comes: nil if none comes.
func (w *writes) expect() (id uint64, answer chan error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return 0, nil
	}
	w.last++
	answer = make(chan error, 1)
	w.waiting[w.last] = answer
	return w.last, answer
}

// read takes the answers.
func (w *writes) read() {
	defer w.end()
	for {
		var b [12]byte
		n, err := w.conn.Read(b[:])
		if err != nil || n < len(b) {
			return
		}
		w.mu.Lock()
		id := binary.LittleEndian.Uint64(b[:])
		if answer := w.waiting[id]; answer != nil {
			delete(w.waiting, id)
			answer <- asError(unix.Errno(binary.LittleEndian.Uint32(b[8:])))
		}
		w.mu.Unlock()
	}
}

func asError(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// end says that no answer comes any more: the holder is gone, or knows nothing of writes.
func (w *writes) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for id, answer := range w.waiting {
		close(answer)
		delete(w.waiting, id)
	}
}

// serveWrites writes to the device what comes by a daemon's socket, until its end.
func serveWrites(sock, dev int) {
	conn, err := fileConn(sock)
	if err != nil {
		return
	}
	var t threads
	var under sync.WaitGroup
	buf := make([]byte, 8+mostWritten)
	for {
		n, err := conn.Read(buf)
		if err != nil || n < 8 {
			break
		}
		p := bytes.Clone(buf[:n])
		under.Go(func() {
			var errno unix.Errno
			t.run(dev, func() { errno = write(dev, p[8:]) })
			_, _ = conn.Write(binary.LittleEndian.AppendUint32(p[:8], uint32(errno)))
		})
	}
	under.Wait()
	t.end()
	conn.Close()
}

// fileConn is a socket that does not keep a thread while it is read. It closes fd.
func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "writes")
	defer f.Close()
	return net.FileConn(f)
}

func write(fd int, p []byte) unix.Errno {
	for {
		_, err := unix.Write(fd, p)
		if err == unix.EINTR {
			continue
		}
		errno, _ := err.(unix.Errno)
		return errno
	}
}

// threads write to the device. The kernel may not even let them be killed. So each has descriptors of its
// own, which are the device and the runtime's: if the process is killed, all else that it has open is closed.
// Not the first three either: the caller of `mount` may read them to their end, and the process gives them up
// only in its own.
type threads struct {
	once sync.Once
	work chan func() // closed at the end
	idle atomic.Int32
}

// mostIdle bounds the threads that wait for work.
const mostIdle = 2

// run calls f by one of the threads.
func (t *threads) run(dev int, f func()) {
	t.once.Do(func() { t.work = make(chan func()) })
	done := make(chan struct{})
	job := func() {
		f()
		close(done)
	}
	select {
	case t.work <- job:
	default:
		go onOwnThread(func() {
			alone(dev)
			t.serve(job)
		})
	}
	<-done
}

// serve does a job, and those that come.
func (t *threads) serve(job func()) {
	for {
		job()
		if t.idle.Add(1) > mostIdle {
			t.idle.Add(-1)
			return
		}
		var more bool
		if job, more = <-t.work; !more {
			return
		}
		t.idle.Add(-1)
	}
}

// end ends them. Nobody calls run any more.
func (t *threads) end() {
	t.once.Do(func() { t.work = make(chan func()) })
	close(t.work)
}

// onOwnThread calls f on a thread that ends with it.
func onOwnThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	// The process's first thread never ends. As long as it is held f gets another one.
	began := make(chan struct{})
	go onOwnThread(func() {
		close(began)
		f()
	})
	<-began
	runtime.UnlockOSThread()
}

// alone has the calling thread have no descriptors but fd, and those by which the runtime wakes the thread
// that waits for the network: it does that on any thread, and ends the process if it cannot.
// Before Linux 5.9, which can do it, the thread goes on sharing all of them.
func alone(fd int) {
	keep := append(runtimes(), fd)
	slices.Sort(keep)
	from := 0
	for _, fd := range keep {
		if fd > from && closeOwn(from, fd-1) != nil {
			return
		}
		from = max(from, fd+1)
	}
	_ = closeOwn(from, math.MaxUint32)
}

func closeOwn(from, to int) error {
	return unix.CloseRange(uint(from), uint(to), unix.CLOSE_RANGE_UNSHARE)
}

// runtimes are the descriptors that Go's runtime may have made for itself.
func runtimes() (fds []int) {
	all, _ := os.ReadDir("/proc/self/fd")
	for _, e := range all {
		switch is, _ := os.Readlink("/proc/self/fd/" + e.Name()); is {
		case "anon_inode:[eventpoll]", "anon_inode:[eventfd]":
			if fd, err := strconv.Atoi(e.Name()); err == nil {
				fds = append(fds, fd)
			}
		}
	}
	return fds
}
