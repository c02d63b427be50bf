package segment

import (
	"errors"
	"slices"

	"ckptfs/cas/disk"
)

// Records calls fn with the records of a segment: those of its footer or, where that is not intact or cannot
// be read, those that a scan finds; it may be called with some twice. unread says what the disk did not read
// of it, as Scanner.Unread does. An error of fn ends it.
func (r *Reader) Records(fn func(*Record) error) (unread, err error) {
	var own error
	call := func(rec *Record) error {
		own = fn(rec)
		return own
	}
	ft, err := r.Footer()
	if err == nil {
		err = r.Each(ft, call)
	}
	if own != nil || !errors.Is(err, ErrUnsealed) && !disk.Unreadable(err) {
		return nil, err
	}
	sc, err := r.Scan(0)
	if err != nil {
		return nil, err
	}
	for sc.Next() {
		if sc.Gap() {
			continue
		}
		if err := fn(sc.Record()); err != nil {
			return nil, err
		}
	}
	return sc.Unread(), sc.Err()
}

// Numbers lists the segments in a directory, ascending.
func Numbers(fsys disk.FS, dir string) ([]uint32, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var numbers []uint32
	for _, name := range names {
		if n, ok := ParseName(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
