package holder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is started again as a holder, and by that as a daemon. A daemon dials the test's socket,
// says hello and does what it is told, one order after the other. At the end of the connection it exits with
// 0, and its holder with it: no process outlives the test, however that ends.
const (
	roleEnv   = "HOLDER_TEST_ROLE"
	configEnv = "HOLDER_TEST_CONFIG"
	socketEnv = "HOLDER_TEST_SOCKET"
	firstEnv  = "HOLDER_TEST_FIRST"
)

// config is what the test's holder runs with.
type config struct {
	Quiet   bool
	Pass    int    // descriptors from 3 on are Options.Pass
	GaveUp  string // a file that GiveUp makes
	NoFile  uint64 // limit on descriptors
	OOM     string // the holder's oom_score_adj
	Tries   int    // patience
	First   time.Duration
	Longest time.Duration
	Total   time.Duration
	Exe     string // the daemon's; "": the holder's
}

// hello is what a daemon says first.
type hello struct {
	PID      int
	Exe      string
	Args     []string
	Env      []string
	Dir      string
	Files    map[string]string // open descriptors, before anything was opened
	OOM      string
	Group    int
	Takes    bool
	Memory   string
	Kept     map[uint64]string
	Status   syscall.WaitStatus
	Ended    time.Duration // ago
	Unserved time.Duration // before that
	Tries    int
}

// order is what a daemon is told to do, answer what came of it.
type order struct {
	Op   string
	ID   uint64
	N    int
	Text string
}

type answer struct {
	Err   string
	Names []string
	Took  time.Duration
}

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "holder":
		os.Exit(runHolder())
	case "daemon":
		os.Exit(runDaemon())
	}
	os.Exit(m.Run())
}

func runHolder() int {
	var c config
	if err := json.Unmarshal([]byte(os.Getenv(configEnv)), &c); err != nil {
		panic(err)
	}
	if c.NoFile > 0 {
		lim := syscall.Rlimit{Cur: c.NoFile, Max: c.NoFile}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
			panic(err)
		}
	}
	o := Options{
		Args:     []string{"mount", "a b"},
		Env:      []string{roleEnv + "=daemon"},
		First:    []string{firstEnv + "=1"},
		Quiet:    c.Quiet,
		GiveUp:   func() { _ = os.WriteFile(c.GaveUp, nil, 0o600) },
		Exe:      c.Exe,
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)).Error,
		oomScore: c.OOM,
		patience: patience{first: c.First, most: c.Longest, tries: c.Tries, total: c.Total},
	}
	for i := range c.Pass {
		o.Pass = append(o.Pass, os.NewFile(uintptr(3+i), "pass"))
	}
	code, err := Run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// files are the open descriptors of a process, less Go's own.
func files(pid string) map[string]string {
	dir, err := os.Open("/proc/" + pid + "/fd")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	out := map[string]string{}
	for _, n := range names {
		link, err := os.Readlink("/proc/" + pid + "/fd/" + n)
		if err == nil && link != "anon_inode:[eventpoll]" && link != "anon_inode:[eventfd]" &&
			!strings.HasPrefix(link, "/sys/fs/cgroup/") { // by which it sets GOMAXPROCS
			out[n] = link
		}
	}
	return out
}

func contents(fd int) string {
	b := make([]byte, 100)
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return err.Error()
	}
	return string(b[:n])
}

func memory(text string) int {
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	if _, err := unix.Pwrite(fd, []byte(text), 0); err != nil {
		panic(err)
	}
	return fd
}

// daemon is the test's daemon.
type daemon struct {
	link     *Link
	dev, mem int
	signals  chan os.Signal
	came     []string
}

func runDaemon() int {
	d := &daemon{dev: -1, mem: -1, signals: make(chan os.Signal, 100)}
	h := hello{PID: os.Getpid(), Args: os.Args, Env: os.Environ(), Files: files("self")}
	signal.Notify(d.signals, unix.SIGTERM, unix.SIGINT)
	h.Exe, _ = os.Readlink("/proc/self/exe")
	h.Dir, _ = os.Getwd()
	oom, _ := os.ReadFile("/proc/self/oom_score_adj")
	h.OOM = string(bytes.TrimSpace(oom))
	h.Group, _ = unix.Getpgid(0)
	var err error
	if d.link, err = Connect(); err != nil {
		fmt.Fprintln(os.Stderr, "connect:", err)
		return 99
	}
	if t := d.link.Taken(); t != nil {
		d.dev, d.mem = t.Device, t.Memory
		h.Takes, h.Memory, h.Status, h.Tries = true, contents(t.Memory), t.Status, t.Tries
		h.Ended, h.Unserved = time.Since(t.Ended), t.Ended.Sub(t.Unserved)
		h.Kept = map[uint64]string{}
		for id, fd := range t.Kept {
			h.Kept[id] = contents(fd)
		}
	}
	c, err := net.Dial("unix", os.Getenv(socketEnv))
	if err != nil {
		return 0 // the test is over
	}
	in, out := json.NewDecoder(c), json.NewEncoder(c)
	if out.Encode(h) != nil {
		return 0
	}
	for {
		var o order
		if in.Decode(&o) != nil {
			return 0
		}
		if o.Op == "exit" {
			return o.N
		}
		a, err := d.do(o)
		if err != nil {
			a.Err = err.Error()
		}
		if out.Encode(a) != nil {
			return 0
		}
	}
}

