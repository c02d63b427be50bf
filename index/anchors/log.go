package anchors

import (
	"fmt"
	"hash/crc32"
	"os"
	"path"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/disk"
)

const (
	maxNoted    = 1 << 10 // tensors of a document
	maxKeys     = 255     // of a tensor
	keySize     = anchor.KeyBits / 8
	maxDocument = cas.HashSize + maxNoted*(5+maxKeys*keySize)
	maxLog      = 256 << 20 // bytes of a log that are read at a start
)

// log is what was noted since the last run was made, as it is in memory and in the log's file.
type log struct {
	f      disk.File
	path   string
	number uint32
	size   int64

	entries   []uint64 // as a run has them, of which
	sorted    int      // so many are in order
	tensors   []place
	manifests []cas.Hash
}

// place is where a tensor is: in which of the manifests.
type place struct{ manifest, tensor uint32 }

func newLog(fsys disk.FS, dir string, store [16]byte, number uint32) (*log, error) {
	l := &log{path: path.Join(dir, fmt.Sprintf(logName, number)), number: number, size: pageSize}
	f, err := fsys.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	h := header{store: store, first: number, last: number}
	if _, err := f.WriteAt(h.page(), 0); err != nil {
		f.Close()
		return nil, err
	}
	l.f = f
	return l, nil
}

// openLog reads a log, up to where it is torn.
func openLog(fsys disk.FS, path string, store [16]byte, number uint32) (*log, error) {
	f, err := fsys.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	l := &log{f: f, path: path, number: number, size: pageSize}
	if err := l.replay(store); err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

func (l *log) replay(store [16]byte) error {
	if _, err := readHeader(l.f, store, l.number, l.number); err != nil {
		return err
	}
	size, err := l.f.Size()
	if err != nil {
		return err
	}
	if size > maxLog {
		return corrupt("a log of %d bytes", size)
	}
	var begin [8]byte
	for l.size+int64(len(begin)) <= size {
		if _, err := l.f.ReadAt(begin[:], l.size); err != nil {
			return err
		}
		n, sum := int64(be.Uint32(begin[:])), be.Uint32(begin[4:])
		if n > maxDocument || l.size+8+n > size {
			break
		}
		p := make([]byte, n)
		if _, err := l.f.ReadAt(p, l.size+8); err != nil {
			return err
		}
		if crc32.Checksum(p, castagnoli) != sum || !l.take(p) {
			break
		}
		l.size += 8 + n
	}
	if l.size < size {
		return l.f.Truncate(l.size)
	}
	return nil
}

func (l *log) remove(fsys disk.FS) {
	l.f.Close()
	fsys.Remove(l.path) // or the next start does
}

// take takes a document in, and reports whether it is one.
func (l *log) take(p []byte) bool {
	if len(p) < cas.HashSize {
		return false
	}
	m := cas.Hash(p[:cas.HashSize])
	var tensors []Tensor
	for p = p[cas.HashSize:]; len(p) > 0; {
		if len(p) < 5 || len(p) < 5+int(p[4])*keySize {
			return false
		}
		t := Tensor{Index: be.Uint32(p)}
		n := int(p[4])
		for p = p[5:]; n > 0; n, p = n-1, p[keySize:] {
			t.Keys = append(t.Keys, anchor.Key(be.Uint32(p))<<8|anchor.Key(p[4]))
		}
		tensors = append(tensors, t)
	}
	return l.add(m, tensors)
}

// document is what take takes in.
func document(m cas.Hash, tensors []Tensor) []byte {
	p := append(make([]byte, 8), m[:]...)
	for _, t := range tensors {
		keys := t.Keys[:min(len(t.Keys), maxKeys)]
		p = append(be.AppendUint32(p, t.Index), byte(len(keys)))
		for _, k := range keys {
			p = append(be.AppendUint32(p, uint32(k>>8)), byte(k))
		}
	}
	be.PutUint32(p, uint32(len(p)-8))
	be.PutUint32(p[4:], crc32.Checksum(p[8:], castagnoli))
	return p
}

// note writes a document, and takes it in.
func (l *log) note(m cas.Hash, tensors []Tensor) error {
	if len(l.tensors)+len(tensors) > maxTensors {
		return fmt.Errorf("%d tensors were noted and not merged: %w", len(l.tensors), cas.ErrTooLarge)
	}
	p := document(m, tensors)
	if _, err := l.f.WriteAt(p, l.size); err != nil {
		return err
	}
	l.size += int64(len(p))
	l.add(m, tensors)
	return nil
}

func (l *log) add(m cas.Hash, tensors []Tensor) bool {
	if len(l.tensors)+len(tensors) > maxTensors {
		return false
	}
	number := uint32(len(l.manifests))
	l.manifests = append(l.manifests, m)
	for _, t := range tensors {
		ordinal := uint32(len(l.tensors))
		l.tensors = append(l.tensors, place{number, t.Index})
		for _, k := range t.Keys[:min(len(t.Keys), maxKeys)] {
			l.entries = append(l.entries, entryOf(k, ordinal))
		}
	}
	// All but a few are in order, so that who looks has little to go through.
	if n := len(l.entries) - l.sorted; n > maxUnsorted && n > l.sorted/16 {
		l.sort()
	}
	return true
}

const maxUnsorted = 4096

func (l *log) sort() {
	slices.Sort(l.entries)
	l.sorted = len(l.entries)
}

// find is run.find.
func (l *log) find(hits []Hit, keys []anchor.Key, least int) []Hit {
	counts := map[uint32]int{}
	equal := make([]uint32, 0, perKey)
	late := map[anchor.Key][]uint32{}
	for _, e := range l.entries[l.sorted:] {
		key := anchor.Key(e >> ordinalBits)
		if _, ok := slices.BinarySearch(keys, key); ok {
			late[key] = append(late[key], uint32(e&(maxTensors-1)))
		}
	}
	for _, key := range keys {
		equal = equal[:0]
		i, _ := slices.BinarySearch(l.entries[:l.sorted], entryOf(key, 0))
		for ; i < l.sorted && l.entries[i]>>ordinalBits == uint64(key) && len(equal) < maxEqual; i++ {
			equal = append(equal, uint32(l.entries[i]&(maxTensors-1)))
		}
		equal = append(equal, late[key]...)
		for _, o := range equal[max(0, len(equal)-perKey):] {
			counts[o]++
		}
	}
	var found []uint32
	for o, n := range counts {
		if n >= least {
			found = append(found, o)
		}
	}
	slices.Sort(found)
	for _, o := range slices.Backward(found) {
		p := l.tensors[o]
		hits = append(hits, Hit{l.manifests[p.manifest], p.tensor, counts[o]})
	}
	return hits
}

func (l *log) each(f func(m cas.Hash, tensor uint32) bool) (more bool) {
	for _, p := range l.tensors {
		if !f(l.manifests[p.manifest], p.tensor) {
			return false
		}
	}
	return true
}
