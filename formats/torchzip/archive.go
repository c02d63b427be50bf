package torchzip

import (
	"archive/zip"
	"io"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
	"ckptfs/formats/torch"
	"ckptfs/formats/zipdir"
)

// archive is the records of a file by what they are to torch.
type archive struct {
	stem      string
	format    string
	pickle    zipdir.Record // data.pkl; a .pt2 has none
	byteOrder *zipdir.Record
	configs   []zipdir.Record // of a .pt2
	storages  []zipdir.Record // in the order of the directory
	regions   []int           // of each, -1 when it is empty
	others    int             // storages that data.pkl doesn't speak of
}

// The names of the formats.
const (
	saved    = "torch-zip"
	scripted = "torchscript"
	exported = "pt2"
)

// newArchive sorts the records by name, by its rules.
func newArchive(records []zipdir.Record) (*archive, error) {
	if len(records) == 0 {
		return nil, reject("no records")
	}
	stem, _, ok := strings.Cut(records[0].Name, "/")
	if !ok {
		return nil, reject("record %.64q: not in a folder", records[0].Name)
	}
	a := &archive{stem: stem, format: saved}
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
		case strings.HasPrefix(name, "constants/") && r.Len > 0:
			a.others++
			a.storages = append(a.storages, *r)
		case name == "constants.pkl":
			a.format = scripted
			continue
		case name == "archive_format":
			a.format = exported
			continue
		case name == "data.pkl":
			pickle = r
		case name == "byteorder":
			a.byteOrder = r
		case isData && strings.HasSuffix(name, configSuffix):
			a.configs = append(a.configs, *r)
		case isData && key != "" && !strings.HasSuffix(name, ".pt"):
			a.storages = append(a.storages, *r)
		default:
			continue
		}
		if r.Method != zip.Store {
			return nil, reject("record %.64q: compressed by method %d", r.Name, r.Method)
		}
	}
	switch {
	case pickle != nil && a.format != exported:
		a.pickle = *pickle
	case pickle != nil || a.format != exported:
		return nil, reject("no record data.pkl, or one in an exported program")
	}
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
func (a *archive) addRegions(l *formats.Layout, size int64) error {
	data := make([]formats.Range, len(a.storages))
	for i := range data {
		data[i] = formats.Range{Off: a.storages[i].Off, Len: a.storages[i].Len}
	}
	var err error
	if l.Regions, a.regions, err = formats.Cover(size, data); err != nil {
		return reject("%v", err)
	}
	return nil
}

// readTensors reads data.pkl, and adds the tensors it names.
func (a *archive) readTensors(r io.ReaderAt, l *formats.Layout) error {
	g, err := a.readPickle(r)
	if err != nil {
		return err
	}
	if g == nil {
		l.Leave("pickles are too long, or not understood: no tensor has a name")
		return nil
	}
	l.Tensors, l.Left = torch.Tensors(g, a.torchStorages())
	l.Partial = l.Left != nil
	for range a.others {
		l.Leave("constants of the program have no names")
	}
	return nil
}

// readPickle parses data.pkl; nil when it is too long, or cannot be understood.
func (a *archive) readPickle(r io.ReaderAt) (*pickle.Pickle, error) {
	if a.pickle.Len > maxPickle {
		return nil, nil
	}
	p := make([]byte, a.pickle.Len)
	if err := formats.ReadFull(r, p, a.pickle.Off); err != nil {
		return nil, err
	}
	g, err := pickle.Parse(p, pickle.DefaultLimits)
	if err != nil || g.Size() != len(p) {
		return nil, nil
	}
	return g, nil
}

// torchStorages are the storages that data.pkl may name.
func (a *archive) torchStorages() (storages []torch.Storage) {
	for i := range a.storages {
		if key, ok := strings.CutPrefix(a.storages[i].Name, a.stem+"/data/"); ok {
			storages = append(storages, torch.Storage{Key: key, Len: a.storages[i].Len, Region: a.regions[i]})
		}
	}
	return storages
}
