package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/engine"
)

// servedModel is a model of -size that inference servers load: from the plain folder, and from stores in
// several states. A store of its own publishes it first, so that the store that is measured has no remote.
type servedModel struct {
	*bench
	plain  string
	engine *engine.Engine
	remote *daemon.Daemon // a machine that never had the bytes
	other  *os.File       // nil: memory is not filled
}

// The step that is packed, that whose local copies stay, and that of the remote.
const (
	servedStep   = "runs/served/1"
	hydratedStep = "runs/hydrated/1"
)

// A servingState is where the model is and what of it is in memory. The states of a round are read one after
// the other: the ratio is to the plain folder in the same round.
type servingState struct {
	name    string
	warm    bool
	prepare func(*servedModel) (dir string, err error)
}

var servingStates = []servingState{
	{"ext4, cold", false, func(s *servedModel) (string, error) { return s.plain, coolBelow(s.plain) }},
	{"packed, cold", false, func(s *servedModel) (string, error) {
		return filepath.Join(s.daemon.Dir, servedStep), s.coolHere()
	}},
	{"hydrated, cold", false, func(s *servedModel) (string, error) {
		return filepath.Join(s.daemon.Dir, hydratedStep), s.coolHere()
	}},
	{"from a remote", false, (*servedModel).fromRemote},
	{"ext4, warm", true, func(s *servedModel) (string, error) { return s.plain, warmBelow(s.plain) }},
	{"packed, warm", true, func(s *servedModel) (string, error) {
		dir := filepath.Join(s.daemon.Dir, servedStep)
		return dir, warmBelow(dir)
	}},
}

// coolHere has nothing of the store in memory; local copies stay where they are pinned.
func (s *servedModel) coolHere() error {
	return errors.Join(s.remount("--hot-size", "0", "--no-views"), s.coolStore())
}

// fromRemote has a new store join the remote.
func (s *servedModel) fromRemote() (string, error) {
	if err := s.remote.Clean(); err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(s.remote.Store), s.remote.Start()); err != nil {
		return "", err
	}
	_, err := s.remote.CLI("fetch", s.remote.Dir)
	return filepath.Join(s.remote.Dir, servedStep), err
}

// serving prints what a model takes to load in each pattern, state and number of processes.
func serving(b *bench) error {
	s := &servedModel{bench: b, plain: filepath.Join(b.plain, "served")}
	if err := s.store(); err != nil {
		return err
	}
	defer func() {
		_ = s.remote.Clean()
		s.engine.Kill()
	}()
	if b.full {
		var err error
		if s.other, err = otherPages(s.dir); err != nil {
			return err
		}
		defer s.other.Close()
	}
	figures := map[int][][]string{}
	_, err := b.scenarios("serving.py", func(pattern string, add func([]string)) error {
		return s.pattern(pattern, func(processes int, row []string) {
			figures[processes] = append(figures[processes], row)
			add(append([]string{strconv.Itoa(processes)}, row...))
		})
	})
	for _, n := range b.processes {
		heads := []string{""}
		for _, state := range s.chosen() {
			heads = append(heads, state.name)
		}
		title := fmt.Sprintf("%d processes that each load a model of %s, over ext4, GB/s of the model, core-s a GB", n,
			bytesText(b.size))
		table(title, heads, figures[n])
	}
	return err
}

// chosen are the states that -states names, and the plain folder.
func (s *servedModel) chosen() (all []servingState) {
	for _, state := range servingStates {
		if len(s.states) == 0 || strings.HasPrefix(state.name, "ext4") ||
			slices.ContainsFunc(s.states, func(o string) bool { return strings.HasPrefix(state.name, o) }) {
			all = append(all, state)
		}
	}
	return all
}

