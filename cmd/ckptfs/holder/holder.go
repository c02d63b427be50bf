// Package holder lets a mount outlive its daemon. A holder is a tiny process that starts the daemon, keeps
// for it what must not end with it, and starts it again whenever it ends other than in order. What it keeps
// are descriptors: the device of the mount, a memory file, and any others, each under a number. As long as
// the holder has them the kernel lets the mount's callers wait, and the next daemon goes on where the last
// one was ended.
//
// Both sides are here: Run is the holder, Connect and Link are the daemon's end. The package knows nothing of
// volumes, and of FUSE only what poll(2) says of its device: POLLERR once the mount is gone.
//
// # Processes
//
// The holder starts each daemon with the same arguments, in the folder /, in a process group of its own, so
// that Ctrl-C reaches the holder alone. The daemon has these descriptors, and no others:
//
//	0        /dev/null
//	1, 2     the holder's own; /dev/null in later lives of a mount in the background (Options.Quiet)
//	3        its end of the link, named by CKPTFS_HOLDER_FD
//	4, …     Options.Pass, in the first life only
//
// There is no signal at the holder's death. The daemon serves on without it, and learns of it by Link.Lost.
//
// # The link
//
// The link is a SOCK_SEQPACKET socket pair, a new one for every life. Each message is one datagram: a byte
// that tells its kind, then fields in little-endian order. Descriptors go with it as SCM_RIGHTS. From the
// daemon to the holder, none of them answered:
//
//	Hold    48                        2 descriptors: device, memory. From now on the mount must survive
//	Keep    4b | id 8                 1 descriptor. Replaces what is kept under that id
//	Drop    44 | id 8                 closes what is kept under that id, if there is any
//	Ready   52                        it serves
//	Next    4e                        1 descriptor: the next daemon is this binary
//	Writes  57                        1 descriptor: the holder's end of a socket for writes
//
// and from the holder to the daemon, at the start of each life:
//
//	Take    54 | status 4 | tries 4 | ended 8 | unserved 8
//	                                  2 descriptors: device, memory
//	Kept    6b | id 8 | id 8 | …      a descriptor for each id, of 1 to 128
//	Go      47                        that was all
//
// In a life before Hold it is Go alone. Otherwise Take comes first, then as many of Kept as it takes. Status
// is how the last daemon ended, as wait4(2) gives it. Tries counts the daemons that ended before they were
// ready, since there was one that was. Ended is the time of the last end and unserved that of the last
// daemon that was ready, both in nanoseconds of CLOCK_MONOTONIC: what lies between the holder's send and the
// daemon's receive, which is the start of a program, is not lost.
//
// A daemon may be of another version than the holder (Next). So a receiver leaves out kinds that it does not
// know, and bytes after those that it knows.
//
// A sent datagram and its descriptors survive the death of the sender. The holder reads all of them before it
// starts the next daemon, so what a daemon has said is never lost. The daemon waits only while the socket is
// full. A Keep for which the holder has no descriptor left is dropped: the next daemon has nothing under that
// id, neither the new one nor an old one.
//
// # Writes
//
// What is written to the device may have to wait, and not even a kill ends that: a notification waits for a
// folder that the kernel keeps locked until a lookup in it is answered, or for a page that is being read. A
// daemon that waited so when it is killed would never end, for only the next one can answer. So the holder
// writes for it. This is another SOCK_SEQPACKET socket. Each datagram of the daemon is the number of a write
// (8 bytes) and what is to be written; the holder answers with the number and the errno (4 bytes), in any
// order. A holder of an earlier version closes the socket.
//
// If the holder is killed, too, a write that waits goes on waiting, and the mount does not end by itself. All
// that such a thread has open is the device: the store can be mounted, which aborts the dead mount.
//
// # Ends
//
// The holder starts the next daemon only after wait4(2) has told of the end of the last one: then no thread
// of it is left in a system call, which could still change what the next one reads. It ends itself, with the
// daemon's exit code (128 and the signal if that was killed), when the daemon
//
//   - ended with code 0,
//   - ended before Hold,
//   - ended when the device gives POLLERR: the mount is gone,
//   - was killed by a signal that the holder had passed on, or ended with ExitInterrupted after one.
//
// In the last case it calls Options.GiveUp first. In all others it starts the next one: at once if that one
// had been ready or ended with ExitUpgrade, else after 50 ms, twice as much each time, up to 4 s. It gives up
// after 10 that were not ready, but not before 2 minutes after the last ready one ended, unless a signal asks
// for the end: what keeps daemons from starting may end by itself, as a full disk does. Then it calls
// Options.GiveUp, and ends with the code of the last one. A daemon that neither ends nor gets ready is waited
// for.
//
// That no daemon can be started, and that it gives up, the holder tells Options.Log: there is no daemon to do
// so.
//
// A binary given by Next is on trial until its daemon is ready. If that one ends before, or cannot be
// started, the former binary is used again.
//
// # Signals
//
// SIGTERM and SIGINT are passed on, each to every daemon once: at once in the first life, after Ready in
// later ones, whose handlers may not be there yet. A signal is a request to unmount. It holds until the
// mount is gone, or a daemon ended with ExitUpgrade, which has dealt with it. So a daemon whose forerunner
// was killed while it waited for files to be closed gets its signal too.
package holder

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The exit codes of a daemon that mean something to its holder.
const (
	ExitUpgrade     = 75  // it made room for the next one, which is started at once
	ExitInterrupted = 130 // it ended since it got a signal, and left the mount behind
)

