package outlive

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ckptfs/integration/mounttest"
)

// asWorker in the environment names what a process does to a mount.
const asWorker = "CKPTFS_OUTLIVE_WORKER"

// worker is one program on a mount. Each of its uses has a folder of its own.
type worker struct {
	mount string // the mountpoint
	dir   string // its folder
	rng   *rand.Rand
	stop  *atomic.Bool
	calls *atomic.Int64
	bad   func(string)
}

// told is what a worker says: of each fault a line, and at the end the number of its calls.
type told struct {
	Ready bool
	Fault string
	Calls int64
}

// fault is a fault that ends a use.
type fault string

// check counts a call, and ends the use if it failed.
func (w *worker) check(err error, format string, args ...any) {
	w.calls.Add(1)
	if err != nil {
		panic(fault(fmt.Sprintf("FAILED %s: %v", fmt.Sprintf(format, args...), err)))
	}
}

// fails counts a call that has to fail in one way.
func (w *worker) fails(err, want error, format string, args ...any) {
	w.calls.Add(1)
	if err != want {
		panic(fault(fmt.Sprintf("FAILED %s: %v, and has to fail with %v", fmt.Sprintf(format, args...), err, want)))
	}
}

// want ends the use unless what was seen is right.
func (w *worker) want(ok bool, format string, args ...any) {
	w.calls.Add(1)
	if !ok {
		panic(fault("WRONG " + fmt.Sprintf(format, args...)))
	}
}

func (w *worker) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// uses are the things that workers do, over and over.
var uses = map[string]func(w *worker) (round func()){}

// workerMain runs a use until its standard input ends.
func workerMain(use string) int {
	debug.SetGCPercent(400)
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(t told) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(t)
	}
	seed, _ := strconv.ParseUint(os.Args[2], 10, 64)
	w := &worker{
		mount: os.Args[1], dir: filepath.Join(os.Args[1], "u-"+use),
		rng: rand.New(rand.NewPCG(seed, 0)), stop: new(atomic.Bool), calls: new(atomic.Int64),
		bad: func(s string) { say(told{Fault: s}) },
	}
	syscall.Umask(0)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		w.stop.Store(true)
	}()
	func() {
		defer func() {
			if f, ok := recover().(fault); ok {
				w.bad(string(f))
			}
		}()
		if err := os.Mkdir(w.dir, 0o755); err != nil && !os.IsExist(err) {
			w.check(err, "mkdir %s", w.dir)
		}
		round := uses[use](w)
		say(told{Ready: true})
		for !w.stop.Load() {
			round()
		}
	}()
	say(told{Calls: w.calls.Load()})
	return 0
}

// program is a running worker, as the test sees it.
type program struct {
	use   string
	cmd   *exec.Cmd
	stdin io.Closer
	ready chan struct{} // closed when it is at work, or has ended
	ended chan struct{}
	calls int64
}

// begin starts a worker on a mount.
func begin(m *mounttest.Mount, use string, seed uint64) *program {
	m.T.Helper()
	self, err := os.Executable()
	m.Must(err)
	if m.Credential != nil { // go test's folder is root's alone
		b, err := os.ReadFile(self)
		m.Must(err)
		self = filepath.Join(filepath.Dir(m.Store), "worker")
		if _, err := os.Stat(self); err != nil {
			m.Must(os.WriteFile(self, b, 0o755))
		}
	}
	p := &program{use: use, ready: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = exec.Command(self, m.Dir, strconv.FormatUint(seed, 10))
	p.cmd.Env = append(os.Environ(), asWorker+"="+use, "GOMAXPROCS=2")
	p.cmd.Dir = "/"
	if m.Credential != nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.Credential}
	}
	stdin, err := p.cmd.StdinPipe()
	m.Must(err)
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	m.Must(err)
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	m.Must(p.cmd.Start())
	m.T.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() {
		defer close(p.ended)
		ready := sync.OnceFunc(func() { close(p.ready) })
		defer ready()
		last := false
		for d := json.NewDecoder(bufio.NewReader(stdout)); ; {
			var t told
			if err := d.Decode(&t); err != nil {
				break
			}
			switch {
			case t.Ready:
				ready()
			case t.Fault != "":
				m.T.Errorf("%s: %s", use, t.Fault)
			default:
				p.calls, last = t.Calls, true
			}
		}
		if err := p.cmd.Wait(); err != nil || !last {
			m.T.Errorf("%s: ended with %v: %s", use, err, stderr.String())
		}
	}()
	return p
}

// end has a worker end after its round, and returns how many calls it made.
func (p *program) end(t *testing.T) int64 {
	t.Helper()
	p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(90 * time.Second):
		t.Errorf("%s hangs", p.use)
	}
	return p.calls
}
