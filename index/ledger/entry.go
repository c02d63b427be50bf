package ledger

import (
	"encoding/binary"
	"fmt"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/document"
	"ckptfs/index/lineage"
)

const (
	magic = "CKE1"
	// GraphMagic begins a record that holds a part of a graph.
	GraphMagic = "CKGP"
	// MaxMarks bounds Entry.Marks.
	MaxMarks = 16
	maxParts = 1 << 10
)

// Entry is one model.
type Entry struct {
	lineage.Model
	Version   uint64
	Ino       uint64 // 0: retired
	Manifest  cas.Hash
	Path      string
	Time      int64
	Size      int64
	Marks     []uint64 // Mark of the digests of the largest tensors
	Owners    []uint64 // of the manifest's tensors
	Tensors   int      // how many the manifest has
	Graph     []cas.Hash
	GraphFrom string

	Record cas.Hash // of the record that holds the entry as it is; zero: none does
}

// Mark is what Entry.Marks keeps of a digest.
func Mark(digest cas.Hash) uint64 { return binary.LittleEndian.Uint64(digest[:]) }

// Encode is the record of e.
func (e *Entry) Encode() ([]byte, error) {
	m, err := e.Model.Encode()
	if err != nil {
		return nil, err
	}
	p := []byte(magic)
	for _, n := range []uint64{e.Seq, e.Version, e.Ino} {
		p = binary.AppendUvarint(p, n)
	}
	p = append(p, e.Manifest[:]...)
	p = appendString(p, e.Path)
	for _, n := range []int64{e.Time, e.Size, int64(e.Tensors)} {
		p = binary.AppendUvarint(p, uint64(max(n, 0)))
	}
	p = binary.AppendUvarint(p, uint64(len(e.Marks)))
	for _, m := range e.Marks {
		p = binary.LittleEndian.AppendUint64(p, m)
	}
	p = appendString(p, string(m))
	owners := ""
	if e.Owners != nil {
		owners = string(lineage.EncodeOwners(e.Seq, e.Owners))
	}
	p = appendString(p, owners)
	p = binary.AppendUvarint(p, uint64(len(e.Graph)))
	for _, h := range e.Graph {
		p = append(p, h[:]...)
	}
	p = appendString(p, e.GraphFrom)
	if len(p) > cas.MaxChunk {
		return nil, fmt.Errorf("ledger: model %d: %w", e.Seq, cas.ErrTooLarge)
	}
	return p, nil
}

func appendString(p []byte, s string) []byte {
	return append(binary.AppendUvarint(p, uint64(len(s))), s...)
}

// Decode reads what Encode wrote. The error wraps cas.ErrCorrupt, or cas.ErrNewer for a later version. Memory
// is bounded by p's and 8 bytes for each tensor, of which there are at most 2^20.
func Decode(p []byte) (*Entry, error) {
	d := document.Reader{P: p, Of: "ledger"}
	d.Magic(magic)
	e := &Entry{}
	seq := uint64(d.Num())
	e.Version, e.Ino = uint64(d.Num()), uint64(d.Num())
	copy(e.Manifest[:], d.Take(len(e.Manifest)))
	e.Path = d.String()
	e.Time, e.Size = d.Num(), d.Num()
	tensors := d.Num()
	count := func(size, most int) int {
		n := d.Count(size)
		if n > most {
			d.Fail("%d of at most %d", n, most)
			return 0
		}
		return n
	}
	for n := count(8, MaxMarks); n > 0; n-- {
		e.Marks = append(e.Marks, binary.LittleEndian.Uint64(d.Take(8)))
	}
	model, owners := d.String(), d.String()
	for n := count(len(cas.Hash{}), maxParts); n > 0; n-- {
		e.Graph = append(e.Graph, cas.Hash(d.Take(len(cas.Hash{}))))
	}
	e.GraphFrom = d.String()
	if err := d.End(); err != nil {
		return nil, err
	}
	if seq == 0 || e.Version == 0 || tensors > 1<<20 || strings.Contains(e.Path, "\x00") {
		return nil, fmt.Errorf("ledger: damaged entry: %w", cas.ErrCorrupt)
	}
	e.Tensors = int(tensors)
	var err error
	if e.Model, err = lineage.DecodeModel(seq, []byte(model)); err != nil {
		return nil, err
	}
	if owners != "" {
		if e.Owners, err = lineage.DecodeOwners(seq, e.Tensors, []byte(owners)); err != nil {
			return nil, err
		}
	}
	return e, nil
}
