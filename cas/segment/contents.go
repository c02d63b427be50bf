package segment

import (
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas"
)

// Contents checks the header of a sealed segment, and reads its footer and the headers of all its records, by
// offset. The error is the reader's, ErrUnsealed, or wraps one that IsDamage knows.
func (r *Reader) Contents() (*Footer, []Record, error) {
	if err := r.CheckHeader(); err != nil {
		return nil, nil, err
	}
	ft, err := r.Footer()
	if err != nil {
		return nil, nil, err
	}
	if ft.Records > MaxRecords {
		return nil, nil, fmt.Errorf("%d records: %w", ft.Records, cas.ErrTooLarge)
	}
	recs := make([]Record, 0, ft.Records)
	err = r.Each(ft, func(rec *Record) error {
		recs = append(recs, *rec)
		return nil
	})
	return ft, recs, err
}

// IsDamage reports whether err says that the bytes are not those of an intact segment of this store and
// version. Other errors are of the disk.
func IsDamage(err error) bool {
	return slices.ContainsFunc([]error{cas.ErrCorrupt, cas.ErrNewer, cas.ErrTooLarge, ErrForeign, ErrOlder},
		func(damage error) bool { return errors.Is(err, damage) })
}
