package objects

import (
	"errors"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
)

// errFull: what is to be laid out does not fit behind what the object has.
var errFull = errors.New("the object is full")

// Finish lays out the plans of all files, and what commit makes of where they lie, and puts the last objects.
// What it returns is in the order of Add. commit may be called several times; it is not called when there is
// no meta object to put.
func (p *Packer) Finish(commit func([]Filed) ([][]byte, error)) ([]Filed, error) {
	if err := p.layLate(); err != nil {
		return nil, err
	}
	for _, slot := range []int{aloneData, basedData} {
		if err := p.seal(slot); err != nil {
			return nil, err
		}
	}
	var filed []Filed
	err := errFull
	if p.open[meta] != nil {
		filed, err = p.settle(commit)
	}
	if errors.Is(err, errFull) {
		// They begin an object of their own, whose length none of them states.
		if err := p.seal(meta); err != nil {
			return nil, err
		}
		e := &ending{Packer: p, rolls: true, planned: map[cas.Hash]record.Ref{}}
		filed, err = e.lay(commit)
	}
	if err != nil {
		return nil, err
	}
	return filed, p.seal(meta)
}

// settle finds the length of the last meta object with which it gets that length.
func (p *Packer) settle(commit func([]Filed) ([][]byte, error)) ([]Filed, error) {
	before := p.open[meta]
	for size := before.size(0, 0); ; {
		o := &Object{Object: before.Object, records: before.records, end: before.end}
		p.open[meta] = o
		p.objects[p.numbers[o.ID]].Len = size
		e := &ending{Packer: p, planned: map[cas.Hash]record.Ref{}}
		filed, err := e.lay(commit)
		if err != nil {
			p.open[meta] = before
			return nil, err
		}
		if size == o.size(0, 0) {
			return filed, nil
		}
		size = o.size(0, 0)
	}
}

// ending lays out what comes last.
type ending struct {
	*Packer
	rolls   bool // into as many objects as it takes
	planned map[cas.Hash]record.Ref
}

func (e *ending) lay(commit func([]Filed) ([][]byte, error)) ([]Filed, error) {
	filed := make([]Filed, len(e.files))
	for i, f := range e.files {
		plan, ref, err := e.planOf(f)
		if err != nil {
			return nil, err
		}
		filed[i] = Filed{Plan: ref, Deps: e.deps(f, ref.Object, plan)}
		for j, at := range f.graph {
			filed[i].Graph = append(filed[i].Graph, record.Part{Hash: f.parts[j],
				Ref: record.Ref{Object: e.objects[at.Object].ID, Off: at.Off, Stored: at.Stored}})
		}
	}
	if e.open[meta] == nil {
		return filed, nil
	}
	records, err := commit(filed)
	if err != nil {
		return nil, err
	}
	for _, b := range records {
		if _, err := e.layOwn(cas.Commit, cas.Sum(b), b); err != nil {
			return nil, err
		}
	}
	return filed, nil
}

// planOf is a file's plan, and where it lies.
func (e *ending) planOf(f *file) (*record.Plan, record.Ref, error) {
	if f.whole != nil {
		return f.whole.Plan, f.whole.At, nil
	}
	plan := e.plan(f)
	b, err := plan.Encode()
	if err != nil {
		return nil, record.Ref{}, err
	}
	ref, err := e.layPlan(b)
	return plan, ref, err
}

// plan makes a file's plan.
func (p *Packer) plan(f *file) *record.Plan {
	used := f.used()
	slices.SortFunc(used, func(a, b uint32) int { return compareIDs(p.objects[a].ID, p.objects[b].ID) })
	index := make(map[uint32]uint32, len(used))
	plan := &record.Plan{Manifest: f.manifest, Size: f.size}
	for i, n := range used {
		index[n] = uint32(i)
		plan.Objects = append(plan.Objects, p.objects[n])
	}
	place := func(at record.Place) record.Place {
		at.Object = index[at.Object]
		return at
	}
	one := func(r record.Record) record.Record { return record.Record{Place: place(r.Place), Raw: r.Raw} }
	plan.Record = one(f.record)
	for _, r := range f.lists {
		plan.Lists = append(plan.Lists, one(r))
	}
	for _, at := range f.chunks {
		plan.Chunks = append(plan.Chunks, place(at))
	}
	for _, b := range f.bases {
		b.Record = one(b.Record)
		plan.Bases = append(plan.Bases, b)
	}
	plan.Against = f.against
	return plan
}

// deps lists the objects that an entry keeps.
func (p *Packer) deps(f *file, at record.ID, plan *record.Plan) []record.ID {
	deps := []record.ID{at}
	for _, o := range plan.Objects {
		deps = append(deps, o.ID)
	}
	for _, at := range f.graph {
		deps = append(deps, p.objects[at.Object].ID)
	}
	slices.SortFunc(deps, compareIDs)
	return slices.Compact(deps)
}

// layPlan lays out a plan, unless it is there.
func (e *ending) layPlan(b []byte) (record.Ref, error) {
	h := cas.Sum(b)
	if ref, ok := e.planned[h]; ok {
		return ref, nil
	}
	known, err := e.find([]cas.Hash{h})
	if err != nil {
		return record.Ref{}, err
	}
	ref := record.Ref{Object: known[0].Object.ID, Off: known[0].Off, Stored: known[0].Stored}
	if known[0].Kind != cas.Plan {
		if ref, err = e.layOwn(cas.Plan, h, b); err != nil {
			return ref, err
		}
	}
	e.planned[h] = ref
	return ref, nil
}

// layOwn lays out a record of the push itself.
func (e *ending) layOwn(kind cas.Kind, h cas.Hash, b []byte) (record.Ref, error) {
	if o := e.open[meta]; !e.rolls && !o.takes(len(b)) {
		return record.Ref{}, errFull
	}
	o, err := e.room(meta, len(b))
	if err != nil {
		return record.Ref{}, err
	}
	return record.Ref{Object: o.ID, Off: o.addOwn(kind, h, b), Stored: uint32(len(b))}, nil
}
