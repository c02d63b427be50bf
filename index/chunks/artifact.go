package chunks

import (
	"bytes"
	"encoding/binary"
	"errors"

	bolt "go.etcd.io/bbolt"

	"ckptfs/cas"
)

// Artifact is the identity of the tensors of a manifest, as package canonical computes it.
type Artifact struct {
	ID       [64]byte // the index hash, the data hash
	Manifest cas.Hash
	Path     string // where a file of this manifest was, relative to the tree: a hint
}

// In the state bucket, both with a u32 checksum behind the value:
//
//	"artifact/m" manifest      the id; nothing when its tensors have none
//	"artifact/i" id manifest   the path
const (
	artifactOf = "artifact/m"
	artifactBy = "artifact/i"
)

func artifactKeys(a *Artifact) (of, by []byte) {
	of = append([]byte(artifactOf), a.Manifest[:]...)
	by = append(append([]byte(artifactBy), a.ID[:]...), a.Manifest[:]...)
	return of, by
}

// sum is seal of a value of the caller's.
func sum(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(value), checksum(key, value))
}

// PutArtifact keeps what was computed.
func (db *DB) PutArtifact(a *Artifact) error {
	of, by := artifactKeys(a)
	return db.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketState)
		if err := b.Put(of, sum(of, a.ID[:])); err != nil {
			return err
		}
		return b.Put(by, sum(by, []byte(a.Path)))
	})
}

// PutNoArtifact keeps that manifests' tensors have no identity.
func (db *DB) PutNoArtifact(manifests []cas.Hash) error {
	return db.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketState)
		for _, m := range manifests {
			of, _ := artifactKeys(&Artifact{Manifest: m})
			if err := b.Put(of, sum(of, nil)); err != nil {
				return err
			}
		}
		return nil
	})
}

// DropArtifacts forgets them.
func (db *DB) DropArtifacts(all []Artifact) error {
	if len(all) == 0 {
		return nil
	}
	return db.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketState)
		for i := range all {
			of, by := artifactKeys(&all[i])
			if err := errors.Join(b.Delete(of), b.Delete(by)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Identified reports whether it is known which id a manifest's tensors have, or that they have none.
func (db *DB) Identified(manifest cas.Hash) (known bool, err error) {
	of, _ := artifactKeys(&Artifact{Manifest: manifest})
	err = db.view(func(tx *bolt.Tx) error {
		v, err := unseal(of, tx.Bucket(bucketState).Get(of))
		known = err == nil && v != nil && (len(v) == 0 || len(v) == len(Artifact{}.ID))
		return nil
	})
	return known, err
}

// NoArtifacts calls f with the manifests whose tensors are known to have no identity. f must not call the index.
func (db *DB) NoArtifacts(f func(manifest cas.Hash) error) error {
	prefix := []byte(artifactOf)
	return db.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketState).Cursor()
		for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
			var m cas.Hash
			if v, err := unseal(key, value); err != nil || len(v) != 0 || len(key) != len(prefix)+len(m) {
				continue
			}
			copy(m[:], key[len(prefix):])
			if err := f(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// ArtifactOf is the id of a manifest's tensors; false when it is not known.
func (db *DB) ArtifactOf(manifest cas.Hash) (id [64]byte, ok bool, err error) {
	of, _ := artifactKeys(&Artifact{Manifest: manifest})
	err = db.view(func(tx *bolt.Tx) error {
		v, err := unseal(of, tx.Bucket(bucketState).Get(of))
		ok = err == nil && len(v) == len(id) // what is damaged is computed anew
		copy(id[:], v)
		return nil
	})
	return id, ok, err
}

// Artifacts calls f with what is known of an id, or of all when id is nil. An error of f's ends it. f must not call the index.
func (db *DB) Artifacts(id *[64]byte, f func(a Artifact) error) error {
	prefix := []byte(artifactBy)
	if id != nil {
		prefix = append(prefix, id[:]...)
	}
	return db.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketState).Cursor()
		for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
			var a Artifact
			rest := key[len(artifactBy):]
			v, err := unseal(key, value)
			if err != nil || len(rest) != len(a.ID)+len(a.Manifest) {
				continue
			}
			copy(a.Manifest[:], rest[copy(a.ID[:], rest):])
			a.Path = string(v)
			if err := f(a); err != nil {
				return err
			}
		}
		return nil
	})
}

// PutArtifact is DB.PutArtifact; when there is no room for an index it does nothing.
func (d *Deferring) PutArtifact(a *Artifact) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.view(func(db *DB) error { return db.PutArtifact(a) })
}

// PutNoArtifact is DB.PutNoArtifact; when there is no room for an index it does nothing.
func (d *Deferring) PutNoArtifact(manifests []cas.Hash) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.view(func(db *DB) error { return db.PutNoArtifact(manifests) })
}

// DropArtifacts is DB.DropArtifacts.
func (d *Deferring) DropArtifacts(all []Artifact) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.view(func(db *DB) error { return db.DropArtifacts(all) })
}

// Identified is DB.Identified.
func (d *Deferring) Identified(manifest cas.Hash) (known bool, err error) {
	err = d.view(func(db *DB) (err error) {
		known, err = db.Identified(manifest)
		return err
	})
	return known, err
}

// NoArtifacts is DB.NoArtifacts.
func (d *Deferring) NoArtifacts(f func(manifest cas.Hash) error) error {
	return d.view(func(db *DB) error { return db.NoArtifacts(f) })
}

// ArtifactOf is DB.ArtifactOf.
func (d *Deferring) ArtifactOf(manifest cas.Hash) (id [64]byte, ok bool, err error) {
	err = d.view(func(db *DB) (err error) {
		id, ok, err = db.ArtifactOf(manifest)
		return err
	})
	return id, ok, err
}

// Artifacts is DB.Artifacts.
func (d *Deferring) Artifacts(id *[64]byte, f func(a Artifact) error) error {
	return d.view(func(db *DB) error { return db.Artifacts(id, f) })
}
