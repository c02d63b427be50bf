package torchzip

import (
	"archive/zip"
	"cmp"
	"io"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/zipdir"
)

// archive is the records of a file by what they are to torch.
type archive struct {
	pickle    zipdir.Record
	byteOrder *zipdir.Record
	storages  []storage
	byKey     map[string]int // index into storages
}

// storage is a record data/<key>.
type storage struct {
	zipdir.Record
	region int // in the layout; -1 when the record is empty

	class    string // the storage type of the persistent ids met so far; "" before the first
	disputed bool   // persistent ids differ in type or length
}

// newArchive sorts the records by name, by its rules.
func newArchive(records []zipdir.Record) (*archive, error) {
	if len(records) == 0 {
		return nil, reject("no records")
	}
	stem, _, ok := strings.Cut(records[0].Name, "/")
	if !ok {
		return nil, reject("record %.64q: not in a folder", records[0].Name)
	}
	a := &archive{byKey: make(map[string]int)}
	seen := make(map[string]bool, len(records))
	var pickle *zipdir.Record
	for i := range records {
		r := &records[i]
		name, ok := strings.CutPrefix(r.Name, stem+"/")
		if !ok {
			return nil, reject("record %.64q: not in folder %.64q", r.Name, stem)
		}
		folded := strings.ToLower(name)
		if seen[folded] {
			return nil, reject("record %.64q: name used twice", r.Name)
		}
		seen[folded] = true
		key, isData := strings.CutPrefix(name, "data/")
		switch {
		case name == "constants.pkl" || strings.HasPrefix(name, "code/"):
			return nil, reject("record %.64q: TorchScript", r.Name)
		case name == "data.pkl":
			pickle = r
		case name == "byteorder":
			a.byteOrder = r
		case isData && key != "":
			a.byKey[key] = len(a.storages)
			a.storages = append(a.storages, storage{Record: *r, region: -1})
		default:
			continue
		}
		if r.Method != zip.Store {
			return nil, reject("record %.64q: compressed by method %d", r.Name, r.Method)
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
	if a.byteOrder.Len > 16 {
		return reject("byteorder: %d bytes", a.byteOrder.Len)
	}
	p := make([]byte, a.byteOrder.Len)
	if err := formats.ReadFull(r, p, a.byteOrder.Off); err != nil {
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
	slices.SortFunc(order, func(x, y *storage) int { return cmp.Compare(x.Off, y.Off) })
	var end int64
	blob := func(to int64) {
		if to > end {
			l.Regions = append(l.Regions, formats.Region{Off: end, Len: to - end, Kind: formats.Blob})
		}
	}
	for _, s := range order {
		if s.Len == 0 {
			continue
		}
		blob(s.Off)
		s.region = len(l.Regions)
		l.Regions = append(l.Regions, formats.Region{Off: s.Off, Len: s.Len, Kind: formats.Data})
		end = s.Off + s.Len
	}
	blob(size)
}
