package record

import (
	"math"

	"ckptfs/cas"
)

// What follows in an entry, besides its kind.
const (
	flagInline  = 8
	flagModel   = 16
	flagOver    = 32
	flagMetrics = 64

	kindBits = flagInline - 1

	refBytes = 3 // the least that a Ref takes
)

// appendEntries appends a list.
func (d *dictionary) appendEntries(p []byte, entries []Entry) []byte {
	prev := ""
	for i := range entries {
		p, prev = d.appendEntry(p, prev, &entries[i]), entries[i].Path
	}
	return p
}

// appendEntry appends e behind the entry of path prev.
func (d *dictionary) appendEntry(p []byte, prev string, e *Entry) []byte {
	n := shared(prev, e.Path)
	return d.appendBody(str(num(p, int64(n)), e.Path[n:]), e)
}

// appendBody appends all of an entry but its path.
func (d *dictionary) appendBody(p []byte, e *Entry) []byte {
	p = append(p, e.flags())
	p = num(num(p, d.writer(e.Origin)), e.Version)
	if e.Kind != KindTombstone {
		p = zz(num(p, int64(e.Mode)), e.MTime)
	}
	switch e.Kind {
	case KindFile:
		p = d.appendFile(p, e.File)
	case KindLink:
		p = str(p, e.Link)
	case KindFolder:
		p = num(p, int64(len(e.Attrs)))
		for _, a := range e.Attrs {
			p = str(str(p, a.Name), a.Value)
		}
	case KindTombstone:
		if e.Removed != nil {
			p = d.appendBody(zz(p, e.Removed.Time), &e.Removed.Entry)
		}
	}
	if len(e.Metrics) > 0 {
		p = appendMetrics(p, e.Metrics)
	}
	if len(e.Over) > 0 {
		p = num(p, int64(len(e.Over)))
		for _, o := range e.Over {
			p = num(num(p, d.writer(o.Writer)), o.Version)
		}
	}
	return p
}

// flags is an entry's kind and what follows.
func (e *Entry) flags() byte {
	b := byte(e.Kind)
	if e.Removed != nil {
		b = byte(kindRemoved)
	}
	if e.File != nil && e.File.Manifest.IsZero() {
		b |= flagInline
	}
	if e.File != nil && e.File.Model != nil {
		b |= flagModel
	}
	if len(e.Over) > 0 {
		b |= flagOver
	}
	if len(e.Metrics) > 0 {
		b |= flagMetrics
	}
	return b
}

func (d *dictionary) appendFile(p []byte, f *File) []byte {
	p = num(p, f.Size)
	if f.Manifest.IsZero() {
		return append(p, f.Inline...)
	}
	p = d.appendRef(append(p, f.Manifest[:]...), f.Plan)
	p = num(p, int64(len(f.Deps)))
	next := int64(0)
	for _, id := range f.Deps {
		n := d.object(id)
		p = num(p, n-next)
		next = n + 1
	}
	if f.Model != nil {
		p = str(p, string(d.appendModel(nil, f.Model)))
	}
	return p
}

func (d *dictionary) appendRef(p []byte, r Ref) []byte {
	return num(num(num(p, d.object(r.Object)), r.Off/8), int64(r.Stored))
}

func (d *dictionary) appendModel(p []byte, m *Model) []byte {
	p = str(appendParent(p, m.Parent), m.How)
	p = num(p, int64(len(m.Merged)))
	for _, from := range m.Merged {
		p = appendParent(p, from)
	}
	p = num(p, int64(len(m.Graph)))
	for _, part := range m.Graph {
		p = d.appendRef(append(p, part.Hash[:]...), part.Ref)
	}
	return str(p, m.Source)
}

func appendParent(p []byte, from Parent) []byte {
	if p = str(p, from.Path); from.Path == "" {
		return p
	}
	if from.Manifest.IsZero() {
		return num(p, 0)
	}
	return str(p, string(from.Manifest[:]))
}

// readEntries reads a list to the end, whose paths have at most most bytes. It takes up to 100 bytes of
// memory for each that there is, and most for the paths. What it read has yet to be checked.
func (d *dictionary) readEntries(r *reader, most int) []Entry {
	var entries []Entry
	prev, paths := "", 0
	for len(r.P) > 0 {
		e := d.readEntry(r, prev)
		if paths += len(e.Path); paths > most {
			r.Fail("paths of more than %d bytes", most)
		}
		if r.Err != nil {
			return nil
		}
		entries, prev = append(entries, e), e.Path
	}
	return entries
}

