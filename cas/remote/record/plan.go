package record

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

const planMagic = "CKP2"

// Plan is where everything lies that decoding one file reads.
type Plan struct {
	Manifest cas.Hash
	Size     int64    // bytes of the file
	Objects  []Object // by ascending id
	Record   Record   // the manifest's
	Lists    []Record // in the order of the manifest's objects
	Chunks   []Place  // in the order in which manifest and lists first name them
	Bases    []Base   // by ascending place; those that are none of the above
	// Against says of each chunk, and then of each base, what it is stored against; nil: nothing does. It is
	// for reading ahead: which records these are in truth their payloads say.
	Against []Against
}

// Against are the records that one is stored against, at most segment.MaxRecipeBases: 1 and more are the
// chunks, in their order, behind them the bases, in theirs.
type Against []uint32

// Object is an object that has records of a file.
type Object struct {
	ID    ID
	Class Class // ClassData or ClassMeta
	Len   int64 // bytes, at most MaxObject
}

// Record is a record whose length nothing else says.
type Record struct {
	Place
	Raw uint32 // bytes once decoded, 1 to cas.MaxChunk
}

// Base is a record that others are stored against.
type Base struct {
	Record
	Hash   [16]byte // the first of its hash; the record at the place has all
	Number uint8    // as in package segment: 0 to segment.RoundedNumber
	Kind   cas.Kind
}

// Encode returns the plan's one encoding, or an error when DecodePlan would refuse it.
func (p *Plan) Encode() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	b := p.append(make([]byte, 0, 64+20*len(p.Objects)+4*len(p.Chunks)+48*len(p.Bases)))
	if len(b) > cas.MaxChunk {
		return nil, fmt.Errorf("plan of %d bytes: %w", len(b), cas.ErrTooLarge)
	}
	return b, nil
}

func (p *Plan) append(b []byte) []byte {
	b = append(append(b, planMagic...), p.Manifest[:]...)
	b = num(num(b, p.Size), int64(len(p.Objects)))
	for _, o := range p.Objects {
		n := o.Len << 1
		if o.Class == ClassMeta {
			n |= 1
		}
		b = num(append(b, o.ID[:]...), n)
	}
	var c placeCoder
	b = c.appendRecord(b, p.Record)
	b = num(b, int64(len(p.Lists)))
	for _, x := range p.Lists {
		b = c.appendRecord(b, x)
	}
	b = num(b, int64(len(p.Chunks)))
	for _, at := range p.Chunks {
		b = c.append(b, at)
	}
	b = num(b, int64(len(p.Bases)))
	for _, x := range p.Bases {
		b = c.appendRecord(append(b, x.Hash[:]...), x.Record)
		b = append(b, x.Number|byte(x.Kind)<<4)
	}
	return p.appendAgainst(b)
}

func (p *Plan) appendAgainst(b []byte) []byte {
	b = num(b, int64(len(p.Against)))
	next := int64(1 + len(p.Chunks))
	for _, a := range p.Against {
		b = num(b, int64(len(a)))
		for _, x := range a {
			b = zz(b, int64(x)-next)
			next = int64(x) + 1
		}
	}
	return b
}

func (p *Plan) readAgainst(r *reader) {
	next := int64(1 + len(p.Chunks))
	var all []uint32
	p.Against = many(r, 1, func() Against {
		n := int(r.upTo(segment.MaxRecipeBases))
		for range n {
			x := uint32(next + r.Zigzag())
			all = append(all, x)
			next = int64(x) + 1
		}
		if n == 0 {
			return nil
		}
		return all[len(all)-n : len(all) : len(all)]
	})
}

