package assemble

import "ckptfs/cas"

// minLoan is the least worth lending.
const minLoan = 64 << 10

// Loan is bytes of a file where the cache has them. They must not be changed, nor looked at after Done.
type Loan struct {
	c     *cache
	parts [][]byte
	held  []*entry
}

// Parts are the bytes, one part after the other.
func (l *Loan) Parts() [][]byte { return l.parts }

// Done gives the bytes back, to be called once.
func (l *Loan) Done() {
	for _, e := range l.held {
		l.c.release(e)
	}
	l.parts, l.held = nil, nil
}

// zeros is where zeros are lent from.
var zeros [cas.ChunkSize]byte

// Lend is ReadWithin without a copy: of n bytes at off, or of those up to the file's end, and how many those
// are. Its errors are of type *Error. nil: the bytes are to be read, for they are few, or as many as go past
// the cache, or lie in many chunks.
func (f *File) Lend(off, n, end int64) (*Loan, int, error) {
	n = min(n, f.doc.Size-off)
	if off < 0 || n < minLoan || n >= directRead {
		return nil, 0, nil
	}
	var room [maxPieces]piece
	pieces, covered, err := f.collect(room[:0], nil, int(n), off)
	if err != nil || covered < int(n) {
		return nil, 0, nil // reading meets the error again, at its place
	}
	way := f.advance(off, n, end)
	f.start(pieces, way)
	l := &Loan{c: f.r.chunks, parts: make([][]byte, 0, len(pieces)), held: make([]*entry, 0, len(pieces))}
	var first *Error
	for i := range pieces {
		q := &pieces[i]
		if q.e == nil {
			for left := q.n; left > 0; left -= len(zeros) {
				l.parts = append(l.parts, zeros[:min(left, len(zeros))])
			}
			continue
		}
		l.held = append(l.held, q.e)
		if err := f.await(q, way); err == nil {
			l.parts = append(l.parts, q.e.data[q.skip:q.skip+q.n])
		} else if first == nil {
			first = f.doc.tell(q.off, err)
		}
	}
	if first != nil {
		l.Done()
		return nil, 0, first
	}
	return l, int(n), nil
}