func (d *daemon) do(o order) (answer, error) {
	switch o.Op {
	case "hold": // Text is a FIFO, the device
		var err error
		if d.dev, err = unix.Open(o.Text, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
			return answer{}, err
		}
		d.mem = memory("the memory")
		return answer{}, d.link.Hold(d.dev, d.mem)
	case "device":
		_, err := unix.Write(d.dev, []byte(o.Text))
		return answer{}, err
	case "write": // N times, by the holder
		began := time.Now()
		for range o.N {
			if err := d.link.Write(d.dev, []byte(o.Text)); err != nil {
				return answer{}, err
			}
		}
		return answer{Took: time.Since(began)}, nil
	case "memory":
		_, err := unix.Pwrite(d.mem, []byte(o.Text), 0)
		return answer{}, err
	case "keep": // N of them, from ID on
		for i := range uint64(o.N) {
			fd := memory(fmt.Sprintf("%s %d", o.Text, o.ID+i))
			if err := d.link.Keep(o.ID+i, fd); err != nil {
				return answer{}, err
			}
			unix.Close(fd)
		}
	case "drop":
		for i := range uint64(o.N) {
			if err := d.link.Drop(o.ID + i); err != nil {
				return answer{}, err
			}
		}
	case "last words": // before it is dead; the socket takes all of them
		if _, err := d.do(order{Op: "keep", ID: o.ID, N: o.N, Text: o.Text}); err != nil {
			return answer{}, err
		}
		_ = d.link.Drop(1)
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	case "ready":
		return answer{}, d.link.Ready()
	case "next":
		fd, err := unix.Open(o.Text, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return answer{}, err
		}
		defer unix.Close(fd)
		return answer{}, d.link.Next(fd)
	case "signals": // all that came, once there are N
		for len(d.came) < o.N {
			d.came = append(d.came, (<-d.signals).String())
		}
		for len(d.signals) > 0 {
			d.came = append(d.came, (<-d.signals).String())
		}
		return answer{Names: d.came}, nil
	case "die of signals":
		signal.Reset(unix.SIGTERM, unix.SIGINT)
	case "lost":
		<-d.link.Lost()
	case "close": // a descriptor
		return answer{}, unix.Close(o.N)
	case "bench": // in bursts of ID, which the holder reads between them
		fd := memory("")
		var took time.Duration
		for range o.N / int(o.ID) {
			start := time.Now()
			for range o.ID {
				if err := d.link.Keep(1, fd); err != nil {
					return answer{}, err
				}
				if err := d.link.Drop(1); err != nil {
					return answer{}, err
				}
			}
			took += time.Since(start)
			for queued := 1; queued > 0; {
				var err error
				if queued, err = unix.IoctlGetInt(d.link.sock, unix.SIOCOUTQ); err != nil {
					return answer{}, err
				}
			}
		}
		return answer{Took: took}, nil
	default:
		return answer{}, fmt.Errorf("no order %q", o.Op)
	}
	return answer{}, nil
}

// family is a holder and its daemons, as the test sees them.
type family struct {
	t      testing.TB
	dir    string
	holder *os.Process
	ended  chan int // the holder's exit code
	ln     *net.UnixListener
	lives  int
	reader int // the device's other end
	output *os.File
}

// person is one daemon.
type person struct {
	hello
	t     testing.TB
	c     *net.UnixConn
	in    *json.Decoder
	pidfd int
}

const patient = time.Minute // for what must happen; nothing waits for it to pass

func start(t testing.TB, c config, extra ...*os.File) *family {
	t.Helper()
	f := &family{t: t, dir: t.TempDir(), ended: make(chan int, 1)}
	if c.Tries == 0 {
		c.Tries, c.First, c.Longest, c.Total = 10, time.Millisecond, 4*time.Millisecond, time.Nanosecond
	}
	c.GaveUp = f.dir + "/gaveup"
	var err error
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: f.dir + "/socket", Net: "unix"})
	check(err)
	check(unix.Mkfifo(f.device(), 0o600))
	f.reader, err = unix.Open(f.device(), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	check(err)
	f.output, err = os.Create(f.dir + "/output")
	check(err)
	null, err := os.Open("/dev/null")
	check(err)
	defer null.Close()
	conf, err := json.Marshal(c)
	check(err)
	f.holder, err = os.StartProcess("/proc/self/exe", []string{"ckptfs"}, &os.ProcAttr{
		Dir: f.dir,
		Env: append(os.Environ(), roleEnv+"=holder", configEnv+"="+string(conf),
			socketEnv+"="+f.dir+"/socket"),
		Files: append([]*os.File{null, f.output, f.output}, extra...),
	})
	check(err)
	go func() {
		s, err := f.holder.Wait()
		if err != nil {
			return
		}
		f.ended <- exitCode(unix.WaitStatus(s.Sys().(syscall.WaitStatus)))
	}()
	t.Cleanup(func() {
		_ = f.holder.Kill() // first, so that there is no next daemon
		f.ln.Close()
		f.hangUp()
		if t.Failed() {
			b, _ := os.ReadFile(f.output.Name())
			t.Logf("%s", b)
		}
		f.output.Close()
	})
	return f
}