// Options are what a holder is to run.
type Options struct {
	Args  []string   // the daemon's, without its name; they must mean the same in the folder /
	Env   []string   // entries for every daemon, beside those of this process
	First []string   // entries for the first daemon only
	Pass  []*os.File // the first daemon's descriptors from 4 on; closed here once it has been started
	Quiet bool       // from the first Ready on, descriptors 0 to 2 are /dev/null
	Exe   string     // the daemon's binary; default /proc/self/exe

	// GiveUp detaches the mount, when nobody is going to serve it any more. May be nil.
	GiveUp func()
	// Log takes what a mount's log is to say of a daemon that cannot. May be nil.
	Log func(msg string, args ...any)

	patience patience // zero: the usual
	oomScore string   // the holder's own; "": -1000, so that it is the last to be killed for memory
}

// holder runs one daemon after the other.
type holder struct {
	o        Options
	things   custody
	signals  *signals
	oom      oomScore
	null     int // /dev/null
	patience patience
	asked    []unix.Signal   // signals that hold, in order
	tries    int             // daemons that ended before they were ready, since one was
	status   unix.WaitStatus // how the last daemon ended
	ended    time.Duration   // when it did; monotonic, as all times here
	unserved time.Duration   // when the last one that was ready did
	started  bool            // a daemon was started, or could not be
	told     string          // why the last one could not be started, as the log knows it
}

// Run starts the daemon, and starts it again, until it ended in order or there is no sense in it. The code is
// for os.Exit. The error is one that the daemon cannot have told of: it could not be started, or the holder
// gave up.
//
// Run owns the process: it changes the working folder to /, passes signals on, and makes every open
// descriptor but 0 to 2 close on exec.
func Run(o Options) (code int, err error) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(10) // of next to nothing
	if o.Exe == "" {
		o.Exe = "/proc/self/exe"
	}
	if o.oomScore == "" {
		o.oomScore = "-1000"
	}
	h := &holder{o: o, patience: o.patience.orUsual()}
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11
	if err := os.Chdir("/"); err != nil {                           // no filesystem is kept busy
		return 1, err
	}
	if h.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return 1, fmt.Errorf("/dev/null: %w", err)
	}
	defer unix.Close(h.null)
	if h.signals, err = watchSignals(); err != nil {
		return 1, err
	}
	defer h.signals.close()
	h.things = newCustody()
	defer h.things.close()
	h.oom = openOOMScore(o.oomScore)
	defer h.oom.close()
	return h.run()
}

