package state

import (
	"bytes"
	"errors"
	"strings"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/index/chunks"
)

// Kept is the bytes of a head, and their version.
type Kept struct {
	Version bucket.Version
	Bytes   []byte
}

// Heads calls f with each head that is kept. f must not call the DB, and p is f's during the call only.
func (db *DB) Heads(f func(w record.Writer, v bucket.Version, p []byte) error) error {
	return db.use(func() error {
		return db.tables.heads.Scan(nil, func(key, p []byte) error {
			if len(p) < 2 || len(p)-2 < int(be.Uint16(p)) {
				return nil
			}
			n := 2 + int(be.Uint16(p))
			return f(record.Writer(key), bucket.Version(p[2:n]), p[n:])
		})
	})
}

// SetHeads keeps heads, all or nothing. The zero Kept is of one that is not there any more.
func (db *DB) SetHeads(heads map[record.Writer]Kept) error {
	var pairs []chunks.Pair
	for w, k := range heads {
		pair := chunks.Pair{Key: []byte(w)}
		if k.Version != "" {
			p := be.AppendUint16(nil, uint16(len(k.Version)))
			pair.Value = append(append(p, k.Version...), k.Bytes...)
		}
		pairs = append(pairs, pair)
	}
	return db.use(func() error { return db.write(db.tables.heads, pairs) })
}

// nameKey is the key of a path: keys are in the order of record.ComparePaths.
func nameKey(path string) []byte { return []byte(strings.ReplaceAll(path, "/", "\x00")) }

// Name is what SetNames kept of a path; nil if that is nothing.
func (db *DB) Name(path string) (p []byte, err error) {
	err = db.use(func() error {
		p, err = db.tables.names.Get(nameKey(path))
		return err
	})
	return p, err
}

// SetNames keeps what is known of paths, all or nothing; nil: nothing. It is durable when it returns.
func (db *DB) SetNames(names map[string][]byte) error { return db.Expect(nil, names) }

// NoteNames is SetNames, but that what crashes may take it, and with it nothing else.
func (db *DB) NoteNames(names map[string][]byte) error {
	return db.use(func() error { return db.tables.names.Write(namePairs(names)) })
}

// Sync makes durable what NoteNames keeps.
func (db *DB) Sync() error { return db.use(db.file.Sync) }

// Expect is SetFiles and SetNames, together all or nothing.
func (db *DB) Expect(files []*record.File, names map[string][]byte) error {
	of, is := filePairs(files), namePairs(names)
	return db.use(func() error {
		return db.file.WriteNow(chunks.Change{Of: db.tables.files, Pairs: of},
			chunks.Change{Of: db.tables.names, Pairs: is})
	})
}

func namePairs(names map[string][]byte) []chunks.Pair {
	pairs := make([]chunks.Pair, 0, len(names))
	for path, p := range names {
		pairs = append(pairs, chunks.Pair{Key: nameKey(path), Value: p})
	}
	return pairs
}

// EachName calls f with a path, and with those below it, in the order of record.ComparePaths, as far as
// something is kept of them; "": with all. f must not call the DB, and p is f's during the call only.
func (db *DB) EachName(below string, f func(path string, p []byte) error) error {
	root := nameKey(below)
	err := db.use(func() error {
		return db.tables.names.Scan(root, func(key, p []byte) error {
			if rest := key[len(root):]; len(root) > 0 && len(rest) > 0 && rest[0] != 0 {
				return errBehind
			}
			return f(string(bytes.ReplaceAll(key, []byte{0}, []byte{'/'})), p)
		})
	})
	if err == errBehind {
		return nil
	}
	return err
}

// errBehind ends a scan: what comes is behind what is wanted.
var errBehind = errors.New("behind")
