package holder

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What the device holds.
func (f *family) queued() int {
	f.t.Helper()
	n, err := unix.IoctlGetInt(f.reader, unix.TIOCINQ)
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *family) read() string {
	f.t.Helper()
	b := make([]byte, 1<<20)
	n, err := unix.Read(f.reader, b)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b[:n])
}

// drain reads more than n bytes. It cannot wait for all that is written: where a signal interrupts a write, a
// pipe has a part of it, which a device never has.
func (f *family) drain(n int) {
	f.t.Helper()
	for got := 0; got <= n; {
		until(f.t, "more was written", func() bool { return f.queued() > 0 })
		got += len(f.read())
	}
}

// isAlone reports whether a thread of a process has descriptors of its own: one, and the runtime's.
func isAlone(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	return slices.ContainsFunc(tasks, func(task string) bool {
		fds, _ := filepath.Glob(task + "/fd/*")
		fds = slices.DeleteFunc(fds, func(fd string) bool {
			is, _ := os.Readlink(fd)
			return strings.HasPrefix(is, "anon_inode:[event")
		})
		return len(fds) == 1
	})
}

func TestWrites(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	p.do(order{Op: "write", N: 3, Text: "abc"})
	if got := f.read(); got != "abcabcabc" {
		t.Errorf("the device has %q", got)
	}
	p.kill()
	q := f.next()
	q.do(order{Op: "write", N: 1, Text: "next"})
	if got := f.read(); got != "next" {
		t.Errorf("the device has %q", got)
	}
}

// A daemon is not held up by a write that waits, and its holder neither. The thread that waits has no
// descriptors but the device.
func TestWriteWaits(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	const much = 60_000 // more than half of what the device holds
	p.send(order{Op: "write", N: 2, Text: strings.Repeat("x", much)})
	until(t, "the device is full", func() bool { return f.queued() > much })
	if !isAlone(f.holder.Pid) {
		t.Error("no thread of the holder has descriptors of its own")
	}
	p.kill()
	q := f.next()
	q.do(order{Op: "ready"})
	f.drain(much)
	q.send(order{Op: "write", N: 1, Text: "next"})
	var got strings.Builder
	until(t, "the next was written", func() bool {
		if f.queued() > 0 {
			got.WriteString(f.read())
		}
		return strings.Contains(got.String(), "next")
	})
	q.exit(0)
	f.ends(0, false)
}

// Without its holder a daemon writes by itself, also what the holder was at when it ended. The thread that
// waits has no descriptors but the device.
func TestWriteWithoutHolder(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	const much = 60_000
	p.send(order{Op: "write", N: 2, Text: strings.Repeat("x", much)})
	until(t, "the device is full", func() bool { return f.queued() > much })
	f.signal(unix.SIGKILL)
	until(t, "the daemon writes", func() bool { return isAlone(p.PID) })
	var a answer
	f.drain(much)
	if err := p.in.Decode(&a); err != nil || a.Err != "" {
		t.Errorf("%+v, %v", a, err)
	}
	var none *Link
	if err := none.Write(-1, nil); err != unix.EBADF {
		t.Errorf("a nil link writes: %v", err)
	}
}

func BenchmarkWrite(b *testing.B) {
	f := start(b, config{})
	p := f.first()
	n := min(b.N, 60_000) // what the device holds
	a := p.do(order{Op: "write", N: n, Text: "x"})
	b.ReportMetric(float64(a.Took.Nanoseconds())/float64(n), "ns/op")
}

// The runtime wakes its poller from any thread: one that lacks what it does that by ends the process. That
// takes luck to see, so what the thread has is looked at.
func TestThreadKeepsTheRuntimes(t *testing.T) {
	r, w, err := os.Pipe() // the poller is there
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	own := runtimes()
	if len(own) < 2 {
		t.Fatalf("%v are the runtime's", own)
	}
	var all threads
	defer all.end()
	all.run(int(w.Fd()), func() {
		for _, fd := range append(own, int(w.Fd())) {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
				t.Errorf("descriptor %d: %v", fd, err)
			}
		}
		for _, fd := range []int{0, 1, 2, int(r.Fd())} {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
				t.Errorf("it has descriptor %d, too", fd)
			}
		}
	})
}
