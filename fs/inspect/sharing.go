package inspect

import (
	"encoding/binary"

	"ckptfs/cas"
	"ckptfs/cas/spilled"
	"ckptfs/index/manifest"
)

// sharing says which step was the last to have each chunk, each manifest, and each list of chunks that could
// be read. They are known by the first 8 bytes of their hashes, as good as all for a sum: a run may have many
// millions.
//
// A number is that of a step, counted from one, with the bit several; who is the length of the chunk, and 0
// for a list or a manifest.
type sharing struct {
	ins    *Inspector
	before *sharing // has what is not in last; or nil
	last   *spilled.Table
}

// several is set of what more than one step has.
const several = 1 << 31

// of is the last step that had a record, alone or not.
func (s *sharing) of(key uint64, length uint32) (step int, alone, ok bool) {
	n := s.last.At(key, length)
	if n == 0 && s.before != nil {
		n = s.before.last.At(key, length)
	}
	return int(n&^several) - 1, n&several == 0, n > 0
}

// note notes that a step has a record, alone or not.
func (s *sharing) note(key uint64, length uint32, step int, alone bool) {
	n := uint32(step + 1)
	if !alone {
		n |= several
	}
	s.last.Set(key, length, n)
}

func keyOf(h *cas.Hash) uint64 { return binary.BigEndian.Uint64(h[:]) }

// has tells sets of records apart: how many, and the sum of their keys.
type has struct {
	n   int32
	sum uint64
}

func (h *has) add(key uint64) { h.n, h.sum = h.n+1, h.sum+key }

// add finds out what a step adds to those before it.
func (s *sharing) add(step int, h *holding) (added, error) {
	a := added{from: -1, plain: h.plain, problem: h.problem, packed: h.packed}
	shared, fresh := map[int]int64{}, room{store: s.ins.store}
	one := func(hash *cas.Hash, length uint32, n int64) {
		key := keyOf(hash)
		last, _, ok := s.of(key, length)
		if ok && last == step {
			return
		}
		if ok {
			shared[last] += n
		} else {
			a.fresh += n
			fresh.add(*hash)
		}
		a.has.add(key)
		s.note(key, length, step, !ok)
	}
	for f, objects := range h.objects {
		one(&h.manifests[f], 0, 0)
		for i := range objects {
			o := &objects[i]
			if !o.List {
				one(&o.Digest, uint32(o.Len), o.Len)
				continue
			}
			if _, _, known := s.of(keyOf(&o.Digest), 0); known {
				one(&o.Digest, 0, o.Len)
				continue
			}
			spans, err := s.ins.spans(h.manifests[f], o)
			if missing(err) {
				a.problem = "a file's chunk list cannot be read: see check"
				continue
			}
			if err != nil {
				return a, err
			}
			for j := range spans {
				one(&spans[j].Hash, spans[j].Len, int64(spans[j].Len))
			}
			one(&o.Digest, 0, 0)
		}
	}
	for from, n := range shared {
		if n > a.shared || n == a.shared && from > int(a.from) {
			a.from, a.shared = int32(from), n
		}
	}
	var err error
	a.stored, err = fresh.bytes()
	return a, err
}

// room adds up what records take in the segments.
type room struct {
	store  Store
	hashes []cas.Hash // that are not added yet
	sum    int64
	err    error
}

// roomStep is how many records are located at a time.
const roomStep = 4096

func (r *room) add(h cas.Hash) {
	if r.hashes = append(r.hashes, h); len(r.hashes) == roomStep {
		_, _ = r.bytes()
	}
}

func (r *room) bytes() (int64, error) {
	locs := make([]cas.Location, len(r.hashes))
	if r.err == nil {
		r.err = r.store.Locate(r.hashes, locs)
	}
	for _, l := range locs {
		if l.Segment != 0 {
			r.sum += l.RecordSize()
		}
	}
	r.hashes = r.hashes[:0]
	return r.sum, r.err
}

// aloneOf is what steps alone have.
func (s *sharing) aloneOf(steps map[int]*holding) map[int][]spilled.Slot {
	if len(steps) == 0 {
		return nil
	}
	alone := make(map[int][]spilled.Slot, len(steps))
	s.last.Each(func(slot spilled.Slot) {
		if step := int(slot.N) - 1; steps[step] != nil { // without the bit several
			alone[step] = append(alone[step], slot)
		}
	})
	return alone
}

// replace counts a step again that has other packed files than before, in a; alone is what it alone had.
// false: that cannot be told from what is known. It can if the step has in common with others what it had in
// common with them before, as most have whose tensors are trained: then no other step is concerned.
func (s *sharing) replace(a *added, step int, h *holding, alone []spilled.Slot) (bool, error) {
	common := a.has
	for _, slot := range alone {
		common.n, common.sum = common.n-1, common.sum-slot.Key
		a.fresh -= int64(slot.Who)
	}
	now := map[spilled.Slot]cas.Hash{} // without numbers
	for f, objects := range h.objects {
		now[spilled.Slot{Key: keyOf(&h.manifests[f])}] = h.manifests[f]
		for i := range objects {
			if whole, err := s.records(h.manifests[f], &objects[i], step, now); !whole || err != nil {
				return false, err
			}
		}
	}
	a.packed, a.has = h.packed, has{}
	var shared has
	fresh := room{store: s.ins.store}
	for slot, hash := range now {
		a.has.add(slot.Key)
		switch last, mine, ok := s.of(slot.Key, slot.Who); {
		case ok && !mine:
			shared.add(slot.Key)
		case ok && last != step:
			return false, nil
		default:
			a.fresh += int64(slot.Who)
			fresh.add(hash)
		}
	}
	if shared != common {
		return false, nil
	}
	var err error
	if a.stored, err = fresh.bytes(); err != nil {
		return false, err
	}
	for _, slot := range alone {
		s.last.Set(slot.Key, slot.Who, 0)
	}
	for slot := range now {
		if _, _, ok := s.of(slot.Key, slot.Who); !ok {
			s.note(slot.Key, slot.Who, step, true)
		}
	}
	return true, nil
}

// records adds what add would note of an object of a step's file. false: that cannot be told.
func (s *sharing) records(of cas.Hash, o *manifest.Object, step int, all map[spilled.Slot]cas.Hash) (
	bool, error) {
	if !o.List {
		all[spilled.Slot{Key: keyOf(&o.Digest), Who: uint32(o.Len)}] = o.Digest
		return true, nil
	}
	_, alone, known := s.of(keyOf(&o.Digest), 0)
	spans, err := s.ins.spans(of, o)
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	all[spilled.Slot{Key: keyOf(&o.Digest)}] = o.Digest
	for i := range spans {
		key := keyOf(&spans[i].Hash)
		if known && !alone { // its chunks are noted of the first step that had it
			if last, alone, _ := s.of(key, spans[i].Len); last == step && alone {
				return false, nil
			}
			continue
		}
		all[spilled.Slot{Key: key, Who: spans[i].Len}] = spans[i].Hash
	}
	return true, nil
}
