package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
)

// patience bounds one cycle. What takes longer hangs.
const patience = 4 * time.Minute

// run is one run of the whole.
type run struct {
	options
	rng      *rand.Rand
	d        *daemon.Daemon
	store    int // how many there have been
	log      *os.File
	logged   int64 // bytes of the daemon's log that were looked at
	commands map[string]bool

	mu       sync.Mutex
	models   []*model
	inflight []*op
	dying    atomic.Bool // the daemon is being ended: errors are expected
	outlived atomic.Bool // the daemon is killed and the mount lives on: commands may be cut off
	took     []time.Duration
	losses   []string
	alone    alone

	cycles, kills, unmounts, interrupted, stores int
	acked, fsynced, ran                          int
	seen                                         seen
}

// seen counts what was compared with the log, and the most chunks of a store that were computed of others.
type seen struct {
	files, computed int
	bytes           int64
}

// alone counts the deaths of the daemon alone, and what writers saw of them.
type alone struct{ struck, failed, wrong int }

func newRun(o options) *run {
	return &run{options: o, rng: rand.New(rand.NewPCG(o.Seed, 0))}
}

func (r *run) summary() string {
	s := fmt.Sprintf("torture: seed %d: %d cycles survived (%d kill -9, %d of them of a mount that was starting; %d unmounts; %d stores), "+
		"%d operations acknowledged (%d by fsync), %d commands beside them, %d files verified (%.1f GB), "+
		"up to %d chunks computed of others, %d losses",
		r.Seed, r.cycles, r.kills, r.interrupted, r.unmounts, r.stores, r.acked, r.fsynced, r.ran,
		r.seen.files, float64(r.seen.bytes)/1e9, r.seen.computed, len(r.losses))
	if r.alone.struck == 0 {
		return s
	}
	s += fmt.Sprintf("\ntorture: %d kill -9 of the daemon alone, which the mount outlived: %d failed operations, %d wrong files",
		r.alone.struck, r.alone.failed, r.alone.wrong)
	if slices.Sort(r.took); len(r.took) > 0 {
		s += fmt.Sprintf(", from the kill to serving median %v, 90 %% %v, most %v",
			r.took[len(r.took)/2], r.took[len(r.took)*9/10], r.took[len(r.took)-1])
	}
	return s
}

// lose notes a loss; the run goes on to the end of the cycle, so that all of it is seen.
func (r *run) lose(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := fmt.Sprintf(format, args...)
	r.losses = append(r.losses, s)
	fmt.Fprintf(os.Stderr, "torture: cycle %d: LOSS: %s\n", r.cycles, s)
}

// run runs until time or cycles are over, or something was lost.
func (r *run) run() (err error) {
	r.commands = known(r.Bin)
	if r.log, err = os.Create(filepath.Join(r.Dir, "operations.log")); err != nil {
		return err
	}
	defer r.log.Close()
	end := time.Now().Add(r.Time)
	if err := r.newStore(); err != nil {
		return err
	}
	defer func() { _ = r.d.Clean() }()
	for (r.cycles == 0 || time.Now().Before(end)) && (r.options.cycles == 0 || r.cycles < r.options.cycles) {
		err := r.cycle()
		if len(r.losses) > 0 || err != nil {
			_ = r.d.Clean()
			if err == nil {
				err = fmt.Errorf("%d losses, the first: %s", len(r.losses), r.losses[0])
			}
			return fmt.Errorf("seed %d, cycle %d: %w\nkept: %s", r.Seed, r.cycles, err, r.Dir)
		}
		r.cycles++
	}
	return r.d.Stop()
}

// newStore begins again with an empty store.
func (r *run) newStore() error {
	if r.d != nil {
		if err := r.d.Stop(); err != nil {
			return err
		}
		if err := os.RemoveAll(r.d.Store); err != nil {
			return err
		}
	}
	r.store++
	r.stores++
	r.d = &daemon.Daemon{Bin: r.Bin, Store: filepath.Join(r.Dir, fmt.Sprint("store", r.store)),
		Dir: filepath.Join(r.Dir, "mnt"), Log: filepath.Join(r.Dir, "daemon.log")}
	if err := os.MkdirAll(r.d.Dir, 0o755); err != nil {
		return err
	}
	r.models, r.inflight = nil, make([]*op, r.writers)
	for range r.writers {
		r.models = append(r.models, newModel())
	}
	return r.mount()
}

