package record

import (
	"fmt"
	"maps"
	"slices"

	"ckptfs/cas"
)

// dictionary has the objects and writers that entries name by number, and encodes and reads entries.
type dictionary struct {
	Objects []ID     // ascending
	Writers []Writer // ascending, without own
	own     Writer
}

// newDictionary is that of the entries of a head or table of own.
func newDictionary(own Writer, entries []Entry) (*dictionary, error) {
	objects, writers := map[ID]bool{}, map[Writer]bool{own: true}
	for i := range entries {
		e := &entries[i]
		for _, f := range []*File{e.File, e.removedFile()} {
			if f != nil {
				for _, id := range f.Deps {
					objects[id] = true
				}
			}
		}
		writers[e.Origin] = true
		if e.Removed != nil {
			writers[e.Removed.Entry.Origin] = true
		}
		for _, o := range e.Over {
			writers[o.Writer] = true
		}
	}
	for w := range writers {
		if err := w.Check(); err != nil {
			return nil, err
		}
	}
	delete(writers, own)
	return &dictionary{own: own, Objects: slices.SortedFunc(maps.Keys(objects), compareIDs),
		Writers: slices.Sorted(maps.Keys(writers))}, nil
}

// removedFile is the file that a tombstone removed; nil if it did not remove one.
func (e *Entry) removedFile() *File {
	if e.Removed == nil {
		return nil
	}
	return e.Removed.Entry.File
}

func (d *dictionary) append(p []byte) []byte {
	p = num(p, int64(len(d.Objects)))
	for _, id := range d.Objects {
		p = append(p, id[:]...)
	}
	p = num(p, int64(len(d.Writers)))
	for _, w := range d.Writers {
		p = str(p, string(w))
	}
	return p
}

// readDictionary reads that of a head or table of own.
func readDictionary(r *reader, own Writer) *dictionary {
	d := &dictionary{own: own}
	d.Objects = many(r, len(ID{}), r.id)
	for i, id := range d.Objects {
		if i > 0 && compareIDs(d.Objects[i-1], id) >= 0 {
			r.Fail("object %s after %s", id, d.Objects[i-1])
		}
	}
	d.Writers = many(r, 1, func() Writer { return Writer(r.String()) })
	for i, w := range d.Writers {
		if w.Check() != nil || w == own || i > 0 && w <= d.Writers[i-1] {
			r.Fail("writer %.60q", string(w))
		}
	}
	return d
}

// object is an object's number.
func (d *dictionary) object(id ID) int64 {
	i, _ := slices.BinarySearchFunc(d.Objects, id, compareIDs)
	return int64(i)
}

// readObject reads an object's number.
func (d *dictionary) readObject(r *reader) ID {
	n := r.Num()
	if n >= int64(len(d.Objects)) {
		r.Fail("object %d of %d", n, len(d.Objects))
		return ID{}
	}
	return d.Objects[n]
}

// writer is a writer's number.
func (d *dictionary) writer(w Writer) int64 {
	if w == d.own {
		return 0
	}
	i, _ := slices.BinarySearch(d.Writers, w)
	return int64(i) + 1
}

// readWriter reads a writer's number.
func (d *dictionary) readWriter(r *reader) Writer {
	n := r.Num()
	if n == 0 || n > int64(len(d.Writers)) {
		if n > 0 {
			r.Fail("writer %d of %d", n, len(d.Writers))
		}
		return d.own
	}
	return d.Writers[n-1]
}

// checkEntries holds that entries may be one list, whose paths have at most most bytes.
func (d *dictionary) checkEntries(entries []Entry, most int) error {
	paths := 0
	for i := range entries {
		e := &entries[i]
		if err := e.check(d.own); err != nil {
			return err
		}
		if i > 0 && entries[i-1].Compare(e, d.own) >= 0 {
			return fmt.Errorf("%.200q after %.200q", e.Path, entries[i-1].Path)
		}
		if paths += len(e.Path); paths > most {
			return fmt.Errorf("paths of more than %d bytes: %w", most, cas.ErrTooLarge)
		}
	}
	return nil
}