// DecodePlan reads what Encode wrote and nothing else. It takes up to 28 bytes of memory for each of b.
func DecodePlan(b []byte) (*Plan, error) {
	r := newReader(b, "plan")
	r.Magic(planMagic)
	p := &Plan{}
	p.Manifest, p.Size = r.hash(), r.Num()
	p.Objects = many(r, len(ID{})+1, func() Object {
		o := Object{ID: r.id(), Class: ClassData}
		n := r.Num()
		if o.Len = n >> 1; n&1 != 0 {
			o.Class = ClassMeta
		}
		return o
	})
	var c placeCoder
	record := func() Record { return c.readRecord(r, p.Objects) }
	p.Record = record()
	p.Lists = many(r, 2, record)
	p.Chunks = many(r, 1, func() Place { return c.read(r, p.Objects) })
	p.Bases = many(r, len(Base{}.Hash)+3, func() Base {
		x := Base{Hash: [16]byte(r.id())}
		x.Record = record()
		b := r.Byte()
		x.Number, x.Kind = b&15, cas.Kind(b>>4)
		return x
	})
	p.readAgainst(r)
	if err := r.End(); err != nil {
		return nil, err
	}
	again, err := p.Encode()
	if err != nil {
		return nil, corrupt(err)
	}
	if err := checkSame("plan", b, again); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Plan) check() error {
	if p.Manifest.IsZero() || p.Size < 0 {
		return fmt.Errorf("of manifest %s, %d bytes", p.Manifest.Short(), p.Size)
	}
	if err := p.checkObjects(); err != nil {
		return err
	}
	if err := p.Record.check(p.Objects, cas.MaxChunk); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	for i, r := range p.Lists {
		if err := r.check(p.Objects, cas.MaxChunk); err != nil {
			return fmt.Errorf("list %d: %w", i, err)
		}
	}
	for i, at := range p.Chunks {
		if err := at.check(p.Objects); err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
	}
	if err := p.checkBases(); err != nil {
		return err
	}
	if err := p.checkAgainst(); err != nil {
		return err
	}
	return p.checkUsed()
}

func (r *Record) check(objects []Object, most uint32) error {
	if r.Raw < 1 || r.Raw > most {
		return fmt.Errorf("of %d bytes", r.Raw)
	}
	return r.Place.check(objects)
}

func (p *Plan) checkObjects() error {
	for i, o := range p.Objects {
		if i > 0 && compareIDs(p.Objects[i-1].ID, o.ID) >= 0 || o.Len > MaxObject ||
			o.Class != ClassData && o.Class != ClassMeta {
			return fmt.Errorf("object %d: %s of %d bytes", i, o.Class.Key(o.ID), o.Len)
		}
	}
	return nil
}

func (p *Plan) checkBases() error {
	seen := make(map[[16]byte]bool, len(p.Bases))
	for i, x := range p.Bases {
		if err := x.Record.check(p.Objects, segment.MaxBased); err != nil {
			return fmt.Errorf("base %d: %w", i, err)
		}
		if seen[x.Hash] || x.Number > segment.RoundedNumber || x.Kind < cas.Chunk ||
			x.Kind > cas.Manifest {
			return fmt.Errorf("base %d: %x, %s of number %d", i, x.Hash, x.Kind, x.Number)
		}
		seen[x.Hash] = true
		if i == 0 {
			continue
		}
		if before := p.Bases[i-1].Place; before.Object > x.Object ||
			before.Object == x.Object && before.End() > x.Off {
			return fmt.Errorf("base %d at %d of object %d", i, x.Off, x.Object)
		}
	}
	return nil
}

// checkAgainst holds that what records are stored against is in the plan. Of bases it has a lower number, so
// that there are no circles of these.
func (p *Plan) checkAgainst() error {
	records := len(p.Chunks) + len(p.Bases)
	if len(p.Against) != 0 && len(p.Against) != records {
		return fmt.Errorf("what %d of %d records are stored against", len(p.Against), records)
	}
	for i, a := range p.Against {
		if len(a) > segment.MaxRecipeBases {
			return fmt.Errorf("record %d: against %d", i, len(a))
		}
		for _, x := range a {
			if x == 0 || int64(x) > int64(records) || int64(x) == int64(i)+1 {
				return fmt.Errorf("record %d: %d of %d", i, x, records)
			}
			own, base := i-len(p.Chunks), int(x)-1-len(p.Chunks)
			if own >= 0 && base >= 0 && p.Bases[base].Number >= p.Bases[own].Number {
				return fmt.Errorf("base %d: base %d of no lower number", own, base)
			}
		}
	}
	return nil
}

// checkUsed holds that each object has a place in it: one that a file does not need would be kept for it.
func (p *Plan) checkUsed() error {
	used := make([]bool, len(p.Objects))
	used[p.Record.Object] = true
	for _, r := range p.Lists {
		used[r.Object] = true
	}
	for _, at := range p.Chunks {
		used[at.Object] = true
	}
	for _, x := range p.Bases {
		used[x.Object] = true
	}
	for i, ok := range used {
		if !ok {
			return fmt.Errorf("object %d has no record of it", i)
		}
	}
	return nil
}
