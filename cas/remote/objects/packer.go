package objects

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

const (
	// smallest is the stored length, in bytes, from which on a chunk lies in a data object.
	smallest = 32 << 10
	// apart is how many bytes of a push lie in one data object, whatever they are. A PUT costs as much as
	// keeping a fifth of them for a month.
	apart = 1 << 20
	// largePart is the part of a push from which on a file is large.
	largePart = 16
)

// The objects that are open. What is stored against other records, and what is not, lie in different data
// objects: later steps need the one for long, and the other not at all.
const (
	aloneData = iota
	basedData
	meta
	slots
)

// Options of a Packer.
type Options struct {
	Source Source
	Places Places
	Whole  map[cas.Hash]*Whole // files that are there, by their manifests; may be nil
	Random io.Reader           // gives the ids of objects
	// Put is told of each object that is full, and may return before it is put.
	Put func(*Object) error
}

// Packer lays out what a push puts.
type Packer struct {
	Options
	objects []record.Object // that places of this push name by index: those relied on, and those laid out
	numbers map[record.ID]uint32
	gone    map[record.ID]bool // of those relied on or not: condemned
	laid    map[cas.Hash]laid  // out in this push, and not known to Places yet
	open    [slots]*Object     // nil: none
	files   []*file
	bytes   int64 // of data, in files
	last    int64 // of these, in the last file
}

// laid is a record of this push.
type laid struct {
	record.Place
	kind cas.Kind
	crc  uint32
}

// Whole is a file of another entry, with the same manifest, as its plan has it.
type Whole struct {
	Plan *record.Plan
	At   record.Ref // where the plan lies
}

// Filed is where what a file's entry names lies.
type Filed struct {
	Plan  record.Ref
	Deps  []record.ID
	Graph []record.Part
}

// New returns a Packer.
func New(o Options) *Packer {
	return &Packer{Options: o, numbers: map[record.ID]uint32{}, gone: map[record.ID]bool{},
		laid: map[cas.Hash]laid{}}
}

// Add lays out what of a file, and of a graph, is not in the remote. An error of the Source leaves the Packer
// as it was, but that bases or parts may have been laid out for nothing.
func (p *Packer) Add(manifest cas.Hash, graph []cas.Hash) error {
	f := &file{manifest: manifest, parts: graph}
	there, err := p.addWhole(f)
	if err != nil {
		return err
	}
	if !there {
		c, err := p.Source.Closure(manifest)
		if err != nil {
			return &LostError{manifest, err}
		}
		if err := p.addClosure(f, c); err != nil {
			return err
		}
	}
	if err := p.addGraph(f); err != nil {
		return err
	}
	p.files = append(p.files, f)
	return nil
}

// addWhole relies on a file that is there as a whole, unless an epoch has condemned an object of it; false:
// there is none.
func (p *Packer) addWhole(f *file) (bool, error) {
	whole := p.Whole[f.manifest]
	if whole == nil || whole.Plan.Manifest != f.manifest {
		return false, nil
	}
	ids := []record.ID{whole.At.Object}
	for _, o := range whole.Plan.Objects {
		ids = append(ids, o.ID)
	}
	if err := p.learnGone(ids); err != nil {
		return false, err
	}
	if slices.ContainsFunc(ids, func(id record.ID) bool { return p.gone[id] }) {
		return false, nil
	}
	f.whole = whole
	return true, nil
}

