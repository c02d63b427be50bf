package state

import (
	"bytes"

	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
	"ckptfs/index/chunks"
)

var (
	identityKey = []byte("identity")
	epochKey    = []byte("epoch")
)

// fixed is how many bytes of an identity stand before what varies in length.
const fixed = 16 + 16 + 8 + 2

// Identity is what SetIdentity was given last; zero at first.
func (db *DB) Identity() (id writer.Identity, err error) {
	err = db.use(func() error {
		p, err := db.tables.self.Get(identityKey)
		id = parseIdentity(p)
		return err
	})
	return id, err
}

// parseIdentity is zero for what is none.
func parseIdentity(p []byte) (id writer.Identity) {
	if len(p) < fixed || len(p)-fixed < 16*int(be.Uint16(p[40:])) {
		return id
	}
	id = writer.Identity{Instance: record.ID(p[:16]), Commit: record.ID(p[16:32]),
		Sequence: int64(be.Uint64(p[32:]))}
	n := int(be.Uint16(p[40:]))
	for p = p[fixed:]; n > 0; n-- {
		id.Pending, p = append(id.Pending, record.ID(p[:16])), p[16:]
	}
	id.Writer = record.Writer(p)
	return id
}

// SetIdentity is durable when it returns.
func (db *DB) SetIdentity(id writer.Identity) error {
	p := append(bytes.Clone(id.Instance[:]), id.Commit[:]...)
	p = be.AppendUint16(be.AppendUint64(p, uint64(id.Sequence)), uint16(len(id.Pending)))
	for _, c := range id.Pending {
		p = append(p, c[:]...)
	}
	p = append(p, id.Writer...)
	return db.use(func() error { return db.put(db.tables.self, identityKey, p) })
}

// Epoch is the newest of which, and of all before, Condemn was told; 0 at first.
func (db *DB) Epoch() (epoch uint32, err error) {
	err = db.use(func() error {
		p, err := db.tables.condemned.Get(epochKey)
		if len(p) == 4 {
			epoch = be.Uint32(p)
		}
		return err
	})
	return epoch, err
}

// Condemn notes that the next epoch condemned objects. It is durable when it returns.
func (db *DB) Condemn(epoch uint32, ids []record.ID) error {
	at := be.AppendUint32(nil, epoch)
	pairs := []chunks.Pair{{Key: epochKey, Value: at}}
	for i := range ids {
		pairs = append(pairs, chunks.Pair{Key: ids[i][:], Value: at})
	}
	return db.use(func() error { return db.write(db.tables.condemned, pairs) })
}

// Condemned sets gone[i] to whether an epoch has condemned ids[i].
func (db *DB) Condemned(ids []record.ID, gone []bool) error {
	return db.use(func() error {
		for i := range ids {
			p, err := db.tables.condemned.Get(ids[i][:])
			if err != nil {
				return err
			}
			gone[i] = p != nil
		}
		return nil
	})
}
