package main

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"ckptfs/integration/recipe"
)

// file is what was acknowledged of a file: its bytes by recipe and digest, and what stat said once it was
// written.
type file struct {
	Recipe recipe.Recipe `json:"recipe"`
	Sum    string        `json:"sum"` // SHA-256
	Size   int64         `json:"size"`
	Mode   uint32        `json:"mode"`
	Mtime  int64         `json:"mtime"` // ns
	Ino    uint64        `json:"ino"`
}

func sum(p []byte) string {
	h := sha256.Sum256(p)
	return hex.EncodeToString(h[:])
}

// model is what one writer's folder must hold. Hard links of a file share its number.
type model struct {
	Names map[string]int `json:"names"` // relative to the mount
	Dirs  map[string]int `json:"dirs"`  // all 1
	Files map[int]*file  `json:"files"`
	Next  int            `json:"next"` // number of the next file
}

func newModel() *model {
	return &model{Names: map[string]int{}, Dirs: map[string]int{}, Files: map[int]*file{}}
}

// How a file of an operation in flight may have been caught.
const (
	whole  = "whole" // as before, or as after
	fresh  = "fresh" // as before, or any beginning of what comes after
	grown  = "grown" // what was there before, and any beginning of what was added
	mixed  = "mixed" // every byte as before or as after; the length anywhere between
	absent = 0       // in place of a file's number: no such name
)

// move is what an operation does to a name: the numbers of the file before and after.
type move struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// change is what an operation does to a file.
type change struct {
	From *file  `json:"from,omitempty"` // nil: it is made
	To   *file  `json:"to"`
	How  string `json:"how"`
}

// op is one operation of a writer: what is told before it begins, and, with the stat of what it changed, once
// it is done.
type op struct {
	Kind  string          `json:"kind"`
	Names map[string]move `json:"names,omitempty"` // all of them, or none
	Dirs  map[string]move `json:"dirs,omitempty"`
	Files map[int]change  `json:"files,omitempty"`
	Fsync bool            `json:"fsync,omitempty"`
}

// apply makes m what it is after o.
func (m *model) apply(o *op) {
	m.move(o)
	for id, c := range o.Files {
		f := *c.To
		m.Files[id] = &f
		m.Next = max(m.Next, id)
	}
	m.forget()
}

func (m *model) move(o *op) {
	shift(m.Names, o.Names)
	shift(m.Dirs, o.Dirs)
}

func shift(have map[string]int, moves map[string]move) {
	for name, mv := range moves {
		if mv.To == absent {
			delete(have, name)
		} else {
			have[name] = mv.To
		}
	}
}

// forget drops files without a name.
func (m *model) forget() {
	named := map[int]bool{}
	for _, id := range m.Names {
		named[id] = true
	}
	maps.DeleteFunc(m.Files, func(id int, _ *file) bool { return !named[id] })
}

// links are the names of a file.
func (m *model) links(id int) []string {
	var names []string
	for name, i := range m.Names {
		if i == id {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *model) clone() *model {
	c := &model{Names: maps.Clone(m.Names), Dirs: maps.Clone(m.Dirs), Files: map[int]*file{}, Next: m.Next}
	for id, f := range m.Files {
		g := *f
		c.Files[id] = &g
	}
	return c
}

// caught says whether got may be what an operation left of a file when it was cut off, and the recipe of got
// if there is one.
func caught(c change, got []byte) (r *recipe.Recipe, ok bool) {
	var from []byte
	if c.From != nil {
		if from = c.From.Recipe.Bytes(); string(from) == string(got) {
			return &c.From.Recipe, true
		}
	}
	to := c.To.Recipe.Bytes()
	if string(to) == string(got) {
		return &c.To.Recipe, true
	}
	switch c.How {
	case fresh, grown:
		if c.How == grown && len(got) < len(from) || len(got) > len(to) ||
			string(to[:len(got)]) != string(got) {
			return nil, false
		}
		cut := c.To.Recipe.With(recipe.Edit{Off: len(got), Cut: true})
		return &cut, true
	case mixed:
		if len(got) < min(len(from), len(to)) || len(got) > max(len(from), len(to)) {
			return nil, false
		}
		at := func(p []byte, i int) byte {
			if i < len(p) {
				return p[i]
			}
			return 0
		}
		for i, b := range got {
			if b != at(from, i) && b != at(to, i) {
				return nil, false
			}
		}
		return nil, true
	}
	return nil, false
}
