package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// job is what a writer is told when it starts, in one line on its standard input. The input's end asks it to
// stop.
type job struct {
	Mount    string `json:"mount"`
	Dir      string `json:"dir"` // its folder, relative to the mount
	Seed     uint64 `json:"seed"`
	MaxFiles int    `json:"max_files"`
	MaxSize  int    `json:"max_size"` // of its biggest files, bytes
	Model    *model `json:"model"`
}

// line is what a writer says on its standard output: an operation that begins, one that is done, or why it
// gave up.
type line struct {
	Writer int    `json:"writer"` // who said it; set by who hears it
	Begin  *op    `json:"begin,omitempty"`
	Done   *op    `json:"done,omitempty"`
	Failed string `json:"failed,omitempty"`
	Wrong  string `json:"wrong,omitempty"` // it read something that nobody wrote
}

// writer is one process that saves, changes, links, moves and deletes files below its folder.
type writer struct {
	job
	*model
	rng  *rand.Rand
	held *os.File // a log that is being appended to, over many operations
	id   int      // of held
}

// errWrong: bytes were read that nobody wrote.
var errWrong = errors.New("wrong bytes")

// writerMain is the life of a writer process.
func writerMain() int {
	in := bufio.NewReader(os.Stdin)
	var j job
	first, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, &j)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		return 2
	}
	unix.Umask(0)
	w := &writer{job: j, model: j.Model, rng: rand.New(rand.NewPCG(j.Seed, 1))}
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop.Store(true)
	}()
	out := json.NewEncoder(os.Stdout)
	for !stop.Load() {
		if err := w.step(out); err != nil {
			l := line{Failed: err.Error()}
			if errors.Is(err, errWrong) {
				l = line{Wrong: err.Error()}
			}
			_ = out.Encode(l)
			return 1
		}
	}
	if w.held != nil {
		if err := w.held.Close(); err != nil {
			_ = out.Encode(line{Failed: err.Error()})
			return 1
		}
	}
	return 0
}

// step does one operation. A fault in a mapping, as a dead daemon gives it, is an error like others.
func (w *writer) step(out *json.Encoder) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if fault, ok := r.(interface{ Addr() uintptr }); ok {
				err = fmt.Errorf("fault at %#x", fault.Addr())
				return
			}
			panic(r)
		}
	}()
	o, do, err := w.plan()
	if err != nil || o == nil {
		return err
	}
	if err := out.Encode(line{Begin: o}); err != nil {
		return err
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", o.Kind, err)
	}
	if err := w.look(o); err != nil {
		return err
	}
	w.apply(o)
	return out.Encode(line{Done: o})
}

// look fills in what stat says of the files that o changed.
func (w *writer) look(o *op) error {
	after := w.clone()
	after.move(o)
	for id, c := range o.Files {
		names := after.links(id)
		if len(names) == 0 {
			continue
		}
		if err := c.To.stat(filepath.Join(w.Mount, names[0])); err != nil {
			return fmt.Errorf("%s, done: %w", o.Kind, err)
		}
		if want := int64(len(c.To.Recipe.Bytes())); c.To.Size != want {
			return fmt.Errorf("%w: %s has %d bytes after %s, want %d", errWrong, names[0], c.To.Size, o.Kind, want)
		}
	}
	return nil
}

func (f *file) stat(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	f.Size, f.Mode, f.Mtime, f.Ino = st.Size, st.Mode, st.Mtim.Nano(), st.Ino
	return nil
}

// read reads a file as it must be.
func (w *writer) read(name string) ([]byte, error) {
	p, err := os.ReadFile(w.at(name))
	if err != nil {
		return nil, err
	}
	f := w.Files[w.Names[name]]
	if sum(p) != f.Sum {
		return nil, fmt.Errorf("%w: %s: %s", errWrong, name, parting(f.Recipe.Bytes(), p))
	}
	return p, nil
}

func (w *writer) at(name string) string { return filepath.Join(w.Mount, name) }

// parting tells where two byte strings part.
func parting(want, got []byte) string {
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	zeros := 0
	for j := i; j < len(got) && got[j] == 0; j++ {
		zeros++
	}
	return fmt.Sprintf("%d bytes, want %d; they part at %d (%d zeros from there)", len(got), len(want), i, zeros)
}
