package segment

import (
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas"
)

// Contents checks the header of a sealed segment, and reads its footer and the headers of all its records, by
// offset. The error is the reader's, ErrUnsealed, or wraps one that IsDamage knows.
func (r *Reader) Contents() (ft *Footer, recs []Record, err error) {
	ft, err = r.EachOf(func(ft *Footer, rec *Record) {
		if recs == nil {
			recs = make([]Record, 0, ft.Records)
		}
		recs = append(recs, *rec)
	})
	return ft, recs, err
}

// EachOf is Contents for a caller that holds no more than one record at a time.
func (r *Reader) EachOf(f func(ft *Footer, rec *Record)) (*Footer, error) {
	if err := r.CheckHeader(); err != nil {
		return nil, err
	}
	ft, err := r.Footer()
	if err != nil {
		return nil, err
	}
	if ft.Records > MaxRecords {
		return nil, fmt.Errorf("%d records: %w", ft.Records, cas.ErrTooLarge)
	}
	return ft, r.Each(ft, func(rec *Record) error {
		f(ft, rec)
		return nil
	})
}

// IsDamage reports whether err says that the bytes are not those of an intact segment of this store and
// version. Other errors are of the disk.
func IsDamage(err error) bool {
	return slices.ContainsFunc([]error{cas.ErrCorrupt, cas.ErrNewer, cas.ErrTooLarge, ErrForeign, ErrOlder},
		func(damage error) bool { return errors.Is(err, damage) })
}
