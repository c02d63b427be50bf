package torchzip

import (
	"archive/zip"
	"cmp"
	"io"
	"slices"
	"strings"

	"ckptfs/formats"
)

// archive is the records of a file by what they are to torch.
type archive struct {
	pickle    record
	byteOrder *record
	storages  []storage
	byKey     map[string]int // index into storages
}

// storage is a record data/<key>.
type storage struct {
	record
	region int // in the layout; -1 when the record is empty

	class    string // the storage type of the persistent ids met so far; "" before the first
	disputed bool   // persistent ids differ in type or length
}

// newArchive sorts the records by name, by rules 4, 6 and 7.
func newArchive(records []record) (*archive, error) {
	if len(records) == 0 {
		return nil, reject("no records")
	}
	stem, _, ok := strings.Cut(records[0].name, "/")
	if !ok {
		return nil, reject("record %.64q: not in a folder", records[0].name)
	}
	a := &archive{byKey: make(map[string]int)}
	seen := make(map[string]bool, len(records))
	var pickle *record
	for i := range records {
		r := &records[i]
		name, ok := strings.CutPrefix(r.name, stem+"/")
		if !ok {
			return nil, reject("record %.64q: not in folder %.64q", r.name, stem)
		}
		folded := strings.ToLower(name)
		if seen[folded] {
			return nil, reject("record %.64q: name used twice", r.name)
		}
		seen[folded] = true
		key, isData := strings.CutPrefix(name, "data/")
		switch {
		case name == "constants.pkl" || strings.HasPrefix(name, "code/"):
			return nil, reject("record %.64q: TorchScript", r.name)
		case name == "data.pkl":
			pickle = r
		case name == "byteorder":
			a.byteOrder = r
		case isData && key != "":
			a.byKey[key] = len(a.storages)
			a.storages = append(a.storages, storage{record: *r, region: -1})
		default:
			continue
		}
		if r.method != zip.Store {
			return nil, reject("record %.64q: compressed by method %d", r.name, r.method)
		}
	}
	if pickle == nil {
		return nil, reject("no record data.pkl")
	}
	a.pickle = *pickle
	return a, nil
}

func (a *archive) checkByteOrder(r io.ReaderAt) error {
	if a.byteOrder == nil {
		return nil
	}
	const want = "little"
	if a.byteOrder.len > 16 {
		return reject("byteorder: %d bytes", a.byteOrder.len)
	}
	p := make([]byte, a.byteOrder.len)
	if err := formats.ReadFull(r, p, a.byteOrder.off); err != nil {
		return err
	}
	if string(p) != want {
		return reject("byteorder: %q", p)
	}
	return nil
}

// addRegions fills l.Regions, and sets each storage's region.
func (a *archive) addRegions(l *formats.Layout, size int64) {
	order := make([]*storage, len(a.storages))
	for i := range order {
		order[i] = &a.storages[i]
	}
	slices.SortFunc(order, func(x, y *storage) int { return cmp.Compare(x.off, y.off) })
	var end int64
	blob := func(to int64) {
		if to > end {
			l.Regions = append(l.Regions, formats.Region{Off: end, Len: to - end, Kind: formats.Blob})
		}
	}
	for _, s := range order {
		if s.len == 0 {
			continue
		}
		blob(s.off)
		s.region = len(l.Regions)
		l.Regions = append(l.Regions, formats.Region{Off: s.off, Len: s.len, Kind: formats.Data})
		end = s.off + s.len
	}
	blob(size)
}