// said is what the holder and its daemons have written.
func (f *family) said() string {
	f.t.Helper()
	b, err := os.ReadFile(f.output.Name())
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}

func (f *family) device() string { return f.dir + "/device" }

// hangUp is the end of the device.
func (f *family) hangUp() {
	if f.reader >= 0 {
		unix.Close(f.reader)
	}
	f.reader = -1
}

// next is the next daemon, once it has said hello.
func (f *family) next() *person {
	f.t.Helper()
	_ = f.ln.SetDeadline(time.Now().Add(patient))
	c, err := f.ln.AcceptUnix()
	if err != nil {
		f.t.Fatalf("no daemon: %v", err)
	}
	return f.met(c)
}

// met is a daemon that has called.
func (f *family) met(c *net.UnixConn) *person {
	f.t.Helper()
	var err error
	_ = c.SetDeadline(time.Now().Add(patient))
	f.lives++
	p := &person{t: f.t, c: c, in: json.NewDecoder(c)}
	f.t.Cleanup(func() { c.Close() })
	if err := p.in.Decode(&p.hello); err != nil {
		f.t.Fatal(err)
	}
	if p.pidfd, err = unix.PidfdOpen(p.PID, 0); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
		unix.Close(p.pidfd)
	})
	return p
}

// first is the first daemon, that has said Hold and Ready.
func (f *family) first() *person {
	f.t.Helper()
	p := f.next()
	p.do(order{Op: "hold", Text: f.device()})
	p.do(order{Op: "ready"})
	return p
}

// end is the holder's exit code. No daemon is left then that the test has not seen.
func (f *family) end() int {
	f.t.Helper()
	select {
	case code := <-f.ended:
		_ = f.ln.SetDeadline(time.Now())
		if c, err := f.ln.Accept(); err == nil {
			c.Close()
			f.t.Error("a daemon too many")
		}
		return code
	case <-time.After(patient):
		f.t.Fatal("the holder does not end")
	}
	return -1
}

func (f *family) ends(code int, gaveUp bool) {
	f.t.Helper()
	if got := f.end(); got != code {
		f.t.Errorf("the holder's exit code is %d, not %d", got, code)
	}
	if _, err := os.Stat(f.dir + "/gaveup"); (err == nil) != gaveUp {
		f.t.Errorf("gave up: %v, not %v", err == nil, gaveUp)
	}
}

func (f *family) signal(s os.Signal) {
	f.t.Helper()
	if err := f.holder.Signal(s); err != nil {
		f.t.Fatal(err)
	}
}

func (p *person) send(o order) {
	p.t.Helper()
	if err := json.NewEncoder(p.c).Encode(o); err != nil {
		p.t.Fatal(err)
	}
}

func (p *person) do(o order) answer {
	p.t.Helper()
	p.send(o)
	var a answer
	if err := p.in.Decode(&a); err != nil {
		p.t.Fatalf("%s: %v", o.Op, err)
	}
	if a.Err != "" {
		p.t.Fatalf("%s: %s", o.Op, a.Err)
	}
	return a
}

// exit tells it to exit, and returns when it has.
func (p *person) exit(code int) {
	p.t.Helper()
	p.send(order{Op: "exit", N: code})
	p.gone()
}

func (p *person) kill() {
	p.t.Helper()
	if err := unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0); err != nil {
		p.t.Fatal(err)
	}
	p.gone()
}

// gone waits for the daemon's end, waited for by its parent or not.
func (p *person) gone() {
	p.t.Helper()
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	for end := time.Now().Add(patient); ; {
		n, err := unix.Poll(fds, int(time.Until(end).Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			p.t.Fatalf("the daemon does not end: %v", err)
		}
		return
	}
}

func (p *person) signals(want ...string) {
	p.t.Helper()
	if got := p.do(order{Op: "signals", N: len(want)}).Names; !slices.Equal(got, want) {
		p.t.Errorf("signals %q, not %q", got, want)
	}
}

// until waits for a condition on another process, which nothing tells of.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come to that: %s", what)
		}
	}
}

// state is the letter of a process's state in /proc.
func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:min(1, len(rest))]
}