func (h *holder) run() (int, error) {
	for {
		l, err := h.start()
		if err == nil {
			h.attend(l)
		}
		h.started = true
		ready := err == nil && l.ready
		switch {
		case !h.things.held():
			if err != nil {
				return 1, fmt.Errorf("start the daemon: %w", err)
			}
			return exitCode(h.status), nil
		case err == nil && h.status == 0, h.things.gone():
			return exitCode(h.status), nil
		case err == nil && l.obeyed():
			h.giveUp()
			return exitCode(h.status), nil
		}
		upgrade := err == nil && h.status.Exited() && h.status.ExitStatus() == ExitUpgrade
		if upgrade {
			h.asked = h.asked[l.sent:]
		}
		if ready {
			h.tries, h.unserved, h.told = 0, h.ended, ""
		} else {
			if h.unserved == 0 { // not even the first was ready
				h.unserved = h.ended
			}
			h.tries++
			h.things.failed(err != nil || l.trial)
		}
		h.asked = append(h.asked, h.signals.take()...) // no daemon was there to see them
		wait, ok := h.patience.next(h.tries, now()-h.unserved, len(h.asked) > 0)
		if !ok {
			if err == nil {
				err = fmt.Errorf("the last one: %s", describe(syscall.WaitStatus(h.status)))
			}
			h.giveUp()
			h.log("no daemon could serve the mount, and it is detached: programs that use it get ENOTCONN; "+
				"mount it again once the cause is gone", "daemons", h.tries,
				"after", (now() - h.unserved).Round(time.Millisecond), "err", err)
			err = fmt.Errorf("gave up: %d daemons were not ready: %w", h.tries, err)
			return max(1, exitCode(h.status)), err
		}
		if err != nil && err.Error() != h.told {
			h.told = err.Error()
			h.log("the daemon ended, and the next one cannot be started; it is tried again: "+
				"make the program that mounted runnable, or unmount", "why", describe(syscall.WaitStatus(h.status)),
				"err", err, "for", h.patience.total)
		}
		if !upgrade && h.things.goneWithin(wait) {
			return exitCode(h.status), nil
		}
	}
}

func (h *holder) giveUp() {
	if h.o.GiveUp != nil {
		h.o.GiveUp()
	}
}

func (h *holder) log(msg string, args ...any) {
	if h.o.Log != nil {
		h.o.Log(msg, args...)
	}
}

// start starts a daemon, and queues what it is to be told.
func (h *holder) start() (*life, error) {
	first := !h.started
	files := []uintptr{uintptr(h.null), 1, 2, 0}
	env := []string{fdEnv + "=3"}
	if first {
		defer func() {
			for _, f := range h.o.Pass {
				f.Close()
			}
		}()
		for _, f := range h.o.Pass {
			files = append(files, f.Fd())
		}
		env = append(env, h.o.First...)
	}
	exe, trial := h.things.binary(h.o.Exe)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[1])
	files[3] = uintptr(pair[1])
	l := &life{sock: pair[0], pidfd: -1, first: first, trial: trial}
	if err := h.oom.expose(); err != nil { // what the child inherits
		l.close()
		return nil, err
	}
	l.pid, err = syscall.ForkExec(exe, append([]string{"ckptfs"}, h.o.Args...), &syscall.ProcAttr{
		Dir:   "/",
		Env:   environ(os.Environ(), h.o.Env, env),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &l.pidfd},
	})
	h.oom.protect()
	if err != nil {
		l.close()
		return nil, err
	}
	if l.pidfd < 0 {
		_ = unix.Kill(l.pid, unix.SIGKILL)
		_, _ = l.wait()
		l.close()
		return nil, fmt.Errorf("the kernel has no pidfd")
	}
	if h.things.held() {
		l.queue(datagram{kind: msgTake, body: h.takeBody(), fds: []int{h.things.dev, h.things.mem}})
		for _, d := range h.things.keptDatagrams() {
			l.queue(d)
		}
	}
	l.queue(datagram{kind: msgGo})
	return l, nil
}

