package record

import (
	"cmp"
	"fmt"
	"slices"

	"ckptfs/cas"
)

const (
	stateMagic = "ckptstat"
	epochMagic = "ckptepoc"
	agingMagic = "ckptagin"

	collectionVersion = 1
	collectionFixed   = 32 // bytes before what differs

	// MaxState bounds the bytes of gc/state. Those of an epoch and of the aging are bounded by MaxObject.
	MaxState = 64

	flagDeleted = 1
)

// Key names an object that never changes.
type Key struct {
	Class Class
	ID    ID
}

// String is the object's key.
func (k Key) String() string { return k.Class.Key(k.ID) }

// Compare orders keys as they are listed.
func (k Key) Compare(l Key) int {
	return cmp.Or(cmp.Compare(k.Class, l.Class), compareIDs(k.ID, l.ID))
}

// State is gc/state: the newest epoch that is published. Without the object it is epoch 0.
type State struct {
	Remote ID
	Epoch  uint32
}

// Epoch is a run of the collector: what it condemned, or, once it is decided, what of that is deleted.
type Epoch struct {
	Remote    ID
	Number    uint32 // from 1
	Deleted   bool   // Objects are deleted or about to be, by anybody at any time; else they are condemned
	Time      int64  // ns since 1970 when it was condemned, for people
	Collector Writer // who condemned
	Objects   []Key  // ascending
}

// Has reports whether the epoch names an object.
func (e *Epoch) Has(k Key) bool {
	_, ok := slices.BinarySearchFunc(e.Objects, k, Key.Compare)
	return ok
}

// Aging is gc/aging: since when what is unreferenced. It decides what is worth condemning, and nothing else.
type Aging struct {
	Remote  ID
	Objects []Aged // ascending
}

// Aged is an object that nothing refers to.
type Aged struct {
	Key
	Since int64 // when that was first seen, by the engine's clock, s since 1970
}

// Encode returns the state's one encoding.
func (s *State) Encode() ([]byte, error) {
	if s.Remote.IsZero() || s.Epoch == 0 {
		return nil, fmt.Errorf("%s: epoch %d of remote %s", StateKey, s.Epoch, s.Remote)
	}
	return seal(le.AppendUint32(appendCollection(stateMagic, s.Remote, 0), s.Epoch)), nil
}

// DecodeState reads what Encode wrote.
func DecodeState(p []byte) (*State, error) {
	r, remote, err := openCollection(StateKey, stateMagic, p)
	if err != nil {
		return nil, err
	}
	s := &State{Remote: remote, Epoch: r.uint32()}
	return s, endCollection(r, p, s.Encode)
}

// Encode returns the epoch's one encoding; cas.ErrTooLarge if it has too many objects.
func (e *Epoch) Encode() ([]byte, error) {
	err := e.Collector.Check()
	if err == nil && (e.Remote.IsZero() || e.Number == 0 || len(e.Objects) == 0 && !e.Deleted) {
		err = fmt.Errorf("%d objects, remote %s", len(e.Objects), e.Remote)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EpochKey(e.Number), err)
	}
	p := appendCollection(epochMagic, e.Remote, 64+len(ID{})*len(e.Objects))
	flags := uint32(0)
	if e.Deleted {
		flags |= flagDeleted
	}
	p = le.AppendUint32(le.AppendUint32(p, e.Number), flags)
	p = str(le.AppendUint64(p, uint64(e.Time)), string(e.Collector))
	p, err = appendKeys(p, e.Objects, func(k Key) Key { return k }, func(p []byte, _ Key) []byte { return p })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EpochKey(e.Number), err)
	}
	return seal(p), nil
}

// DecodeEpoch reads what Encode wrote of epoch n.
func DecodeEpoch(n uint32, p []byte) (*Epoch, error) {
	r, remote, err := openCollection(EpochKey(n), epochMagic, p)
	if err != nil {
		return nil, err
	}
	e := &Epoch{Remote: remote, Number: r.uint32()}
	if e.Number != n {
		r.Fail("it is epoch %d", e.Number)
	}
	e.Deleted = r.uint32()&flagDeleted != 0
	e.Time, e.Collector = int64(r.uint64()), Writer(r.String())
	e.Objects = readKeys(r, len(ID{}), func(k Key) Key { return k })
	return e, endCollection(r, p, e.Encode)
}

