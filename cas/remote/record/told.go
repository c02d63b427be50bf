package record

import (
	"fmt"
	"slices"

	"ckptfs/cas"
)

const (
	toldMagic = "CKT1"
	// ToldAttr is the extended attribute in which a store keeps a Told with the name that it is of.
	ToldAttr = "user.ckptfs.told"
	// MaxTold bounds the bytes of a Told.
	MaxTold = 64 << 10
)

// Told is what an entry says of a name besides its bytes, kept in the store that made the name: as its files
// are not all there, nothing else tells.
type Told struct {
	Manifest cas.Hash // of the file that Model is of
	Model    *Model   // of a file that is one; or nil
	// Above are the model's ancestors: the parent of Model.Parent, its parent, and so on. There may be more
	// of them.
	Above   []Ancestor
	Metrics []Metric
}

// Ancestor is the parent of a model.
type Ancestor struct {
	Parent
	How string // how it is known
}

// Encode returns the one encoding of x:
//
//	"CKT1"
//	flags         1 byte: 16 model, 64 metrics
//	with a model:
//	    manifest  32 bytes
//	    objects   number n, then n times 16 bytes: those in which the graph lies, ascending
//	    model     as in an entry
//	    above     number n, at most 64, then n times: parent, string how
//	metrics       as in an entry
func (x *Told) Encode() ([]byte, error) {
	if err := x.check(); err != nil {
		return nil, fmt.Errorf("told: %w", err)
	}
	b := x.append([]byte(toldMagic))
	if len(b) > MaxTold {
		return nil, fmt.Errorf("told: %d bytes: %w", len(b), cas.ErrTooLarge)
	}
	return b, nil
}

const maxAbove = 64

func (x *Told) check() error {
	if (x.Model == nil) != x.Manifest.IsZero() || x.Model == nil && len(x.Above) > 0 ||
		len(x.Above) > maxAbove {
		return fmt.Errorf("of manifest %s, %d ancestors", x.Manifest.Short(), len(x.Above))
	}
	if x.Model != nil {
		if err := x.Model.Check(); err != nil {
			return err
		}
		for _, part := range x.Model.Graph {
			if err := checkRange(part.Off, int64(part.Stored), MaxObject); err != nil {
				return err
			}
		}
	}
	for _, a := range x.Above {
		if err := (&Model{Parent: a.Parent, How: a.How}).Check(); err != nil || a.How == "" {
			return fmt.Errorf("ancestor %.60q, %.60q: %w", a.Path, a.How, err)
		}
	}
	e := Entry{Metrics: x.Metrics}
	return e.checkMetrics()
}

func (x *Told) append(p []byte) []byte {
	flags := byte(0)
	if x.Model != nil {
		flags |= flagModel
	}
	if len(x.Metrics) > 0 {
		flags |= flagMetrics
	}
	p = append(p, flags)
	if x.Model != nil {
		d := &dictionary{Objects: x.objects()}
		p = num(append(p, x.Manifest[:]...), int64(len(d.Objects)))
		for _, id := range d.Objects {
			p = append(p, id[:]...)
		}
		p = str(p, string(d.appendModel(nil, x.Model)))
		p = num(p, int64(len(x.Above)))
		for _, a := range x.Above {
			p = str(appendParent(p, a.Parent), a.How)
		}
	}
	if len(x.Metrics) > 0 {
		p = appendMetrics(p, x.Metrics)
	}
	return p
}

// objects are those in which the graph lies.
func (x *Told) objects() (ids []ID) {
	for _, part := range x.Model.Graph {
		ids = append(ids, part.Object)
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// DecodeTold reads what Encode wrote and nothing else. It takes up to 100 bytes of memory for each of p.
func DecodeTold(p []byte) (*Told, error) {
	if len(p) > MaxTold {
		return nil, fmt.Errorf("told: %d bytes: %w", len(p), cas.ErrCorrupt)
	}
	r := newReader(p, "told")
	r.Magic(toldMagic)
	x := &Told{}
	flags := r.Byte()
	if flags&flagModel != 0 {
		x.Manifest = r.hash()
		d := &dictionary{Objects: many(r, len(ID{}), r.id)}
		x.Model = d.readModel(r)
		x.Above = many(r, 3, func() Ancestor {
			from := readParent(r)
			return Ancestor{from, r.String()}
		})
	}
	if flags&flagMetrics != 0 {
		x.Metrics = readMetrics(r)
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	again, err := x.Encode()
	if err != nil {
		return nil, corrupt(err)
	}
	if err := checkSame("told", p, again); err != nil {
		return nil, err
	}
	return x, nil
}