func (p *Packer) addClosure(f *file, c *Closure) error {
	f.size = c.Size
	hashes := make([]cas.Hash, len(c.Records))
	for i := range c.Records {
		hashes[i] = c.Records[i].Hash
	}
	known, err := p.find(hashes)
	if err != nil {
		return err
	}
	needed, alone := choose(c, known)
	placed, waits := make([]record.Place, len(c.Records)), make([]bool, len(c.Records))
	for i := range c.Records {
		waits[i] = needed[i] && c.Records[i].Kind != cas.Chunk
	}
	for _, i := range c.Chunks { // of which one may have the bytes of a list
		waits[i] = false
	}
	if err := p.beginFile(dataOf(c, known, needed)); err != nil {
		return err
	}
	for i := range c.Records {
		switch r := &c.Records[i]; {
		case !needed[i]:
		case usable(&r.Record, &known[i]):
			placed[i], waits[i] = p.relyOn(&known[i]), false
		case !waits[i]:
			if placed[i], err = p.layOut(r.Record); err != nil {
				return err
			}
		}
	}
	f.fill(c, placed, needed, alone)
	f.postpone(c, needed, waits)
	return nil
}

// find is what is known of records, in this push and before, but for what is condemned.
func (p *Packer) find(hashes []cas.Hash) ([]Place, error) {
	known := make([]Place, len(hashes))
	if err := p.Places.Find(hashes, known); err != nil {
		return nil, err
	}
	ids := make([]record.ID, len(known))
	for i := range known {
		ids[i] = known[i].Object.ID
	}
	if err := p.learnGone(ids); err != nil {
		return nil, err
	}
	for i, h := range hashes {
		if p.gone[known[i].Object.ID] {
			known[i] = Place{}
		}
		if at, ok := p.laid[h]; ok {
			known[i] = Place{p.objects[at.Object], Placed{Hash: h, Off: at.Off, Stored: at.Stored,
				CRC: at.crc, Kind: at.kind, Based: true}} // it has the bases that it has here
		}
	}
	return known, nil
}

// learnGone asks what objects are condemned, once for each.
func (p *Packer) learnGone(objects []record.ID) error {
	var ids []record.ID
	for _, id := range objects {
		if _, asked := p.gone[id]; !asked && !id.IsZero() {
			p.gone[id] = true
			ids = append(ids, id)
		}
	}
	gone := make([]bool, len(ids))
	if err := p.Places.Condemned(ids, gone); err != nil {
		return err
	}
	for i, id := range ids {
		p.gone[id] = gone[i]
	}
	return nil
}

// usable reports whether a reader can use the record at a place as it would use r.
func usable(r *segment.Record, at *Place) bool {
	return at.Stored > 0 && at.Kind == r.Kind && (!at.Based || at.Stored == r.Stored && at.CRC == r.CRC)
}

// choose says which records the plan has: what the file consists of, and what of that, where it lies, needs.
// alone are those that need none there, though perhaps here.
func choose(c *Closure, known []Place) (needed, alone []bool) {
	needed, alone = make([]bool, len(c.Records)), make([]bool, len(c.Records))
	needed[c.Manifest] = true
	for _, list := range [][]int32{c.Lists, c.Chunks} {
		for _, i := range list {
			needed[i] = true
		}
	}
	for i := len(c.Records) - 1; i >= 0; i-- {
		r := &c.Records[i]
		alone[i] = usable(&r.Record, &known[i]) && !known[i].Based
		for _, base := range r.Bases {
			if needed[i] && !alone[i] {
				needed[base] = true
			}
		}
	}
	return needed, alone
}

// number is an object's index.
func (p *Packer) number(o record.Object) uint32 {
	n, ok := p.numbers[o.ID]
	if !ok {
		n = uint32(len(p.objects))
		p.numbers[o.ID] = n
		p.objects = append(p.objects, o)
	}
	return n
}

func (p *Packer) relyOn(at *Place) record.Place {
	return record.Place{Object: p.number(at.Object), Off: at.Off, Stored: at.Stored}
}

// dataOf is how many bytes a closure adds to data objects.
func dataOf(c *Closure, known []Place, needed []bool) (n int64) {
	for i := range c.Records {
		if r := &c.Records[i].Record; needed[i] && !usable(r, &known[i]) && isData(r) {
			n += segment.Size(int(r.Stored))
		}
	}
	return n
}

