// Package artifacts keeps the identities of tensors that package canonical computed, by manifest. The table
// is derived: what is missing or damaged is computed again. It lies in a bucket of the chunk index, whose
// keys are
//
//	"m" manifest      the id; nothing when its tensors have none
//	"i" id manifest   the path
package artifacts

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/index/chunks"
)

// BucketName is the bucket's in the index.
const BucketName = "artifacts"

const (
	byManifest = "m"
	byID       = "i"
)

// Artifact is the identity of the tensors of a manifest.
type Artifact struct {
	ID       [64]byte // the index hash, the data hash
	Manifest cas.Hash
	Path     string // where a file of this manifest was, relative to the tree: a hint
}

func (a *Artifact) keys() (of, by []byte) {
	return slices.Concat([]byte(byManifest), a.Manifest[:]),
		slices.Concat([]byte(byID), a.ID[:], a.Manifest[:])
}

// Bucket is what a Table is kept in. Write is all or nothing; a pair without a value removes the key. A
// damaged value is as good as none.
type Bucket interface {
	Get(key []byte) (value []byte, err error)
	Write(pairs []chunks.Pair) error
	Scan(prefix []byte, f func(key, value []byte) error) error
}

// Table is the table of artifacts of one store. It is safe for concurrent use.
type Table struct{ b Bucket }

// New is the table in a bucket.
func New(b Bucket) *Table { return &Table{b} }

// Put keeps what was computed.
func (t *Table) Put(a *Artifact) error {
	of, by := a.keys()
	return t.b.Write([]chunks.Pair{{Key: of, Value: a.ID[:]}, {Key: by, Value: append([]byte{}, a.Path...)}})
}

// PutNone keeps that a manifest's tensors have no identity.
func (t *Table) PutNone(manifest cas.Hash) error {
	of, _ := (&Artifact{Manifest: manifest}).keys()
	return t.b.Write([]chunks.Pair{{Key: of, Value: []byte{}}})
}

// Drop forgets them.
func (t *Table) Drop(all []Artifact) error {
	var pairs []chunks.Pair
	for i := range all {
		of, by := all[i].keys()
		pairs = append(pairs, chunks.Pair{Key: of}, chunks.Pair{Key: by})
	}
	return t.b.Write(pairs)
}

// Known reports whether it is known which id a manifest's tensors have, or that they have none.
func (t *Table) Known(manifest cas.Hash) (known bool, err error) {
	v, err := t.get(manifest)
	return v != nil && (len(v) == 0 || len(v) == len(Artifact{}.ID)), err
}

// Of is the id of a manifest's tensors; false when it is not known.
func (t *Table) Of(manifest cas.Hash) (id [64]byte, ok bool, err error) {
	v, err := t.get(manifest)
	copy(id[:], v)
	return id, len(v) == len(id), err
}

func (t *Table) get(manifest cas.Hash) ([]byte, error) {
	of, _ := (&Artifact{Manifest: manifest}).keys()
	return t.b.Get(of)
}

// EachNone calls f with the manifests whose tensors are known to have no identity. f must not call the index.
func (t *Table) EachNone(f func(manifest cas.Hash) error) error {
	return t.b.Scan([]byte(byManifest), func(key, value []byte) error {
		var m cas.Hash
		if len(value) != 0 || copy(m[:], key[len(byManifest):]) != len(m) {
			return nil
		}
		return f(m)
	})
}

// Each calls f with what is known of an id, or of all when id is nil. An error of f's ends it. f must not
// call the index.
func (t *Table) Each(id *[64]byte, f func(a Artifact) error) error {
	prefix := []byte(byID)
	if id != nil {
		prefix = append(prefix, id[:]...)
	}
	return t.b.Scan(prefix, func(key, value []byte) error {
		var a Artifact
		rest := key[len(byID):]
		if len(rest) != len(a.ID)+len(a.Manifest) {
			return nil
		}
		copy(a.Manifest[:], rest[copy(a.ID[:], rest):])
		a.Path = string(value)
		return f(a)
	})
}
