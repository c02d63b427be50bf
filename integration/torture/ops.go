package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/recipe"
)

// action plans one operation: what it will do, and how. A nil op: it does not apply now.
type action func(w *writer) (*op, func() error, error)

// actions are drawn from as often as their weight says.
var actions = []struct {
	weight int
	plan   action
}{
	{20, (*writer).create}, {10, (*writer).overwrite}, {8, (*writer).appending}, {8, (*writer).patch},
	{6, (*writer).mapped},
	{5, (*writer).truncate}, {8, (*writer).rename}, {5, (*writer).link}, {8, (*writer).unlink},
	{6, (*writer).copyRange},
	{3, (*writer).chmod}, {3, (*writer).touch}, {6, (*writer).logging}, {3, (*writer).mkdir},
	{3, (*writer).renameDir},
	{3, (*writer).rmdir}, {8, (*writer).readBack}, {1, (*writer).pause},
}

func (w *writer) plan() (*op, func() error, error) {
	if len(w.Dirs) == 0 {
		o := &op{Kind: "mkdir", Dirs: map[string]move{w.Dir: {absent, 1}}}
		return o, func() error { return os.MkdirAll(w.at(w.Dir), 0o755) }, nil
	}
	if len(w.Names) >= w.MaxFiles {
		return w.unlink()
	}
	sum := 0
	for _, a := range actions {
		sum += a.weight
	}
	n := w.rng.IntN(sum)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			return a.plan(w)
		}
	}
	panic("no action")
}

// any draws a name, "" if there is none. What is held open for appending is left alone but for its name.
func (w *writer) any(ok func(name string) bool) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(w.Names)),
		func(n string) bool { return ok != nil && !ok(n) })
	if len(names) == 0 {
		return ""
	}
	return names[w.rng.IntN(len(names))]
}

func (w *writer) quiet(name string) bool { return w.held == nil || w.Names[name] != w.id }

func (w *writer) anyDir() string {
	dirs := slices.Sorted(maps.Keys(w.Dirs))
	return dirs[w.rng.IntN(len(dirs))]
}

// newName is one that is not taken.
func (w *writer) newName(ext string) string {
	for {
		name := path.Join(w.anyDir(), fmt.Sprintf("f%d%s", w.rng.IntN(1000), ext))
		if _, taken := w.Names[name]; !taken {
			return name
		}
	}
}

func (w *writer) fresh() int { w.Next++; return w.Next }

// size is mostly small, sometimes big, sometimes at an edge.
func (w *writer) size() int {
	switch w.rng.IntN(10) {
	case 0:
		return w.rng.IntN(2)
	case 1, 2, 3:
		return w.rng.IntN(60_000)
	case 4:
		return 64<<10 - 1 + w.rng.IntN(3)
	default:
		return 64<<10 + w.rng.IntN(max(1, w.MaxSize-64<<10))
	}
}

func (w *writer) recipe() (r recipe.Recipe, ext string) {
	r = recipe.Recipe{Kind: recipe.Kinds[w.rng.IntN(len(recipe.Kinds))], Seed: 1 + w.rng.Uint64N(5),
		Step: w.rng.Uint64N(50), Size: w.size()}
	switch r.Kind {
	case recipe.Torch:
		ext = ".pt"
	case recipe.Safetensors:
		ext = ".safetensors"
	case recipe.Half, recipe.Quant, recipe.Merge: // few models, so that many files are made of one
		ext, r.Seed, r.Size = ".safetensors", 1+r.Seed%2, 64<<10<<w.rng.IntN(2)
		if r.Kind == recipe.Quant {
			ext = ".gguf"
		}
	case recipe.Noise:
		ext, r.Seed = ".bin", w.rng.Uint64()
	case recipe.Text:
		ext = ".txt"
	}
	return r, ext
}

func madeOf(r recipe.Recipe) (*file, []byte) {
	p := r.Bytes()
	return &file{Recipe: r, Sum: sum(p)}, p
}

// flags are those of an open; some writers ask for every write to be durable.
func (w *writer) flags(f int) int {
	if w.rng.IntN(20) == 0 {
		f |= unix.O_SYNC
	}
	return f
}

