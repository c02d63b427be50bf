package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ckptfs/integration/daemon"
)

// rest has all machines publish and pull, and compares everything.
func (r *run) rest() error {
	r.say("rest")
	for _, m := range r.machines {
		if err := r.patiently(m.published); err != nil {
			return err
		}
	}
	for _, m := range r.machines {
		if err := r.patiently(m.pulled); err != nil {
			return err
		}
	}
	c := &machine{r: r, number: -1, Daemon: &daemon.Daemon{Bin: r.Bin,
		Store: filepath.Join(r.Dir, "clone.store"), Dir: filepath.Join(r.Dir, "clone"),
		Log: filepath.Join(r.Dir, "clone.log")}}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	if err := r.clone(c.Store, "clone"); err != nil {
		return err
	}
	defer os.RemoveAll(c.Store)
	if err := c.mount(); err != nil {
		return err
	}
	defer c.Clean()
	if err := r.patiently(c.pulled); err != nil {
		return err
	}
	found, err := c.read()
	if err != nil {
		return err
	}
	for _, m := range r.machines {
		has, err := m.read()
		if err != nil {
			return err
		}
		for p, sum := range has {
			if found[p] != sum && !(found[p] == "" && r.ledger.removedElsewhere(p, m.number)) {
				r.lose("machine %d has %.12s of %s, the clone %.12s", m.number, sum, p, found[p])
			}
		}
		for p := range found {
			if has[p] == "" {
				r.lose("machine %d has not %s", m.number, p)
			}
		}
		m.lookAtLog()
	}
	sizes, err := c.conflicts()
	if err != nil {
		return err
	}
	for _, w := range r.ledger.check(found, sizes) {
		r.lose("%s", w)
	}
	if len(r.losses) > 0 {
		return nil
	}
	if o := r.command(commandTime, "check", "--read-data", c.Dir); o.code != 0 {
		r.lose("check of a clone: %d: %s%s", o.code, o.out, o.err)
	}
	return c.Stop()
}

// read reads all files below runs/: their sums by path.
func (m *machine) read() (map[string]string, error) {
	found := map[string]string{}
	err := filepath.WalkDir(m.at("runs"), func(p string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) && p == m.at("runs") {
			return filepath.SkipAll
		}
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".next-") {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(m.Dir, p)
		found[rel] = sumOf(b)
		m.r.files.Add(1)
		return err
	})
	return found, err
}

// conflicts are the sizes of all versions of names of which there are several.
func (m *machine) conflicts() (map[string][]int, error) {
	o := m.r.command(commandTime, "remote", "conflicts", "--json", m.Dir)
	if o.code != 0 {
		return nil, fmt.Errorf("remote conflicts: %d: %s", o.code, o.err)
	}
	var said struct {
		Names []struct {
			Path     string
			Versions []struct{ Size int }
		}
	}
	if err := json.Unmarshal([]byte(o.out), &said); err != nil {
		return nil, err
	}
	sizes := map[string][]int{}
	for _, n := range said.Names {
		for _, v := range n.Versions {
			sizes[n.Path] = append(sizes[n.Path], v.Size)
		}
	}
	return sizes, nil
}
