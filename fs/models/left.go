package models

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/document"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
	"ckptfs/index/prefix"
)

// The file tree.CatalogueFile is the catalogue as a process left it, and the models, so that a match needs no
// ledger as long as nothing changed since, and a look at the tree can pass over what is as it was. It is
// derived. Numbers are little-endian.
//
//	"CKC3"
//	hash     32 bytes: BLAKE3 of all that follows
//	epoch    4 bytes: see Options.Epoch
//	problems 4 bytes: of how many steps something was wrong with what they say of themselves
//	folders  n, 4 bytes, then n times, ascending: inode, 8 bytes; ctime in ns, 8 bytes (steps.Folders)
//	prints   n, 4 bytes, then n times, ascending: 16 bytes (steps.Print) of a step that the models are as of;
//	         n, 4 bytes, then what it says of itself (steps.Step.Said)
//	n        4 bytes, then as many of prefix.Catalogue.Snapshot
//	models   n, 4 bytes, then by path n times: number, 8 bytes; where its record ends, 4 bytes, from where the
//	         first begins; then the records of ledger.Entry
const (
	leftMagic  = "CKC3"
	leftHeader = len(leftMagic) + len(cas.Hash{})
)

// asOf is the moment that the models in such a file are of.
type asOf struct {
	epoch    uint32
	problems int
	folders  steps.Folders
	prints   map[steps.Print][]byte
}

// encodeLeft is the file of a catalogue's snapshot and of the live models, and its hash.
func encodeLeft(index []byte, live map[uint64]*ledger.Entry, at asOf) ([]byte, cas.Hash, error) {
	byPath := make([]*ledger.Entry, 0, len(live))
	for _, e := range live {
		byPath = append(byPath, e)
	}
	slices.SortFunc(byPath, func(a, b *ledger.Entry) int { return cmp.Compare(a.Path, b.Path) })
	le := binary.LittleEndian
	p := make([]byte, leftHeader, leftHeader+len(index)+512*len(live))
	p = le.AppendUint32(p, at.epoch)
	p = le.AppendUint32(p, uint32(at.problems))
	p = le.AppendUint32(p, uint32(len(at.folders)))
	for _, ino := range slices.Sorted(maps.Keys(at.folders)) {
		p = le.AppendUint64(le.AppendUint64(p, ino), uint64(at.folders[ino]))
	}
	p = le.AppendUint32(p, uint32(len(at.prints)))
	for _, print := range slices.SortedFunc(maps.Keys(at.prints), steps.Print.Compare) {
		p = append(p, print[:]...)
		p = append(le.AppendUint32(p, uint32(len(at.prints[print]))), at.prints[print]...)
	}
	p = append(le.AppendUint32(p, uint32(len(index))), index...)
	p = le.AppendUint32(p, uint32(len(byPath)))
	var records []byte
	for _, e := range byPath {
		record, err := e.Encode()
		if err != nil {
			return nil, cas.Hash{}, err
		}
		records = append(records, record...)
		p = le.AppendUint32(le.AppendUint64(p, e.Seq), uint32(len(records)))
	}
	p = append(p, records...)
	h := cas.Sum(p[leftHeader:])
	copy(p[copy(p, leftMagic):], h[:])
	return p, h, nil
}

// decodeLeft reads what encodeLeft wrote: the catalogue's snapshot, and the models. The error wraps
// cas.ErrCorrupt, or cas.ErrNewer for a later version.
func decodeLeft(p []byte) (index []byte, models *leftModels, err error) {
	var h cas.Hash
	r := document.Reader{P: p, Of: "catalogue"}
	r.Magic(leftMagic)
	copy(h[:], r.Take(len(h)))
	if r.Err == nil && cas.Sum(r.P) != h {
		r.Fail("damaged")
	}
	num := func() int {
		if q := r.Take(4); q != nil {
			return int(binary.LittleEndian.Uint32(q))
		}
		return 0
	}
	at := asOf{epoch: uint32(num()), problems: num(), folders: steps.Folders{}}
	for f := r.Take(leftFolder * num()); len(f) > 0; f = f[leftFolder:] {
		at.folders[binary.LittleEndian.Uint64(f)] = int64(binary.LittleEndian.Uint64(f[8:]))
	}
	prints := num()
	at.prints = make(map[steps.Print][]byte, min(prints, len(r.P)/leftPrint))
	for ; prints > 0 && r.Err == nil; prints-- {
		if print := r.Take(len(steps.Print{})); print != nil {
			at.prints[steps.Print(print)] = r.Take(num())
		}
	}
	index = r.Take(num())
	heads := r.Take(leftHead * num())
	models = &leftModels{heads: bytes.Clone(heads), records: bytes.Clone(r.P),
		places: make(map[uint64]int, len(heads)/leftHead), asOf: at}
	begin := 0
	for i := range models.len() {
		end := models.end(i)
		if end < begin || end > len(models.records) {
			r.Fail("model %d is none", i)
			break
		}
		models.places[models.seq(i)], begin = i, end
	}
	return index, models, r.Err
}

