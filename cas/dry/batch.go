package dry

import (
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
)

// Kind is how something would be stored.
type Kind uint8

// The kinds. Equal is held already, and takes nothing. Columns are what chunks of low rank have in common.
// Names are lists and manifests.
const (
	Equal Kind = iota
	Delta
	LowRank
	Rounded
	Recipe
	Alone
	Columns
	Names
	Kinds int = iota
)

// Count is bytes before and after.
type Count struct{ Raw, Stored int64 }

// Tally is what the chunks of a file would take.
type Tally struct {
	Of [Kinds]Count
	// From are the bytes that are equal to those of other files, or stored against them.
	From map[uint32]int64
}

// Stored is what all of it takes.
func (t *Tally) Stored() (sum int64) {
	for _, c := range t.Of {
		sum += c.Stored
	}
	return sum
}

// Raw are the bytes that are stored in some way, before that. It is not known of which of them others are
// made.
func (t *Tally) Raw() int64 {
	return t.Of[Delta].Raw + t.Of[LowRank].Raw + t.Of[Rounded].Raw + t.Of[Recipe].Raw +
		t.Of[Alone].Raw
}

// Place turns an offset in what is packed, from which on so many bytes are asked for, into one in the file;
// false: they do not lie there in one piece.
type Place func(off int64, n int) (int64, bool)

// Batch takes the chunks of one file. It may be used by several goroutines at once.
type Batch struct {
	s     *Store
	file  uint32
	place Place

	mu    sync.Mutex
	tally Tally
}

// Begin starts the Batch of a file, of which Open knows the number.
func (s *Store) Begin(file uint32, place Place) *Batch {
	return &Batch{s: s, file: file, place: place, tally: Tally{From: map[uint32]int64{}}}
}

// Tally is what was put so far.
func (b *Batch) Tally() Tally { return b.tally }

// note counts something; from are the files that have what it was stored with the help of.
func (b *Batch) note(k Kind, raw, stored int64, from ...uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tally.Of[k].Raw += raw
	b.tally.Of[k].Stored += stored
	if len(from) > 0 && from[0] != b.file {
		b.tally.From[from[0]] += raw
	}
}

// Put is PutRelated of what is related to nothing.
func (b *Batch) Put(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint) (fresh bool, err error) {
	fresh, _, err = b.PutRelated(kind, h, raw, hint, cas.Related{})
	return fresh, err
}

// PutHeld counts those of hashes that are held, and says which these are.
func (b *Batch) PutHeld(kind cas.Kind, hashes []cas.Hash, held []bool) error {
	for i, h := range hashes {
		r, ok := b.s.find(h)
		if held[i] = ok && r.settled && r.kind.Serves(kind); held[i] && kind == cas.Chunk {
			b.note(Equal, int64(r.raw), 0, r.file)
		}
	}
	return b.s.Err()
}

// PutRelated counts what a chunk would take, by the rules of store.Batch.PutRelated.
func (b *Batch) PutRelated(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related) (
	fresh bool, id byte, err error) {
	if rel.InFile {
		rel.Off, rel.InFile = b.place(rel.Off, len(raw))
	}
	n, of, err := b.s.claim(kind, h, raw, b.file, &rel)
	if err != nil {
		return false, 0, err
	}
	if n == 0 {
		if kind == cas.Chunk {
			b.note(Equal, int64(len(raw)), 0, of)
		}
		return false, 0, nil
	}
	id, base, stored, err := b.encode(h, raw, hint, rel)
	if err != nil {
		return false, 0, err
	}
	from := b.s.settle(n, &base, stored)
	as := kindOf(id)
	if kind != cas.Chunk {
		as, from = Names, nil
	}
	b.note(as, int64(len(raw)), segment.Size(stored)+perRecord, from...)
	return true, id, b.s.Err()
}

// encode encodes raw as the rounding of its masters if it is that, else by its recipe or as a delta if that
// pays.
func (b *Batch) encode(h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related) (
	id byte, base segment.Base, stored int, err error) {
	p := scratch.Get()
	defer scratch.Put(p)
	if need := int(segment.Size(len(raw) + segment.MaxBaseSize)); cap(*p) < need {
		*p = make([]byte, 0, need)
	}
	id, base, ok := byte(0), segment.Base{}, false
	if len(raw) <= segment.MaxBased {
		if base, ok = b.rounded(raw, hint, rel.Masters, p); ok {
			id = codec.Rounded
		} else if base, ok = b.recipe(h, raw, hint, rel.Recipe, p); ok {
			id = codec.Recipe
		} else if id, base, ok, err = b.against(h, raw, hint, rel, p); err != nil {
			return id, base, 0, err
		}
	}
	if !ok {
		id, *p = codec.Encode((*p)[:segment.RecordHeaderSize], raw, hint)
		base = segment.Base{}
	}
	return id, base, len(*p) - segment.RecordHeaderSize, nil
}

func (b *Batch) rounded(raw []byte, hint codec.Hint, masters [2]cas.Hash, p *[]byte) (
	base segment.Base, ok bool) {
	if masters[0].IsZero() || !codec.MayBeRounded(hint) {
		return base, false
	}
	base = segment.Base{Hash: masters[0], Second: masters[1], Number: segment.RoundedNumber}
	q := scratch.Get()
	defer scratch.Put(q)
	if *q, ok = b.s.contents((*q)[:0], &base, nil); !ok {
		return base, false
	}
	return base, delta.Rounded(p, &base, *q, raw, hint)
}

func (b *Batch) recipe(h cas.Hash, raw []byte, hint codec.Hint, rel *cas.Recipe, p *[]byte) (
	base segment.Base, ok bool) {
	if rel == nil {
		return base, false
	}
	base, ok = segment.Recipe(rel.Bases)
	if !ok || slices.Contains(rel.Bases, h) {
		return base, false
	}
	deep, ok := b.s.bear(rel.Bases)
	if !ok {
		return base, false
	}
	q := scratch.Room(len(rel.Bases) * cas.ChunkSize)
	defer scratch.Put(q)
	if *q, ok = b.s.contents(*q, &base, nil); !ok || len(*q) > segment.MaxRecipe {
		return base, false
	}
	if ok = delta.Recipe(p, &base, rel.Program, *q, raw, hint, deep); ok {
		b.s.remember(h, rel)
	}
	return base, ok
}

func (b *Batch) against(h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related, p *[]byte) (
	id byte, base segment.Base, ok bool, err error) {
	if rel.Prev.IsZero() || rel.Prev == h {
		return 0, base, false, nil
	}
	if base, _, ok = delta.Next(rel, b.s.located); !ok || base.Hash == h {
		return 0, base, false, nil
	}
	q := scratch.Get()
	defer scratch.Put(q)
	if *q, ok = b.s.contents((*q)[:0], &base, rel.Base); !ok {
		return 0, base, false, nil
	}
	id, ok = delta.Encode(p, &base, *q, raw, hint, rel)
	if ok && id == codec.LowRank {
		err = b.columns(rel.Columns, hint)
	}
	return id, base, ok, err
}

// columns puts what chunks of low rank have in common.
func (b *Batch) columns(c *cas.Columns, hint codec.Hint) error {
	n, _, err := b.s.claim(cas.Chunk, c.Hash, c.Raw, b.file, &cas.Related{})
	if n == 0 || err != nil {
		return err
	}
	_, base, stored, err := b.encode(c.Hash, c.Raw, codec.ColumnsHint(hint), cas.Related{})
	if err != nil {
		return err
	}
	b.s.settle(n, &base, stored)
	b.note(Columns, int64(len(c.Raw)), segment.Size(stored)+perRecord)
	return nil
}