// store saves the model in the plain folder, in the store and in a remote.
func (s *servedModel) store() error {
	if _, err := s.pythonRun("serving.py", "make", s.plain, fmt.Sprint(s.size)); err != nil {
		return err
	}
	copied := func(from, to string) error {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		said, err := exec.Command("cp", "-r", from, to).CombinedOutput()
		if err != nil {
			return fmt.Errorf("cp -r %s %s: %w: %s", from, to, err, said)
		}
		return nil
	}
	engineDir := filepath.Join(s.dir, "engine")
	for name, value := range engine.Environ(filepath.Join(s.dir, "none")) {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	if err := os.Mkdir(engineDir, 0o755); err != nil {
		return err
	}
	var err error
	if s.engine, err = engine.New(engineDir); err != nil {
		return err
	}
	machine := func(name string, flags ...string) *daemon.Daemon {
		dir := filepath.Join(s.dir, name)
		return &daemon.Daemon{Bin: s.daemon.Bin, Store: filepath.Join(dir, "store"),
			Dir: filepath.Join(dir, "mnt"), Log: filepath.Join(dir, "log"),
			Flags: append([]string{"--mkdir", "--no-views", "--remote", s.engine.URL("serving"),
				"--endpoint", s.engine.Endpoint}, flags...)}
	}
	s.remote = machine("there", "--push", "manual", "--hot-size", "0", "--writer", "there")
	origin := machine("origin", "--writer", "origin")
	for _, m := range []*daemon.Daemon{s.remote, origin} {
		if err := os.Mkdir(filepath.Dir(m.Store), 0o755); err != nil {
			return err
		}
	}
	if err := origin.Start(); err != nil {
		return err
	}
	err = copied(s.plain, filepath.Join(origin.Dir, servedStep))
	if err == nil {
		_, err = origin.CLI("sync", "--remote", origin.Dir)
	}
	if err = errors.Join(err, origin.Clean(), os.RemoveAll(filepath.Dir(origin.Store))); err != nil {
		return err
	}

	if err := s.remount("--hot-size", "0", "--no-views"); err != nil {
		return err
	}
	packed, hydrated := filepath.Join(s.daemon.Dir, servedStep), filepath.Join(s.daemon.Dir, hydratedStep)
	if err := errors.Join(copied(s.plain, packed), s.sync(), copied(packed, hydrated)); err != nil {
		return err
	}
	for _, args := range [][]string{{"pin", hydrated}, {"hydrate", hydrated}, {"evict", packed}} {
		if _, err := s.daemon.CLI(args...); err != nil {
			return err
		}
	}
	return s.settle()
}

// pattern measures one with each number of processes.
func (s *servedModel) pattern(name string, add func(processes int, row []string)) error {
	model := filepath.Join(s.plain, "model")
	if strings.HasPrefix(name, "llama") {
		model = filepath.Join(s.plain, "model.gguf")
	}
	size, err := bytesBelow(model)
	if err != nil {
		return err
	}
	var all []*conversation
	defer func() {
		for _, c := range all {
			_ = c.close()
		}
	}()
	for rank := range slices.Max(s.processes) {
		c, err := s.converse("serving.py", name, fmt.Sprint(rank))
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if _, err := load(all, s.plain); err != nil { // what a library does but once is not measured
		return err
	}
	for _, n := range s.processes {
		figures, cores := make([]sample, len(servingStates)), make([]sample, len(servingStates))
		for round := range s.rounds {
			order := s.chosen()
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, state := range order {
				dir, err := state.prepare(s)
				if err != nil {
					return fmt.Errorf("%s: %w", state.name, err)
				}
				if s.other != nil {
					if err := fillMemory(s.other); err != nil {
						return err
					}
				}
				pids := slices.Concat(s.daemon.PIDs(), s.remote.PIDs())
				for _, c := range all[:n] {
					pids = append(pids, c.cmd.Process.Pid)
				}
				before := cpuOf(pids...)
				took, err := load(all[:n], dir)
				if err != nil {
					return fmt.Errorf("%s: %w", state.name, err)
				}
				at := slices.IndexFunc(servingStates,
					func(o servingState) bool { return o.name == state.name })
				figures[at].add(rate(int(size), took))
				cores[at].add((cpuOf(pids...) - before).Seconds() / float64(size) * 1e9)
			}
		}
		row := []string{name}
		var plain sample
		for i, state := range servingStates {
			switch p := (pair{plain, figures[i]}); {
			case strings.HasPrefix(state.name, "ext4"):
				plain = figures[i]
				row = append(row, plain.text()+", "+digits(cores[i].median()))
			case len(p.ours) > 0:
				row = append(row, p.ratio()+", "+digits(p.ours.median())+", "+digits(cores[i].median()))
			}
		}
		add(n, row)
	}
	return nil
}

// load has servers load a model at the same time, and returns when the last is done; what each holds of it is
// given back after that.
func load(servers []*conversation, dir string) (took time.Duration, err error) {
	ask := func(command string) error {
		errs := make([]error, len(servers))
		var all sync.WaitGroup
		for i, c := range servers {
			all.Go(func() {
				var answer struct{ Bytes int64 }
				errs[i] = c.ask(&answer, command)
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
	start := time.Now()
	if err := ask("load " + dir); err != nil {
		return 0, err
	}
	took = time.Since(start)
	return took, ask("drop")
}

// filesBelow calls f for every regular file of a folder, or the file.
func filesBelow(root string, f func(path string) error) error {
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return f(path)
	})
}

func coolBelow(root string) error { return filesBelow(root, cool) }

func warmBelow(root string) error { return filesBelow(root, warm) }

func bytesBelow(root string) (n int64, err error) {
	err = filesBelow(root, func(path string) error {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		n += st.Size
		return err
	})
	return n, err
}