// leftModels are the models of such a file, by path.
type leftModels struct {
	heads   []byte
	records []byte
	places  map[uint64]int // by number
	asOf
}

const (
	// leftHead is the bytes of a model's number, and of where its record ends.
	leftHead = 8 + 4
	// leftFolder is the bytes of a folder.
	leftFolder = 8 + 8
	// leftPrint is the bytes of a print at least.
	leftPrint = 16 + 4
)

func (l *leftModels) len() int { return len(l.heads) / leftHead }

func (l *leftModels) seq(i int) uint64 { return binary.LittleEndian.Uint64(l.heads[i*leftHead:]) }

func (l *leftModels) end(i int) int {
	return int(binary.LittleEndian.Uint32(l.heads[i*leftHead+8:]))
}

// record is that of the model at a place.
func (l *leftModels) record(i int) []byte {
	begin := 0
	if i > 0 {
		begin = l.end(i - 1)
	}
	return l.records[begin:l.end(i)]
}

// entry is the model at a place; nil when its record cannot be read.
func (l *leftModels) entry(i int) *ledger.Entry {
	e, err := ledger.Decode(l.record(i))
	if err != nil {
		return nil
	}
	return e
}

// get is the model of a number; nil when there is none.
func (l *leftModels) get(seq uint64) *ledger.Entry {
	if i, ok := l.places[seq]; ok {
		return l.entry(i)
	}
	return nil
}

// at lists the models at or below a path.
func (l *leftModels) at(p string) (out []*ledger.Entry) {
	pathOf := func(i int) string {
		if e := l.entry(i); e != nil {
			return e.Path
		}
		return ""
	}
	from := func(p string) int {
		return sort.Search(l.len(), func(i int) bool { return pathOf(i) >= p })
	}
	if i := from(p); i < l.len() && pathOf(i) == p {
		out = append(out, l.entry(i))
	}
	for i := from(p + "/"); i < l.len() && strings.HasPrefix(pathOf(i), p+"/"); i++ {
		out = append(out, l.entry(i))
	}
	return out
}

// leftBehind is the catalogue as the last process left it; nil when that is not known to be all that it knew,
// or the ledger was read.
func (m *Models) leftBehind() *catalogue {
	if c := m.left.Load(); c != nil || m.catalogue.Load() != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lookedForLeft || m.book != nil {
		return m.left.Load()
	}
	m.lookedForLeft = true
	if _, was := m.wasKnownLocked(); !was {
		return nil
	}
	index, left, all := m.readLeftLocked()
	if !all {
		return nil
	}
	// Somebody may have moved runs and steps into the tree, or out of it, while nothing was mounted.
	if now, err := m.o.Steps.Folders(); err != nil || !maps.Equal(now, left.folders) {
		return nil
	}
	c := &catalogue{in: map[uint64]*known{}, left: left}
	var err error
	c.Catalogue, err = prefix.Restore(index, func(prefix.Model, prefix.Tag) bool { return true })
	if err != nil {
		m.uselessLocked(err)
		return nil
	}
	left.prints = nil // which are of no more use, and hold all of the file
	m.left.Store(c)
	return c
}

// readLeftLocked reads what a process left; nil when the host went down since with the store open, so that of
// two changes of a file the later may be on the disk alone. all: it is all that the last process knew.
func (m *Models) readLeftLocked() (index []byte, left *leftModels, all bool) {
	m.mu.AssertHeld()
	p, err := readCatalogue(m.o.Folder)
	if err == nil {
		index, left, err = decodeLeft(p)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.uselessLocked(err)
		}
		return nil, nil, false
	}
	if all = m.o.Known(cas.Hash(p[len(leftMagic):])); !all && left.epoch != m.o.Epoch() {
		return nil, nil, false
	}
	return index, left, all
}

