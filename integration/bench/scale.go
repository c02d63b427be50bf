package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/integration/daemon"

	"golang.org/x/sync/errgroup"
)

// The store of the section scale: steps of ten small checkpoints, each of ten tensors that no other file has.
// Half of the steps are one run, the others are runs of a thousand.
const (
	scaleStep    = 10   // files a step
	scaleTensors = 10   // a file
	scaleBytes   = 256  // a tensor
	scaleRun     = 1000 // steps
	scaleListed  = 10000
	scaleModels  = 90000 // files of which --memory has room to know as models
)

// Aims of the section scale. A ms is of wall time, a core-ms of the daemon's processor time.
const (
	aimCleanMount  = "1 s"
	aimKilledMount = "10 s"
	aimAnswer      = "1 s"
	aimSync        = "0.6 ms a file"
	aimPass        = "0.1 core-ms a file"
	aimList        = "1.5x"
)

// scale tells what a store of very many small files and steps takes: to mount, to pack, to ask, and to look
// through.
func (b *bench) scale() error {
	s := &scaleBench{bench: b, steps: max(2, b.files/scaleStep)}
	s.files = s.steps * scaleStep
	if err := s.remount(); err != nil {
		return err
	}
	for _, part := range []func() error{s.write, s.ask, s.list, s.passes, s.mounts} {
		if err := part(); err != nil {
			return err
		}
	}
	table(fmt.Sprintf("%d checkpoints of %d tensors in %d steps; peak memory is meant to stay below --memory, 512 MiB",
		s.files, scaleTensors, s.steps),
		[]string{"", "wall", "a file, ms", "daemon, core-ms a file", "peak memory", "aim"}, s.rows)
	return nil
}

type scaleBench struct {
	*bench
	files, steps int
	rows         [][]string
}

func (s *scaleBench) row(r ...string) {
	s.rows = append(s.rows, r)
	fmt.Fprintln(os.Stderr, strings.Join(r, " | "))
}

// timed tells what do takes, of the clock and of the daemon, which it may end.
func (s *scaleBench) timed(what, aim string, do func() error) error {
	peak := s.watchMemory()
	cpu, start := s.processor(), time.Now()
	err := do()
	wall, spent, most := time.Since(start), s.processor()-cpu, peak()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	each := func(d time.Duration) string { return digits(d.Seconds() * 1e3 / float64(s.files)) }
	cores, memory := "–", "–"
	if most > 0 {
		cores, memory = each(spent), bytesText(most)
	}
	s.row(what, fmt.Sprintf("%.2f s", wall.Seconds()), each(wall), cores, memory, aim)
	return nil
}

// watchMemory begins to look again and again at what --memory bounds, and returns what tells the most.
func (s *scaleBench) watchMemory() (peak func() int64) {
	var most int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		var pids []int
		for tick := time.Tick(50 * time.Millisecond); ; {
			now := anonymous(pids)
			if now == 0 { // not mounted yet, or mounted again
				pids = s.daemon.PIDs()
				now = anonymous(pids)
			}
			most = max(most, now)
			select {
			case <-stop:
				return
			case <-tick:
			}
		}
	}()
	return func() int64 {
		close(stop)
		<-stopped
		return most
	}
}

// anonymous is the memory of processes that is of no file.
func anonymous(pids []int) (sum int64) {
	for _, pid := range pids {
		n, _ := daemon.Memory(pid, "RssAnon") // none of one that ended meanwhile
		sum += n
	}
	return sum
}

// processor is the user and system time of the mount's processes so far.
func (s *scaleBench) processor() (sum time.Duration) {
	for _, pid := range s.daemon.PIDs() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, at := range []int{11, 12} { // utime and stime, in hundredths of a second
			if n, err := strconv.ParseInt(f[at], 10, 64); err == nil {
				sum += time.Duration(n) * 10 * time.Millisecond
			}
		}
	}
	return sum
}

// askedAs times a command of the program, for as long as it takes.
func (s *scaleBench) askedAs(what, aim string, args ...string) error {
	return s.timed(what, aim, func() error { return s.command(args...) })
}

