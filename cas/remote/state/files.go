package state

import (
	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/index/chunks"
)

// fileSize is what is kept of a file, but for its objects.
const fileSize = 8 + 16 + 8 + 4

// File is what SetFiles kept of the file of a manifest; nil if that is nothing.
func (db *DB) File(manifest cas.Hash) (f *record.File, err error) {
	err = db.use(func() error {
		p, err := db.tables.files.Get(manifest[:])
		if err != nil || len(p) < fileSize || (len(p)-fileSize)%len(record.ID{}) != 0 {
			return err
		}
		f = &record.File{Manifest: manifest, Size: int64(be.Uint64(p))}
		copy(f.Plan.Object[:], p[8:])
		f.Plan.Off, f.Plan.Stored = int64(be.Uint64(p[24:])), be.Uint32(p[32:])
		for p = p[fileSize:]; len(p) > 0; p = p[len(record.ID{}):] {
			f.Deps = append(f.Deps, record.ID(p[:len(record.ID{})]))
		}
		return nil
	})
	return f, err
}

// SetFiles keeps where the plans of files are that are not inline, all or nothing; of those of one manifest
// that of the first. It is durable when it returns.
func (db *DB) SetFiles(files []*record.File) error { return db.Expect(files, nil) }

func filePairs(files []*record.File) []chunks.Pair {
	pairs := make([]chunks.Pair, 0, len(files))
	kept := make(map[cas.Hash]bool, len(files))
	for _, f := range files {
		if kept[f.Manifest] {
			continue
		}
		kept[f.Manifest] = true
		p := append(be.AppendUint64(nil, uint64(f.Size)), f.Plan.Object[:]...)
		p = be.AppendUint32(be.AppendUint64(p, uint64(f.Plan.Off)), f.Plan.Stored)
		for _, id := range f.Deps {
			p = append(p, id[:]...)
		}
		pairs = append(pairs, chunks.Pair{Key: f.Manifest[:], Value: p})
	}
	return pairs
}