// mount mounts, in one of the ways there are.
func (r *run) mount() error {
	r.d.Flags = []string{"--hot-size", []string{"0", "4MiB", "1GiB"}[r.rng.IntN(3)]}
	if r.rng.IntN(2) == 0 {
		r.d.Flags = append(r.d.Flags, "--no-passthrough")
	}
	r.note("mount %v", r.d.Flags)
	return r.d.Start()
}

// note writes to the log of operations what is done beside them.
func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.log, "# cycle %d: %s\n", r.cycles, fmt.Sprintf(format, args...))
}

// cycle is one life of the daemon: work, its end, the next one's start, and a look at everything.
func (r *run) cycle() error {
	watchdog := time.AfterFunc(patience, func() {
		r.lose("hangs: nothing came to an end for %v; the stacks are in the daemon's log", patience)
		r.d.Dump()
		_ = r.d.Clean()
	})
	defer watchdog.Stop()

	r.dying.Store(false)
	r.outlived.Store(false)
	ws, err := r.startWriters()
	if err != nil {
		return err
	}
	stopCommands := make(chan struct{})
	var commands sync.WaitGroup
	seed := r.rng.Uint64()
	commands.Go(func() { r.runCommands(rand.New(rand.NewPCG(seed, 2)), stopCommands) })
	outlive := r.outlive || r.rng.IntN(2) == 0
	if outlive {
		if err := r.strike(); err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(r.rng.Int64N(int64(1500 * time.Millisecond)))) // the moment of the blow
	if r.options.outlive {
		return r.endOutlived(ws, stopCommands, &commands)
	}

	inOrder := r.rng.IntN(4) == 0
	if inOrder || r.rng.IntN(4) == 0 { // nothing in flight, but much to pack
		for _, w := range ws {
			w.stdin.Close()
		}
		for _, w := range ws {
			w.wait()
		}
		time.Sleep(time.Duration(r.rng.Int64N(int64(300 * time.Millisecond))))
	}
	if inOrder {
		close(stopCommands)
		commands.Wait()
		r.unmounts++
		r.note("umount")
		if err := r.d.Stop(); err != nil {
			return err
		}
	} else {
		r.dying.Store(true)
		r.kills++
		r.note("kill -9")
		if err := r.d.Kill9(); err != nil {
			return err
		}
		close(stopCommands)
		commands.Wait()
	}
	for _, w := range ws {
		w.wait()
	}
	if err := r.log.Sync(); err != nil {
		return err
	}
	for range r.rng.IntN(3) {
		if err := r.interruptedStart(); err != nil {
			return err
		}
	}
	r.lookAtLog()
	if err := r.mount(); err != nil {
		return err
	}
	r.dying.Store(false)
	r.verify()
	r.lookAtLog()
	return r.boundStore()
}

// strike kills the daemon alone, over and over.
func (r *run) strike() error {
	r.outlived.Store(true)
	for range 1 + r.rng.IntN(5) {
		time.Sleep(time.Duration(r.rng.Int64N(int64(300 * time.Millisecond))))
		r.note("kill -9 of the daemon alone")
		r.alone.struck++
		if r.rng.IntN(5) == 0 { // the next may not be ready yet
			if _, err := r.d.StrikeDaemon(unix.SIGKILL); err != nil {
				return err
			}
			continue
		}
		if err := r.d.KillDaemon(); err != nil {
			return err
		}
	}
	return nil
}

// endOutlived ends a cycle in which nothing but the daemon is killed: everything is compared on the mount
// that outlived it.
func (r *run) endOutlived(ws []*process, stopCommands chan struct{}, commands *sync.WaitGroup) error {
	for _, w := range ws {
		w.stdin.Close()
	}
	for _, w := range ws {
		w.wait()
	}
	close(stopCommands)
	commands.Wait()
	r.outlived.Store(false)
	if err := r.log.Sync(); err != nil {
		return err
	}
	r.verify()
	r.lookAtLog()
	if r.rng.IntN(4) == 0 {
		r.unmounts++
		if err := r.d.Stop(); err != nil {
			return err
		}
		if err := r.mount(); err != nil {
			return err
		}
	}
	return r.boundStore()
}

