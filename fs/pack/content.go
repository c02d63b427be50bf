package pack

import (
	"io"

	"ckptfs/cas"
	"ckptfs/cas/chunk"
)

// window is how much of a large blob one worker cuts.
const window = 4 << 20

// byContent cuts a large blob as one chunk.CDC over it would, but on several workers, since a CDC is slower
// than the hash. Where a chunk ends depends only on where it begins and on the bytes after. So workers cut
// windows of the blob, each as if a chunk began where the window does, and the true cuts are followed from
// window to window: a few chunks into each they fall on one of the worker's, and from there on they are the
// worker's.
//
//	true cuts     ──┴─────┴───┊─┴────┴───┴──┴────┴───┊──┴───
//	the worker's             ┊└──┴──────┴──┴────┴───┊──┘
//	                          window    ^ the same from here on
func (c *cutter) byContent(r *region) error {
	end := r.Off + r.Len
	var ahead []*windowCuts
	from := r.Off // of the next window to be cut
	pos := r.Off  // of the next true chunk
	for off := r.Off; off < end; off += window {
		for ; from < end && len(ahead) <= cap(c.slots); from += window {
			w := &windowCuts{starts: []int64{from}, done: make(chan struct{})}
			until := min(from+window, end)
			if err := c.do(func() error { w.cut(c.job, until, end); return nil }); err != nil {
				return err
			}
			ahead = append(ahead, w)
		}
		w := ahead[0]
		ahead = ahead[1:]
		<-w.done
		if w.err != nil {
			return w.err
		}
		var err error
		if pos, err = c.follow(r, w.starts, pos, min(off+window, end)); err != nil {
			return err
		}
	}
	return c.end(r.objects)
}

// windowCuts is what a worker finds.
type windowCuts struct {
	starts []int64 // of chunks, the last of them past the window
	err    error
	done   chan struct{} // closed when the others are set
}

func (w *windowCuts) cut(j *job, until, end int64) {
	defer close(w.done)
	pos := w.starts[0]
	cdc := chunk.NewCDC(&section{j.r, pos, end})
	defer cdc.Close()
	for pos < until {
		if w.err = j.ctx.Err(); w.err != nil {
			return
		}
		var p []byte
		if p, w.err = cdc.Next(); w.err != nil {
			return
		}
		pos += int64(len(p))
		w.starts = append(w.starts, pos)
	}
}

// follow takes the true chunks of r that begin at pos and before until, and returns where the next one
// begins.
func (c *cutter) follow(r *region, starts []int64, pos, until int64) (int64, error) {
	var cdc *chunk.CDC
	for pos < until {
		for len(starts) > 0 && starts[0] < pos {
			starts = starts[1:]
		}
		var n int
		if len(starts) > 1 && starts[0] == pos {
			n = int(starts[1] - pos)
		} else {
			if cdc == nil {
				cdc = chunk.NewCDC(&section{c.r, pos, r.Off + r.Len})
				defer cdc.Close()
			}
			p, err := cdc.Next()
			if err == io.EOF {
				err = io.ErrUnexpectedEOF // cannot be: a section ends where it should, or fails
			}
			if err != nil {
				return 0, err
			}
			n = len(p)
		}
		if _, err := c.take(r, pos, n, cas.Related{}); err != nil {
			return 0, err
		}
		pos += int64(n)
	}
	return pos, nil
}
