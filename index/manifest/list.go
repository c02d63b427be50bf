package manifest

import (
	"fmt"

	"ckptfs/cas"
)

const (
	listMagic = "CKL1"
	listGrid  = 0
	listAny   = 1
)

// Span is one chunk of a list.
type Span struct {
	Hash cas.Hash
	Len  uint32 // raw bytes, 1 to cas.MaxChunk
}

// EncodeList returns the one encoding of a list. Spans must not be empty, nor any span's length zero or past
// cas.MaxChunk.
func EncodeList(spans []Span) []byte {
	if isGrid(spans) {
		p := make([]byte, 0, len(listMagic)+4+len(spans)*cas.HashSize)
		p = append(append(p, listMagic...), listGrid)
		p = num(p, int64(spans[len(spans)-1].Len))
		return appendHashes(p, spans)
	}
	p := make([]byte, 0, len(listMagic)+6+len(spans)*(cas.HashSize+4))
	p = append(append(p, listMagic...), listAny)
	p = num(p, int64(len(spans)))
	for _, s := range spans {
		p = num(p, int64(s.Len))
	}
	return appendHashes(p, spans)
}

// DecodeList reads what EncodeList wrote and nothing else. The error wraps cas.ErrCorrupt or cas.ErrNewer.
func DecodeList(p []byte) ([]Span, error) {
	d := newDecoder(p)
	if d.Magic(listMagic); d.Err != nil {
		return nil, d.Err
	}
	var spans []Span
	switch form := d.Byte(); {
	case d.Err != nil:
	case form == listGrid:
		last := d.Num()
		if n := len(d.P) / cas.HashSize; d.Err == nil && n > 0 {
			spans = make([]Span, n)
			for i := range spans {
				spans[i].Len = cas.ChunkSize
			}
			if last < 1 || last > cas.ChunkSize {
				d.Fail("last chunk of %d bytes", last)
			}
			spans[n-1].Len = uint32(last)
		}
	case form == listAny:
		spans = make([]Span, d.Count(cas.HashSize+1))
		for i := range spans {
			n := d.Num()
			if n < 1 || n > cas.MaxChunk {
				d.Fail("chunk of %d bytes", n)
				break
			}
			spans[i].Len = uint32(n)
		}
		if d.Err == nil && isGrid(spans) {
			d.Fail("grid list written out")
		}
	default:
		d.Fail("list form %d", form)
	}
	for i := range spans {
		copy(spans[i].Hash[:], d.Take(cas.HashSize))
	}
	if d.Err == nil && (len(d.P) > 0 || len(spans) == 0) {
		d.Fail("list of %d chunks, %d bytes left", len(spans), len(d.P))
	}
	if d.Err != nil {
		return nil, fmt.Errorf("chunk list: %w", d.Err)
	}
	return spans, nil
}

func isGrid(spans []Span) bool {
	for i, s := range spans {
		if s.Len != cas.ChunkSize && (i < len(spans)-1 || s.Len > cas.ChunkSize) {
			return false
		}
	}
	return len(spans) > 0
}

func appendHashes(p []byte, spans []Span) []byte {
	for i := range spans {
		p = append(p, spans[i].Hash[:]...)
	}
	return p
}