// interruptedStart kills a daemon that has just begun to mount.
func (r *run) interruptedStart() error {
	log, err := os.OpenFile(r.d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(r.d.Bin, "mount", "-f", r.d.Store, r.d.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(time.Duration(r.rng.Int64N(int64(120 * time.Millisecond))))
	r.kills++
	r.interrupted++
	r.note("kill -9 of a mount that starts")
	_ = cmd.Process.Kill() // the holder, which would start another daemon
	_ = cmd.Wait()
	return r.d.End()
}

// process is a running writer.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	wait  func()
}

func (r *run) startWriters() ([]*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ws []*process
	for i, m := range r.models {
		dir := fmt.Sprint("w", i)
		if i%2 == 1 {
			dir = "runs/" + dir
		}
		j := job{Mount: r.d.Dir, Dir: dir, Seed: r.rng.Uint64(), MaxFiles: r.files, MaxSize: r.size, Model: m}
		told, err := json.Marshal(j)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), asWriter+"=1", "GOMAXPROCS=2")
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		w := &process{cmd: cmd, stdin: stdin}
		w.wait = sync.OnceFunc(func() {
			r.hear(i, stdout)
			stdin.Close()
			if err := cmd.Wait(); err != nil && !r.dying.Load() {
				r.lose("writer %d: %v", i, err)
			}
		})
		go w.wait()
		if _, err := stdin.Write(append(told, '\n')); err != nil {
			return nil, err
		}
		ws = append(ws, w)
	}
	return ws, nil
}

// hear keeps the model of a writer up to date with what it says, until it ends.
func (r *run) hear(i int, from io.Reader) {
	dec := json.NewDecoder(bufio.NewReader(from))
	for {
		var l line
		if err := dec.Decode(&l); err != nil {
			return
		}
		l.Writer = i
		logged, err := json.Marshal(l)
		if err != nil {
			panic(err)
		}
		r.mu.Lock()
		_, err = r.log.Write(append(logged, '\n'))
		switch {
		case l.Begin != nil:
			r.inflight[i] = l.Begin
		case l.Done != nil:
			r.models[i].apply(l.Done)
			r.inflight[i] = nil
			r.acked++
			if l.Done.Fsync {
				r.fsynced++
			}
		}
		r.mu.Unlock()
		switch {
		case err != nil:
			r.lose("the log outside: %v", err)
		case l.Wrong != "":
			r.alone.wrong++
			r.lose("writer %d: %s", i, l.Wrong)
		case l.Failed != "" && !r.dying.Load():
			r.alone.failed++
			r.lose("writer %d failed beside a living daemon: %s", i, l.Failed)
		}
	}
}

// takenOver is what the daemon's log says of the time between a kill and the next daemon.
var takenOver = regexp.MustCompile(`the mount was taken over" after=(\S+)`)

// lookAtLog reads what the daemon reported since the last time.
func (r *run) lookAtLog() {
	f, err := os.Open(r.d.Log)
	if err != nil {
		return
	}
	defer f.Close()
	p, err := io.ReadAll(io.NewSectionReader(f, r.logged, 1<<30))
	if err != nil {
		r.lose("the daemon's log: %v", err)
	}
	r.logged += int64(len(p))
	for _, found := range takenOver.FindAllSubmatch(p, -1) {
		if d, err := time.ParseDuration(string(found[1])); err == nil {
			r.took = append(r.took, d)
		}
	}
	for _, bad := range []string{"panic", "fatal error", "DATA RACE", "read failed", "SIGSEGV"} {
		if i := strings.Index(string(p), bad); i >= 0 {
			l, _, _ := strings.Cut(string(p[i:]), "\n")
			r.lose("the daemon's log speaks of: %s", l)
		}
	}
}

// boundStore keeps the store from filling the disk.
func (r *run) boundStore() error {
	if size(r.d.Store) < r.maxStore {
		return nil
	}
	if r.commands["prune"] {
		if _, err := r.d.CLI("prune", "--grace", "0", r.d.Dir); err != nil {
			return err
		}
		if size(r.d.Store) < r.maxStore/2 {
			return nil
		}
	}
	return r.newStore()
}

// size is what a folder takes on the disk, in bytes.
func size(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			n += st.Blocks * 512
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return n
}