// beginFile ends the data objects ahead of a file of so many new bytes, if that is large, or the one before
// was. Files of a step are removed one without the other, and an object stays for any of them.
func (p *Packer) beginFile(n int64) error {
	large := max(apart, p.bytes/largePart)
	if n >= large || p.last >= large {
		for _, slot := range []int{aloneData, basedData} {
			if o := p.open[slot]; o != nil && o.end >= apart {
				if err := p.seal(slot); err != nil {
					return err
				}
			}
		}
	}
	p.bytes, p.last = p.bytes+n, n
	return nil
}

// isData reports whether a record lies in a data object.
func isData(r *segment.Record) bool { return r.Kind == cas.Chunk && r.Stored >= smallest }

// slotOf is where a record lies. A push of few bytes has one data object.
func (p *Packer) slotOf(r *segment.Record) int {
	switch {
	case !isData(r):
		return meta
	case codec.NeedsBase(r.Codec) && p.bytes >= apart:
		return basedData
	}
	return aloneData
}

// layOut gives a record a place in an object of this push.
func (p *Packer) layOut(r segment.Record) (record.Place, error) {
	o, err := p.room(p.slotOf(&r), int(r.Stored))
	if err != nil {
		return record.Place{}, err
	}
	at := record.Place{Object: p.numbers[o.ID], Off: o.add(r), Stored: r.Stored}
	p.laid[r.Hash] = laid{at, r.Kind, r.CRC}
	return at, nil
}

// room is the open object of a slot, which takes a record more.
func (p *Packer) room(slot, stored int) (*Object, error) {
	if o := p.open[slot]; o != nil && !o.takes(stored) {
		if err := p.seal(slot); err != nil {
			return nil, err
		}
	}
	if p.open[slot] == nil {
		class := record.ClassData
		if slot == meta {
			class = record.ClassMeta
		}
		o := &Object{Object: record.Object{Class: class}, end: segment.FileHeaderSize}
		if _, err := io.ReadFull(p.Random, o.ID[:]); err != nil {
			return nil, err
		}
		p.number(o.Object)
		p.open[slot] = o
	}
	return p.open[slot], nil
}

// seal puts an object.
func (p *Packer) seal(slot int) error {
	o := p.open[slot]
	p.open[slot] = nil
	if o == nil {
		return nil
	}
	o.Len = o.size(0, 0)
	p.objects[p.numbers[o.ID]].Len = o.Len
	return p.Put(o)
}

// addGraph lays out the parts of a graph. They are in meta objects, and need nothing.
func (p *Packer) addGraph(f *file) error {
	known, err := p.find(f.parts)
	if err != nil {
		return err
	}
	for i, h := range f.parts {
		r, err := p.Source.Record(h)
		if err == nil && codec.NeedsBase(r.Codec) {
			err = fmt.Errorf("part %s of a graph is stored against another record: %w", h.Short(), cas.ErrCorrupt)
		}
		if err != nil {
			return &LostError{h, err}
		}
		if usable(&r, &known[i]) {
			f.graph = append(f.graph, p.relyOn(&known[i]))
			continue
		}
		placed, err := p.layOut(r)
		if err != nil {
			return err
		}
		f.graph = append(f.graph, placed)
	}
	return nil
}

// layLate lays out what was postponed.
func (p *Packer) layLate() (err error) {
	for _, f := range p.files {
		for _, x := range f.late {
			at, there := p.laid[x.Hash]
			// The plan has the bases of x: it is to be the same record.
			if there && at.kind == x.Kind && at.Stored == x.Stored && at.crc == x.CRC {
				*x.at = at.Place
				continue
			}
			if *x.at, err = p.layOut(x.Record); err != nil {
				return err
			}
		}
		f.late = nil
		p.sortBases(f)
	}
	return nil
}

func compareIDs(a, b record.ID) int { return bytes.Compare(a[:], b[:]) }