// presumeLocked spares the first look at the tree what is as it was when the catalogue was saved: those steps
// count as seen. After an end in order that is what was not touched since; after a kill, what has its print.
// found is all steps that there are.
func (m *Models) presumeLocked(found map[string][]*steps.Step, left *leftModels, all bool) {
	m.mu.AssertHeld()
	if m.presumed {
		return
	}
	m.presumed = true
	if left == nil || left.problems > 0 {
		return
	}
	untouched := m.o.Steps.Untouched(found, left.folders)
	others := left.others(m.book)
	gone := &steps.Step{}
	for _, e := range m.book.Live() {
		m.seen[stepOf(e)] = gone
	}
	for run, ofRun := range found {
		for _, st := range ofRun {
			key := run + "/" + st.Name
			_, printed := left.prints[st.Print]
			same := all && untouched[st] || printed
			if same && !others[key] && m.o.Steps.State(st) == control.StepComplete &&
				inPlace(m.book, run, st) {
				m.seen[key] = st
			}
		}
	}
}

// others are the steps, "run/step", of which the ledger has other models.
func (l *leftModels) others(book *ledger.Ledger) map[string]bool {
	steps := map[string]bool{}
	for i := range l.len() {
		if e := book.Get(l.seq(i)); e == nil || e.Record != cas.Sum(l.record(i)) {
			if was := l.entry(i); was != nil {
				steps[stepOf(was)] = true
			}
		}
	}
	for _, e := range book.Live() {
		if _, ok := l.places[e.Seq]; !ok {
			steps[stepOf(e)] = true
		}
	}
	return steps
}

// stepOf is the step of a model, "run/step".
func stepOf(e *ledger.Entry) string {
	run, step, _ := steps.In(e.Path)
	return run + "/" + step
}

// inPlace reports whether the models that a step's files are were there.
func inPlace(book *ledger.Ledger, run string, st *steps.Step) bool {
	for _, f := range st.Files.All() {
		if e := book.ByIno(f.Ino); e != nil && e.Path != path.Join(steps.Dir, run, st.Name, f.Rel) {
			return false
		}
	}
	return true
}

// uselessLocked tells that the catalogue's file is of no use.
func (m *Models) uselessLocked(err error) {
	m.mu.AssertHeld()
	m.useless = true
	m.o.Report(slog.LevelWarn, "the catalogue of architectures is made again", "reason", err)
}

// asLeft is leftBehind if nothing below runs/ can be another than the last process knew it.
func (m *Models) asLeft() *catalogue {
	if m.o.Steps.Touched() {
		return nil
	}
	return m.leftBehind()
}

// likeLeft is the model at a path, and the catalogue that knows it, if nothing changed since the last process
// ended; nil when there is none, or it has no architecture.
func (m *Models) likeLeft(p string) (*catalogue, *known) {
	c := m.asLeft()
	if c == nil {
		return nil, nil
	}
	e := graphAt(c.left.at, p)
	if e == nil || len(e.Graph) == 0 {
		return nil, nil
	}
	return c, c.get(e.Seq)
}

// Known is the hash of the catalogue's file if the next process may take it for all that is known of models.
// False when it may not.
func (m *Models) Known() (h cas.Hash, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knownLocked()
}

func (m *Models) knownLocked() (h cas.Hash, ok bool) {
	m.mu.AssertHeld()
	if m.asBeforeLocked() {
		return m.wasKnownLocked()
	}
	c := m.catalogue.Load()
	if c == nil || m.stale.Load() || m.recheck || !c.savedAsOf(m.book.Gen, len(m.problems)) ||
		len(m.book.Changed()) > 0 || !m.o.Steps.Same(m.settled) {
		return h, false
	}
	return c.saved, true
}

// asBeforeLocked reports whether the catalogue's file was all that was known when this process began, and
// nothing changed since.
func (m *Models) asBeforeLocked() bool {
	m.mu.AssertHeld()
	_, was := m.wasKnownLocked()
	return was && !m.o.Steps.Touched()
}

// wasKnownLocked reports whether the catalogue's file, with hash h, was all that was known when this process
// began.
func (m *Models) wasKnownLocked() (h cas.Hash, ok bool) {
	m.mu.AssertHeld()
	if m.useless {
		return h, false
	}
	h, err := leftHash(m.o.Folder)
	return h, err == nil && m.o.Known(h)
}

// leftHash is what the catalogue's file in a store's folder says of itself.
func leftHash(folder *disk.Folder) (h cas.Hash, err error) {
	f, err := folder.Open(tree.CatalogueFile, os.O_RDONLY, 0)
	if err != nil {
		return h, err
	}
	defer f.Close()
	head := make([]byte, leftHeader)
	_, err = io.ReadFull(f, head)
	return cas.Hash(head[len(leftMagic):]), err
}
