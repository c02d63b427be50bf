package segment

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"time"

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

// EachOrScan calls f with the records of a segment, and with when it was sealed: those of its footer or,
// where that is not intact, those that a scan finds, with the zero time; it may be called with some twice.
// One that is not there has none. The error is the disk's; there may be more then.
func EachOrScan(fsys disk.FS, dir string, id ID, f func(sealed time.Time, rec *Record)) error {
	r, err := Open(fsys, dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.EachOf(func(ft *Footer, rec *Record) { f(ft.Sealed, rec) })
	if err == nil {
		return nil
	}
	sc, err := r.Scan(0)
	if err != nil {
		return err
	}
	for sc.Next() {
		if !sc.Gap() {
			f(time.Time{}, sc.Record())
		}
	}
	return cmp.Or(sc.Err(), sc.Unread())
}
