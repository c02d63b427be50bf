package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// verify compares the whole mount with what was acknowledged. What was in flight is looked at first: the
// models then hold what came of it.
func (r *run) verify() {
	var all sync.WaitGroup
	for i := range r.models {
		all.Go(func() {
			if o := r.inflight[i]; o != nil {
				r.settle(i, o)
				r.inflight[i] = nil
			}
			r.compare(i)
		})
	}
	all.Wait()
	if r.commands["check"] {
		if _, err := r.d.CLI("check", r.d.Dir); err != nil {
			r.lose("check: %v", err)
		}
	}
	r.countComputed()
}

// countComputed notes how many chunks of the store are computed of others, if there were never more.
func (r *run) countComputed() {
	var st struct {
		Encodings []struct {
			Codec   string
			Records int
		}
	}
	out, err := r.d.CLI("stats", "--json", r.d.Dir)
	if err == nil {
		err = json.Unmarshal([]byte(out), &st)
	}
	if err != nil {
		r.lose("stats: %v", err)
	}
	for _, e := range st.Encodings {
		if e.Codec == "recipe" {
			r.seen.computed = max(r.seen.computed, e.Records)
		}
	}
}

// settle finds out what came of an operation that was cut off.
func (r *run) settle(i int, o *op) {
	m := r.models[i]
	after := m.clone()
	after.move(o)
	switch {
	case r.names(m, o):
	case r.names(after, o):
		r.models[i] = after
	default:
		r.lose("writer %d: %s was cut off, and the names are neither as before nor as after: %v %v", i, o.Kind, o.Names, o.Dirs)
	}
	m = r.models[i]
	for id, c := range o.Files {
		m.Next = max(m.Next, id)
		names := m.links(id)
		if len(names) == 0 {
			continue
		}
		at := filepath.Join(r.d.Dir, names[0])
		got, err := os.ReadFile(at)
		if err != nil {
			r.lose("writer %d: after %s was cut off: %v", i, o.Kind, err)
			continue
		}
		rec, ok := caught(c, got)
		if !ok {
			from := []byte(nil)
			if c.From != nil {
				from = c.From.Recipe.Bytes()
			}
			r.lose("writer %d: %s: %s was cut off (%s); against what was: %s; against what should be: %s", i, names[0], o.Kind, c.How,
				parting(from, got), parting(c.To.Recipe.Bytes(), got))
		}
		if rec == nil {
			r.drop(m, names)
			continue
		}
		f := &file{Recipe: *rec, Sum: sum(got)}
		if err := f.stat(at); err != nil {
			r.lose("writer %d: %v", i, err)
		}
		m.Files[id] = f
	}
	m.forget()
}

// names reports whether the names that o is about are as m has them: there or not, and of the file that m
// says.
func (r *run) names(m *model, o *op) bool {
	for name := range o.Names {
		var st unix.Stat_t
		err := unix.Lstat(filepath.Join(r.d.Dir, name), &st)
		if _, ok := m.Names[name]; ok != (err == nil) || err != nil && !errors.Is(err, unix.ENOENT) {
			return false
		}
		if f := m.Files[m.Names[name]]; f != nil && f.Ino != st.Ino {
			return false
		}
	}
	for name := range o.Dirs {
		_, err := os.Lstat(filepath.Join(r.d.Dir, name))
		if _, ok := m.Dirs[name]; ok != (err == nil) {
			return false
		}
	}
	return true
}

// drop removes a file whose bytes have no recipe.
func (r *run) drop(m *model, names []string) {
	for _, name := range names {
		delete(m.Names, name)
		if err := os.Remove(filepath.Join(r.d.Dir, name)); err != nil {
			r.lose("%v", err)
		}
	}
}

// compare looks at every name of a writer.
func (r *run) compare(i int) {
	m := r.models[i]
	if len(m.Dirs) == 0 {
		return
	}
	names, dirs := map[string]bool{}, map[string]bool{}
	top := slices.Min(slices.Collect(maps.Keys(m.Dirs)))
	err := filepath.WalkDir(filepath.Join(r.d.Dir, top), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(r.d.Dir, p)
		if d.IsDir() {
			dirs[rel] = true
		} else {
			names[rel] = true
		}
		return err
	})
	if err != nil {
		r.lose("walk: %v", err)
	}
	for dir := range m.Dirs {
		if !dirs[dir] {
			r.lose("%s: the folder is gone", dir)
		}
	}
	for dir := range dirs {
		if m.Dirs[dir] == absent {
			r.lose("%s: a folder that was removed, or never made", dir)
		}
	}
	for name, id := range m.Names {
		if !names[name] {
			r.lose("%s: gone", name)
			continue
		}
		r.compareFile(m, name, m.Files[id])
	}
	for name := range names {
		if _, ok := m.Names[name]; ok {
			continue
		}
		if !view(m, name) {
			r.lose("%s: a file that was removed, or never made", name)
		} else if _, err := os.ReadFile(filepath.Join(r.d.Dir, name)); err != nil {
			r.lose("a view: %v", err)
		}
	}
}

func (r *run) compareFile(m *model, name string, f *file) {
	at := filepath.Join(r.d.Dir, name)
	p, err := os.ReadFile(at)
	if err != nil {
		r.lose("%v", err)
		return
	}
	if sum(p) != f.Sum {
		r.lose("%s: %s", name, parting(f.Recipe.Bytes(), p))
	}
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		r.lose("%s: %v", name, err)
		return
	}
	links := m.links(m.Names[name])
	if st.Size != f.Size || st.Mode != f.Mode || st.Mtim.Nano() != f.Mtime || st.Ino != f.Ino ||
		int(st.Nlink) != len(links) {
		r.lose("%s: size %d, mode %o, mtime %d, inode %d, %d links; it had size %d, mode %o, mtime %d, inode %d, %d links", name,
			st.Size, st.Mode, st.Mtim.Nano(), st.Ino, st.Nlink, f.Size, f.Mode, f.Mtime, f.Ino, len(links))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.files++
	r.seen.bytes += int64(len(p))
}

// view reports whether name can be a synthesised file beside one that is there.
func view(m *model, name string) bool {
	stem, ok := strings.CutSuffix(name, ".safetensors")
	if !ok || !strings.HasPrefix(name, "runs/") {
		return false
	}
	for _, ext := range []string{".pt", ".pth", ".bin", ".ckpt", ".gguf"} {
		if _, ok := m.Names[path.Clean(stem+ext)]; ok {
			return true
		}
	}
	return false
}