// decodeEntries reads a list that stands by itself, and checks it.
func (d *dictionary) decodeEntries(p []byte, of string, most int) ([]Entry, error) {
	r := newReader(p, of)
	entries := d.readEntries(r, most)
	if err := r.End(); err != nil {
		return nil, err
	}
	if err := d.checkEntries(entries, most); err != nil {
		return nil, corrupt(err)
	}
	if err := checkSame(of, p, d.appendEntries(make([]byte, 0, len(p)), entries)); err != nil {
		return nil, err
	}
	return entries, nil
}

func (d *dictionary) readEntry(r *reader, prev string) Entry {
	n := r.upTo(int64(len(prev)))
	path := prev[:n] + string(r.Take(int(r.upTo(MaxPath))))
	flags := r.Byte()
	e := d.readBody(r, path, flags)
	if Kind(flags&kindBits) == kindRemoved {
		e.Kind = KindTombstone
	}
	return e
}

// readBody reads all of an entry but its path and flags.
func (d *dictionary) readBody(r *reader, path string, flags byte) Entry {
	e := Entry{Path: path, Kind: Kind(flags & kindBits)}
	e.Origin, e.Version = d.readWriter(r), r.Num()
	if e.Kind < KindTombstone {
		e.Mode, e.MTime = uint16(r.upTo(maxMode)), r.Zigzag()
	}
	switch e.Kind {
	case KindFile:
		e.File = d.readFile(r, flags)
	case KindLink:
		e.Link = r.String()
	case KindFolder:
		e.Attrs = many(r, 2, func() Attr {
			name := r.String()
			return Attr{name, r.String()}
		})
	case kindRemoved:
		e.Removed = d.readRemoved(r, path)
	}
	if flags&flagMetrics != 0 {
		e.Metrics = readMetrics(r)
	}
	if flags&flagOver != 0 {
		e.Over = many(r, 2, func() Replaced {
			w := d.readWriter(r)
			return Replaced{w, r.Num()}
		})
	}
	return e
}

func (d *dictionary) readRemoved(r *reader, path string) *Removed {
	was := &Removed{Time: r.Zigzag()}
	flags := r.Byte()
	if Kind(flags&kindBits) >= KindTombstone {
		r.Fail("kind %d was removed", flags&kindBits)
		return nil
	}
	was.Entry = d.readBody(r, path, flags)
	return was
}

func appendMetrics(p []byte, all []Metric) []byte {
	p = num(p, int64(len(all)))
	for _, m := range all {
		p = le.AppendUint64(str(p, m.Name), floatBits(m.Value))
	}
	return p
}

func readMetrics(r *reader) []Metric {
	return many(r, 9, func() Metric {
		m := Metric{Name: r.String()}
		if q := r.Take(8); q != nil {
			m.Value = math.Float64frombits(le.Uint64(q))
		}
		return m
	})
}

func (d *dictionary) readFile(r *reader, flags byte) *File {
	f := &File{Size: r.Num()}
	if flags&flagInline != 0 {
		f.Inline = string(r.Take(int(min(f.Size, MaxInline+1))))
		return f
	}
	f.Manifest, f.Plan = r.hash(), d.readRef(r)
	next := int64(0)
	f.Deps = many(r, 1, func() ID {
		n := next + r.upTo(int64(len(d.Objects)))
		if n >= int64(len(d.Objects)) {
			r.Fail("object %d of %d", n, len(d.Objects))
			return ID{}
		}
		next = n + 1
		return d.Objects[n]
	})
	if flags&flagModel != 0 {
		f.Model = d.readModel(r)
	}
	return f
}

func (d *dictionary) readRef(r *reader) Ref {
	x := Ref{Object: d.readObject(r)}
	x.Off, x.Stored = r.upTo(MaxObject/8)*8, uint32(r.upTo(cas.MaxChunk))
	return x
}

func (d *dictionary) readModel(r *reader) *Model {
	in := newReader(r.Take(r.Count(1)), r.Of)
	m := &Model{Parent: readParent(in)}
	m.How = in.String()
	m.Merged = many(in, 2, func() Parent { return readParent(in) })
	m.Graph = many(in, cas.HashSize+refBytes, func() Part { return Part{in.hash(), d.readRef(in)} })
	m.Source = in.String()
	if err := in.End(); err != nil && r.Err == nil {
		r.Err, r.P = err, nil
	}
	return m
}

func readParent(r *reader) Parent {
	from := Parent{Path: r.String()}
	if from.Path == "" {
		return from
	}
	switch n := r.Num(); n {
	case 0:
	case cas.HashSize:
		from.Manifest = r.hash()
	default:
		r.Fail("manifest of %d bytes", n)
	}
	return from
}