// attend waits for the end of a daemon, and does what it says and what signals ask meanwhile. All that it had
// said is done when attend returns.
func (h *holder) attend(l *life) {
	defer l.close()
	fds := []unix.PollFd{
		{Fd: int32(l.pidfd), Events: unix.POLLIN},
		{Fd: int32(h.signals.wake), Events: unix.POLLIN},
		{Fd: int32(l.sock)},
	}
	for {
		fds[2].Events = unix.POLLIN
		if len(l.out) > 0 {
			fds[2].Events |= unix.POLLOUT
		}
		if l.deaf { // a hang-up is told again and again
			fds[2].Fd = -1
		}
		if _, err := unix.Poll(fds, -1); err != nil { // EINTR, ENOMEM
			continue
		}
		if fds[0].Revents != 0 { // before signals: they are for the next one
			h.ended = now()
			h.status, _ = l.wait()
			h.listen(l)
			return
		}
		if fds[1].Revents != 0 {
			h.asked = append(h.asked, h.signals.take()...)
		}
		if fds[2].Revents&^unix.POLLOUT != 0 {
			h.listen(l)
		}
		if fds[2].Revents&unix.POLLOUT != 0 {
			l.tell()
		}
		if l.first || l.ready {
			l.pass(h.asked)
		}
	}
}

// listen does all that the daemon has said.
func (h *holder) listen(l *life) {
	for !l.deaf {
		d, err := receive(l.sock, 2, unix.MSG_DONTWAIT)
		switch err {
		case nil:
			h.do(l, d)
		case unix.EAGAIN:
			return
		case unix.ECONNRESET: // told once, before what is queued: it had not read all that it was told
		default:
			l.deaf = true
		}
	}
}

// do does one thing that a daemon has said. Descriptors that it has no use for are closed.
func (h *holder) do(l *life, d datagram) {
	id, hasID := d.id()
	switch {
	case d.kind == msgHold && len(d.fds) == 2:
		h.things.hold(d.fds[0], d.fds[1])
	case d.kind == msgKeep && hasID && len(d.fds) == 1:
		h.things.keep(id, d.fds[0])
	case d.kind == msgKeep && hasID: // its descriptor found no place
		h.things.drop(id)
		d.close()
	case d.kind == msgDrop && hasID:
		h.things.drop(id)
		d.close()
	case d.kind == msgNext && len(d.fds) == 1:
		h.things.next(d.fds[0])
		l.trial = false // if it was: another one is now
	case d.kind == msgWrites && len(d.fds) == 1 && h.things.held():
		go serveWrites(d.fds[0], h.things.dev)
	case d.kind == msgReady:
		d.close()
		if !l.ready {
			l.ready = true
			h.isReady(l)
		}
	default:
		d.close()
	}
}

func (h *holder) isReady(l *life) {
	if l.trial {
		h.things.proven()
		l.trial = false
	}
	if !l.first {
		return
	}
	if h.o.Quiet {
		for fd := range 3 {
			_ = unix.Dup3(h.null, fd, 0)
		}
	}
	debug.FreeOSMemory() // what the start took; from here on there is nothing to do
}

// takeBody is the fields of a Take.
func (h *holder) takeBody() []byte {
	return take{h.status, uint32(h.tries), h.ended, h.unserved}.encode()
}

// exitCode is the exit code that stands for a status, as a shell has it.
func exitCode(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// describe says how a daemon ended, for the log.
func describe(s syscall.WaitStatus) string {
	switch {
	case s.Signaled():
		return "signal: " + s.Signal().String()
	case s.ExitStatus() == ExitUpgrade:
		return "upgrade"
	}
	return fmt.Sprintf("exit code %d", s.ExitStatus())
}

// now is CLOCK_MONOTONIC, which all processes share.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every kernel has it
	}
	return time.Duration(ts.Nano())
}