// command runs the program on the mount.
func (s *scaleBench) command(args ...string) error {
	for i, a := range args {
		if a == "mount" || strings.HasPrefix(a, "mount/") {
			args[i] = s.daemon.Dir + strings.TrimPrefix(a, "mount")
		}
	}
	cmd := exec.Command(s.daemon.Bin, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	return nil
}

// step is the folder of step i, from the mount's root on.
func (s *scaleBench) step(i int) string {
	if i < s.steps/2 {
		return filepath.Join("runs/long", fmt.Sprint(i))
	}
	return filepath.Join(fmt.Sprintf("runs/r%d", i/scaleRun), fmt.Sprint(i%scaleRun))
}

// write saves the files by four writers, and packs them.
func (s *scaleBench) write() error {
	var entries []safetensors.Entry
	for i := range scaleTensors {
		entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("layer%d.weight", i),
			DType: formats.F32, Shape: []int64{8, scaleBytes / 32}})
	}
	head, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		return err
	}
	write := func() error {
		var next atomic.Int64
		var g errgroup.Group
		for range 4 {
			g.Go(func() error {
				for i := int(next.Add(1)) - 1; i < s.steps; i = int(next.Add(1)) - 1 {
					if err := s.writeStep(i, head); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
	sync := func() error { return s.command("sync", s.daemon.Dir) }
	if err := s.timed("write, packing beside it", "", write); err != nil {
		return err
	}
	if err := s.timed("`sync` of what was left", aimSync+", with the row before", sync); err != nil {
		return err
	}
	return nil
}

func (s *scaleBench) writeStep(i int, head []byte) error {
	dir := filepath.Join(s.daemon.Dir, s.step(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	r := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)})
	data := make([]byte, len(head)+scaleTensors*scaleBytes)
	copy(data, head)
	for k := range scaleStep {
		_, _ = r.Read(data[len(head):])
		name := fmt.Sprintf("m%d.safetensors", k)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	metrics := fmt.Appendf(nil, `{"val_loss": %g}`, 1/float64(i+1))
	return os.WriteFile(filepath.Join(dir, "metrics.json"), metrics, 0o644)
}

// ask times what answers for the whole store, or a run of it.
func (s *scaleBench) ask() error {
	short := filepath.Join("mount", filepath.Dir(s.step(s.steps-1)))
	for _, how := range []string{", first", ", again"} {
		for _, args := range [][]string{
			{"stats", "mount"}, {"runs", "mount"}, {"log", short}, {"log", "mount/runs/long"},
			{"best", "mount/runs/long", "val_loss"}, {"lineage", short},
		} {
			if args[0] == "lineage" && s.files > scaleModels+scaleStep*scaleRun {
				continue // the last run has none
			}
			aim := aimAnswer
			if how == ", first" || args[0] == "lineage" {
				aim = ""
			}
			what := strings.ReplaceAll(strings.Join(args, " "), "mount", "")
			if err := s.askedAs("`"+strings.TrimSpace(what)+"`"+how, aim, args...); err != nil {
				return err
			}
		}
	}
	for _, how := range []string{", cold", ", warm"} {
		if how == ", cold" { // the daemon has no node, and the kernel none of the mount's
			if err := s.remount(); err != nil {
				return err
			}
		}
		aim := aimAnswer
		if how == ", cold" {
			aim = ""
		}
		if err := s.timed("du -s"+how, aim, func() error {
			return exec.Command("du", "-s", filepath.Join(s.daemon.Dir, "runs")).Run()
		}); err != nil {
			return err
		}
	}
	return nil
}

// list compares `ls -l` of a large folder with go-fuse's loopback.
func (s *scaleBench) list() error {
	stop, loop, err := s.loopback()
	if err != nil {
		return err
	}
	defer stop()
	listed := min(s.files, scaleListed)
	sides := []string{loop, s.daemon.Dir}
	for _, dir := range sides {
		if err := os.Mkdir(filepath.Join(dir, "listed"), 0o755); err != nil {
			return err
		}
		for i := range listed {
			p := filepath.Join(dir, "listed", fmt.Sprintf("f%05d", i))
			if err := os.WriteFile(p, []byte("x"), 0o644); err != nil {
				return err
			}
		}
	}
	var p pair
	for round := range s.rounds {
		for k := range sides {
			at := (k + round) % 2
			start := time.Now()
			if err := exec.Command("ls", "-l", filepath.Join(sides[at], "listed")).Run(); err != nil {
				return err
			}
			rate := 1 / time.Since(start).Seconds()
			if at == 0 {
				p.plain.add(rate)
			} else {
				p.ours.add(rate)
			}
			time.Sleep(1100 * time.Millisecond) // the loopback's attributes hold for a second
		}
	}
	slower := pair{plain: p.ours, ours: p.plain}
	s.row(fmt.Sprintf("ls -l of %d files, to go-fuse's loopback", listed),
		fmt.Sprintf("%.3f s, %s", 1/p.ours.median(), slower.ratio()), "–", "–", "–", aimList)
	return os.RemoveAll(filepath.Join(s.daemon.Dir, "listed"))
}

// passes times what looks through all files. The daemon has counted them before: the last stats is not its
// first.
func (s *scaleBench) passes() error {
	if err := s.command("stats", "mount"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"compact", "--dry-run", "mount"}, {"check", "mount"}, {"evict", "mount"}, {"check", "mount"},
		{"prune", "--grace", "0", "mount"},
	} {
		what := strings.ReplaceAll(strings.Join(args, " "), "mount", "")
		if err := s.askedAs("`"+strings.TrimSpace(what)+"`", aimPass, args...); err != nil {
			return err
		}
	}
	return s.askedAs("`stats`, evicted", aimAnswer, "stats", "mount")
}

// mounts times the start after a clean end, and after a kill of all processes.
func (s *scaleBench) mounts() error {
	if err := s.timed("umount", "", s.daemon.Stop); err != nil {
		return err
	}
	if err := s.timed("mount after a clean end", aimCleanMount, func() error { return s.mount() }); err != nil {
		return err
	}
	if err := s.askedAs("`stats` right after", aimAnswer, "stats", "mount"); err != nil {
		return err
	}
	_ = errors.Join(s.daemon.Kill9(), s.daemon.Clean())
	if err := s.timed("mount after kill -9", aimKilledMount, func() error { return s.mount() }); err != nil {
		return err
	}
	return s.askedAs("`stats` right after the kill", "", "stats", "mount")
}
