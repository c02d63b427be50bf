package state

import (
	"bytes"
	"fmt"
	"slices"
	"sort"

	"ckptfs/cas"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/index/chunks"
)

const (
	prefixLen = 2
	tailLen   = 14
	placeSize = 32
	basedBit  = 128
)

// Find sets places[i] to where hashes[i] lies; the zero Place: not known.
func (db *DB) Find(hashes []cas.Hash, places []objects.Place) error {
	return db.use(func() (err error) {
		for i := range hashes {
			if places[i], err = db.find(hashes[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (db *DB) find(h cas.Hash) (objects.Place, error) {
	blob, err := db.tables.places.Get(h[:prefixLen])
	if err != nil {
		return objects.Place{}, err
	}
	tail := h[prefixLen : prefixLen+tailLen]
	p := seek(blob, tail)
	if len(p) < placeSize || !bytes.Equal(p[:tailLen], tail) {
		return objects.Place{}, nil
	}
	o, err := db.object(be.Uint32(p[14:]))
	if err != nil || o.Len == 0 {
		return objects.Place{}, err
	}
	return objects.Place{Object: o, Placed: placed(p, h)}, nil
}

// seek is the part of a blob from the first tail on that is not less than the given one.
func seek(blob, tail []byte) []byte {
	n := sort.Search(len(blob)/placeSize, func(i int) bool {
		return bytes.Compare(blob[i*placeSize:][:tailLen], tail) >= 0
	})
	return blob[n*placeSize:]
}

func placed(p []byte, h cas.Hash) objects.Placed {
	return objects.Placed{Hash: h, Off: int64(u24(p[18:])) * 8, Stored: u24(p[21:]), Raw: u24(p[24:]),
		CRC: be.Uint32(p[27:]), Kind: cas.Kind(p[31] &^ basedBit), Based: p[31]&basedBit != 0}
}

func appendPlaced(p []byte, number uint32, x *objects.Placed) []byte {
	p = be.AppendUint32(append(p, x.Hash[prefixLen:prefixLen+tailLen]...), number)
	p = be.AppendUint32(append24(append24(append24(p, uint32(x.Off/8)), x.Stored), x.Raw), x.CRC)
	kind := byte(x.Kind)
	if x.Based {
		kind |= basedBit
	}
	return append(p, kind)
}

func u24(p []byte) uint32 { return uint32(p[0])<<16 | uint32(p[1])<<8 | uint32(p[2]) }

func append24(p []byte, v uint32) []byte { return append(p, byte(v>>16), byte(v>>8), byte(v)) }

// Learn notes that an object is there, and what lies in it. What is learned of a hash later wins.
func (db *DB) Learn(o record.Object, records []objects.Placed) error {
	for i := range records {
		if x := &records[i]; x.Off < 0 || x.Off%8 != 0 || x.Off >= record.MaxObject ||
			x.Stored > cas.MaxChunk || x.Raw > cas.MaxChunk || x.Kind >= basedBit {
			return fmt.Errorf("place %+v cannot be held", *x)
		}
	}
	return db.use(func() error {
		db.changes.Lock()
		defer db.changes.Unlock()
		number, err := db.numberLocked(o)
		if err != nil {
			return err
		}
		var pairs []chunks.Pair
		recs := slices.Clone(records)
		slices.SortStableFunc(recs, func(a, b objects.Placed) int {
			return bytes.Compare(a.Hash[:prefixLen+tailLen], b.Hash[:prefixLen+tailLen])
		})
		for len(recs) > 0 {
			n := 1
			for n < len(recs) && bytes.Equal(recs[n].Hash[:prefixLen], recs[0].Hash[:prefixLen]) {
				n++
			}
			key := bytes.Clone(recs[0].Hash[:prefixLen])
			old, err := db.tables.places.Get(key)
			if err != nil {
				return err
			}
			pairs = append(pairs, chunks.Pair{Key: key, Value: merge(old, number, recs[:n])})
			recs = recs[n:]
		}
		return db.tables.places.Write(pairs)
	})
}

// merge is a blob with recs, which are sorted, in the place of what it has of their hashes.
func merge(old []byte, number uint32, recs []objects.Placed) (blob []byte) {
	blob = make([]byte, 0, len(old)+len(recs)*placeSize)
	for i := range recs {
		tail := recs[i].Hash[prefixLen : prefixLen+tailLen]
		if i+1 < len(recs) && bytes.Equal(tail, recs[i+1].Hash[prefixLen:prefixLen+tailLen]) {
			continue // the later one wins
		}
		rest := seek(old, tail)
		blob = append(blob, old[:len(old)-len(rest)]...)
		if len(rest) >= placeSize && bytes.Equal(rest[:tailLen], tail) {
			rest = rest[placeSize:]
		}
		blob, old = appendPlaced(blob, number, &recs[i]), rest
	}
	return append(blob, old...)
}

// numberLocked is the number of an object, which it is given now if it has none.
func (db *DB) numberLocked(o record.Object) (uint32, error) {
	t := db.tables.objects
	if p, err := t.Get(o.ID[:]); err != nil || len(p) == 4 {
		if err == nil {
			return be.Uint32(p), nil
		}
		return 0, err
	}
	number := uint32(1)
	if p, err := t.Get(lastKey); err != nil {
		return 0, err
	} else if len(p) == 4 {
		number = be.Uint32(p) + 1
	}
	key := be.AppendUint32(nil, number)
	value := append(be.AppendUint64(bytes.Clone(o.ID[:]), uint64(o.Len)), byte(o.Class))
	pairs := []chunks.Pair{{Key: key, Value: value}, {Key: o.ID[:], Value: key}, {Key: lastKey, Value: key}}
	if err := t.Write(pairs); err != nil {
		return 0, err
	}
	return number, kept(t, pairs) // else places would name a number that another object gets
}

var lastKey = []byte("numbers")

// object is the object of a number; the zero Object if there is none.
func (db *DB) object(number uint32) (o record.Object, err error) {
	if o, ok := db.objects.Get(number); ok {
		return o, nil
	}
	p, err := db.tables.objects.Get(be.AppendUint32(nil, number))
	if err != nil || len(p) != 25 {
		return o, err
	}
	o = record.Object{ID: record.ID(p[:16]), Len: int64(be.Uint64(p[16:])), Class: record.Class(p[24])}
	db.objects.Add(number, o)
	return o, nil
}

// Forget drops all places. It is durable when it returns.
func (db *DB) Forget() error {
	return db.use(func() error {
		db.changes.Lock()
		defer db.changes.Unlock()
		var pairs []chunks.Pair
		err := db.tables.places.Scan(nil, func(key, _ []byte) error {
			pairs = append(pairs, chunks.Pair{Key: bytes.Clone(key)})
			return nil
		})
		if err != nil {
			return err
		}
		return db.write(db.tables.places, pairs)
	})
}