// write writes p at off in pieces, and closes f, durable or not.
func (w *writer) write(f *os.File, p []byte, off int64, fsync bool) error {
	piece := 1 + w.rng.IntN(512<<10)
	for len(p) > 0 {
		n := min(piece, len(p))
		if _, err := f.WriteAt(p[:n], off); err != nil {
			f.Close()
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	if fsync {
		if err := f.Sync(); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}

func (w *writer) create() (*op, func() error, error) {
	r, ext := w.recipe()
	name, id := w.newName(ext), w.fresh()
	to, p := madeOf(r)
	o := &op{Kind: "create", Names: map[string]move{name: {absent, id}},
		Files: map[int]change{id: {nil, to, fresh}}, Fsync: w.rng.IntN(4) == 0}
	mode := os.FileMode([]uint32{0o644, 0o600, 0o664, 0o444}[w.rng.IntN(4)])
	return o, func() error {
		f, err := os.OpenFile(w.at(name), w.flags(os.O_CREATE|os.O_EXCL|os.O_RDWR), mode)
		if err != nil {
			return err
		}
		return w.write(f, p, 0, o.Fsync)
	}, nil
}

// changing plans an operation on the bytes of an existing file.
func (w *writer) changing(kind, how string, edit func(size int) recipe.Edit,
	do func(f *os.File, e recipe.Edit, fsync bool) error) (*op, func() error, error) {
	name := w.any(w.quiet)
	if name == "" {
		return nil, nil, nil
	}
	id := w.Names[name]
	from := w.Files[id]
	if len(from.Recipe.Edits) > 6 {
		return nil, nil, nil
	}
	if w.rng.IntN(2) == 0 {
		if _, err := w.read(name); err != nil {
			return nil, nil, err
		}
	}
	e := edit(int(from.Size))
	to, _ := madeOf(from.Recipe.With(e))
	o := &op{Kind: kind, Files: map[int]change{id: {from, to, how}}, Fsync: w.rng.IntN(4) == 0}
	return o, func() error {
		f, err := os.OpenFile(w.at(name), w.flags(os.O_RDWR), 0)
		if err != nil {
			return err
		}
		return do(f, e, o.Fsync)
	}, nil
}

func (w *writer) writeEdit(f *os.File, e recipe.Edit, fsync bool) error {
	return w.write(f, e.Data(), int64(e.Off), fsync)
}

func (w *writer) appending() (*op, func() error, error) {
	return w.changing("append", grown, func(size int) recipe.Edit {
		return recipe.Edit{Off: size, N: 1 + w.rng.IntN(200_000), Seed: w.rng.Uint64()}
	}, w.writeEdit)
}

func (w *writer) patch() (*op, func() error, error) {
	return w.changing("patch", mixed, func(size int) recipe.Edit {
		return recipe.Edit{Off: w.rng.IntN(size + 5000), N: 1 + w.rng.IntN(100_000), Seed: w.rng.Uint64()}
	}, w.writeEdit)
}

func (w *writer) truncate() (*op, func() error, error) {
	return w.changing("truncate", whole, func(size int) recipe.Edit {
		return recipe.Edit{Off: w.rng.IntN(size + 50_000), Cut: true}
	}, func(f *os.File, e recipe.Edit, fsync bool) error {
		if err := f.Truncate(int64(e.Off)); err != nil {
			f.Close()
			return err
		}
		return w.write(f, nil, 0, fsync)
	})
}

// mapped writes through a mapping, which outlives the descriptor or not.
func (w *writer) mapped() (*op, func() error, error) {
	n := 0
	o, do, err := w.changing("mmap", mixed, func(size int) recipe.Edit {
		n = size
		off := w.rng.IntN(max(1, size))
		return recipe.Edit{Off: off, N: min(size-off, 1+w.rng.IntN(300_000)), Seed: w.rng.Uint64()}
	}, func(f *os.File, e recipe.Edit, fsync bool) error {
		p, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			f.Close()
			return err
		}
		defer unix.Munmap(p)
		closeFirst := w.rng.IntN(3) == 0
		if closeFirst {
			if err := f.Close(); err != nil {
				return err
			}
		}
		copy(p[e.Off:], e.Data())
		// What is in a mapping is acknowledged by msync, or by the close of a descriptor after it.
		if fsync || closeFirst {
			if err := unix.Msync(p, unix.MS_SYNC); err != nil {
				return err
			}
		}
		if closeFirst {
			return nil
		}
		return f.Close()
	})
	if o != nil && n == 0 {
		return nil, nil, nil
	}
	return o, do, err
}

// overwrite replaces a file's bytes with O_TRUNC, as torch.save to the same path does.
func (w *writer) overwrite() (*op, func() error, error) {
	name := w.any(w.quiet)
	if name == "" {
		return nil, nil, nil
	}
	id := w.Names[name]
	r, _ := w.recipe()
	to, p := madeOf(r)
	o := &op{Kind: "overwrite", Files: map[int]change{id: {w.Files[id], to, fresh}},
		Fsync: w.rng.IntN(4) == 0}
	return o, func() error {
		f, err := os.OpenFile(w.at(name), w.flags(os.O_TRUNC|os.O_WRONLY), 0)
		if err != nil {
			return err
		}
		return w.write(f, p, 0, o.Fsync)
	}, nil
}

// rename moves a file to a new name, or over another file: what temp+rename does once temp is written.
func (w *writer) rename() (*op, func() error, error) {
	from := w.any(nil)
	if from == "" {
		return nil, nil, nil
	}
	to := w.any(func(n string) bool { return w.Names[n] != w.Names[from] && w.quiet(n) })
	if to == "" || w.rng.IntN(3) == 0 {
		to = w.newName(path.Ext(from))
	}
	o := &op{Kind: "rename", Names: map[string]move{from: {w.Names[from], absent},
		to: {w.Names[to], w.Names[from]}}}
	flags := uint(0)
	if w.Names[to] != absent && w.rng.IntN(4) == 0 {
		o.Names[from] = move{w.Names[from], w.Names[to]}
		o.Kind, flags = "exchange", unix.RENAME_EXCHANGE
	}
	return o, func() error {
		return unix.Renameat2(unix.AT_FDCWD, w.at(from), unix.AT_FDCWD,
			w.at(to), flags)
	}, nil
}

func (w *writer) link() (*op, func() error, error) {
	from := w.any(nil)
	if from == "" {
		return nil, nil, nil
	}
	to := w.newName(path.Ext(from))
	o := &op{Kind: "link", Names: map[string]move{to: {absent, w.Names[from]}}}
	return o, func() error { return os.Link(w.at(from), w.at(to)) }, nil
}

func (w *writer) unlink() (*op, func() error, error) {
	name := w.any(w.quiet)
	if name == "" {
		return nil, nil, nil
	}
	o := &op{Kind: "unlink", Names: map[string]move{name: {w.Names[name], absent}}}
	return o, func() error { return unix.Unlink(w.at(name)) }, nil
}

// copyRange copies a whole file as cp does.
func (w *writer) copyRange() (*op, func() error, error) {
	from := w.any(w.quiet)
	if from == "" {
		return nil, nil, nil
	}
	f := w.Files[w.Names[from]]
	name, id := w.newName(path.Ext(from)), w.fresh()
	to := &file{Recipe: f.Recipe, Sum: f.Sum}
	o := &op{Kind: "copy", Names: map[string]move{name: {absent, id}},
		Files: map[int]change{id: {nil, to, fresh}}}
	return o, func() error {
		in, err := os.Open(w.at(from))
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(w.at(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		for {
			n, err := unix.CopyFileRange(int(in.Fd()), nil, int(out.Fd()), nil, 1<<30, 0)
			if err != nil {
				out.Close()
				return fmt.Errorf("copy_file_range: %w", err)
			}
			if n == 0 {
				return out.Close()
			}
		}
	}, nil
}

// attributes plans an operation that leaves the bytes alone.
func (w *writer) attributes(kind string, do func(path string) error) (*op, func() error, error) {
	name := w.any(w.quiet)
	if name == "" {
		return nil, nil, nil
	}
	id := w.Names[name]
	to := *w.Files[id]
	o := &op{Kind: kind, Files: map[int]change{id: {w.Files[id], &to, whole}}}
	return o, func() error { return do(w.at(name)) }, nil
}

func (w *writer) chmod() (*op, func() error, error) {
	mode := os.FileMode([]uint32{0o644, 0o600, 0o755, 0o400}[w.rng.IntN(4)])
	return w.attributes("chmod", func(path string) error { return os.Chmod(path, mode) })
}

func (w *writer) touch() (*op, func() error, error) {
	when := time.Unix(1_500_000_000+w.rng.Int64N(1e8), w.rng.Int64N(1e9))
	return w.attributes("utimes", func(path string) error { return os.Chtimes(path, when, when) })
}

// logging appends to a file that stays open over many operations.
func (w *writer) logging() (*op, func() error, error) {
	if w.held == nil {
		name, id := w.newName(".log"), w.fresh()
		to, p := madeOf(recipe.Recipe{Kind: recipe.Noise, Seed: w.rng.Uint64(), Size: 1 + w.rng.IntN(5000)})
		o := &op{Kind: "open a log", Names: map[string]move{name: {absent, id}},
			Files: map[int]change{id: {nil, to, fresh}}}
		return o, func() (err error) {
			w.held, err = os.OpenFile(w.at(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
			if err == nil {
				_, err = w.held.Write(p)
			}
			w.id = id
			return err
		}, nil
	}
	from := w.Files[w.id]
	if len(from.Recipe.Edits) > 20 {
		to := *from
		return &op{Kind: "close a log", Files: map[int]change{w.id: {from, &to, whole}}}, func() error {
			f := w.held
			w.held = nil
			return f.Close()
		}, nil
	}
	e := recipe.Edit{Off: int(from.Size), N: 1 + w.rng.IntN(20_000), Seed: w.rng.Uint64()}
	to, _ := madeOf(from.Recipe.With(e))
	o := &op{Kind: "log", Files: map[int]change{w.id: {from, to, grown}}, Fsync: w.rng.IntN(4) == 0}
	return o, func() error {
		_, err := w.held.Write(e.Data())
		if err == nil && o.Fsync {
			err = w.held.Sync()
		}
		return err
	}, nil
}

func (w *writer) mkdir() (*op, func() error, error) {
	dir := path.Join(w.anyDir(), fmt.Sprintf("d%d", w.rng.IntN(100)))
	if w.Dirs[dir] != absent || len(w.Dirs) > 6 || strings.Count(dir, "/") > 6 {
		return nil, nil, nil
	}
	o := &op{Kind: "mkdir", Dirs: map[string]move{dir: {absent, 1}}}
	return o, func() error { return os.Mkdir(w.at(dir), 0o755) }, nil
}

// renameDir moves a folder with all that is in it, as who saves a checkpoint of several files does at the
// end.
func (w *writer) renameDir() (*op, func() error, error) {
	from, to := w.anyDir(), path.Join(w.Dir, fmt.Sprintf("d%d", w.rng.IntN(100)))
	if from == w.Dir || w.Dirs[to] != absent || strings.HasPrefix(to, from+"/") {
		return nil, nil, nil
	}
	o := &op{Kind: "rename a folder", Dirs: map[string]move{}, Names: map[string]move{}}
	moved := func(have map[string]int, moves map[string]move) {
		for name, id := range have {
			if name == from || strings.HasPrefix(name, from+"/") {
				moves[name] = move{id, absent}
				moves[to+name[len(from):]] = move{absent, id}
			}
		}
	}
	moved(w.Dirs, o.Dirs)
	moved(w.Names, o.Names)
	return o, func() error { return os.Rename(w.at(from), w.at(to)) }, nil
}

func (w *writer) rmdir() (*op, func() error, error) {
	dir := w.anyDir()
	below := func(name string) bool { return strings.HasPrefix(name, dir+"/") }
	for name := range w.Dirs {
		if below(name) {
			return nil, nil, nil
		}
	}
	if dir == w.Dir || w.any(below) != "" {
		return nil, nil, nil
	}
	o := &op{Kind: "rmdir", Dirs: map[string]move{dir: {1, absent}}}
	return o, func() error { return unix.Rmdir(w.at(dir)) }, nil
}

// readBack reads a file and changes nothing.
func (w *writer) readBack() (*op, func() error, error) {
	if name := w.any(nil); name != "" {
		_, err := w.read(name)
		return nil, nil, err
	}
	return nil, nil, nil
}

// pause lets the background come to its work.
func (w *writer) pause() (*op, func() error, error) {
	time.Sleep(time.Duration(w.rng.IntN(100)) * time.Millisecond)
	return nil, nil, nil
}