// Encode returns the aging's one encoding; cas.ErrTooLarge if it has too many objects.
func (a *Aging) Encode() ([]byte, error) {
	if a.Remote.IsZero() {
		return nil, fmt.Errorf("%s: no remote", AgingKey)
	}
	times := make([]int64, 0, len(a.Objects))
	for i := range a.Objects {
		times = append(times, a.Objects[i].Since)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	p := num(appendCollection(agingMagic, a.Remote, 64+18*len(a.Objects)), int64(len(times)))
	for _, t := range times {
		p = zz(p, t)
	}
	p, err := appendKeys(p, a.Objects, func(o Aged) Key { return o.Key }, func(p []byte, o Aged) []byte {
		i, _ := slices.BinarySearch(times, o.Since)
		return num(p, int64(i))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", AgingKey, err)
	}
	return seal(p), nil
}

// DecodeAging reads what Encode wrote.
func DecodeAging(p []byte) (*Aging, error) {
	r, remote, err := openCollection(AgingKey, agingMagic, p)
	if err != nil {
		return nil, err
	}
	a := &Aging{Remote: remote}
	times := many(r, 1, r.Zigzag)
	a.Objects = readKeys(r, len(ID{})+1, func(k Key) Aged {
		i := r.Num()
		if i >= int64(len(times)) {
			r.Fail("time %d of %d", i, len(times))
			return Aged{}
		}
		return Aged{k, times[i]}
	})
	return a, endCollection(r, p, a.Encode)
}

// appendCollection begins an object of the collector, with room for size bytes.
func appendCollection(magic string, remote ID, size int) []byte {
	p := append(make([]byte, 0, MaxState+size), magic...)
	p = append(le.AppendUint16(p, collectionVersion), 0, 0, 0, 0, 0, 0)
	return append(p, remote[:]...)
}

func seal(p []byte) []byte { return le.AppendUint32(p, crc(p)) }

// openCollection reads how an object of the collector begins and that it is whole.
func openCollection(of, magic string, p []byte) (*reader, ID, error) {
	n := len(p) - 4
	if n < collectionFixed || len(p) > MaxObject || string(p[:8]) != magic || le.Uint32(p[n:]) != crc(p[:n]) {
		return nil, ID{}, fmt.Errorf("%s of %d bytes: %w", of, len(p), cas.ErrCorrupt)
	}
	if err := checkVersion(of, p[8:], collectionVersion); err != nil {
		return nil, ID{}, err
	}
	return newReader(p[collectionFixed:n], of), ID(p[16:collectionFixed]), nil
}

// endCollection holds that all was read, and is written in no other way.
func endCollection(r *reader, p []byte, encode func() ([]byte, error)) error {
	if err := r.End(); err != nil {
		return err
	}
	again, err := encode()
	if err != nil {
		return corrupt(err)
	}
	return checkSame(r.Of, p, again)
}

// classes are in the order of their keys.
var classes = []Class{ClassData, ClassShard, ClassMeta, ClassTable}

// appendKeys appends items by class and id, and behind each id what more there is of it.
func appendKeys[T any](p []byte, items []T, key func(T) Key, more func([]byte, T) []byte) ([]byte, error) {
	for i := range items {
		k := key(items[i])
		if !slices.Contains(classes, k.Class) || i > 0 && key(items[i-1]).Compare(k) >= 0 {
			return nil, fmt.Errorf("object %s, number %d", k, i)
		}
	}
	for _, c := range classes {
		n := slices.IndexFunc(items, func(x T) bool { return key(x).Class != c })
		if n < 0 {
			n = len(items)
		}
		p = num(p, int64(n))
		for _, x := range items[:n] {
			id := key(x).ID
			p = more(append(p, id[:]...), x)
		}
		items = items[n:]
	}
	if len(p) > MaxObject-4 {
		return nil, fmt.Errorf("%d bytes: %w", len(p), cas.ErrTooLarge)
	}
	return p, nil
}

// readKeys reads what appendKeys wrote, each item of size bytes at least.
func readKeys[T any](r *reader, size int, one func(Key) T) []T {
	var items []T
	for _, c := range classes {
		n := r.Count(size)
		items = slices.Grow(items, n)
		for i := 0; i < n && r.Err == nil; i++ {
			items = append(items, one(Key{c, r.id()}))
		}
	}
	return items
}
