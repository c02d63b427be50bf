package volume

import (
	"context"
	"errors"
	"io"
	"time"

	"ckptfs/cas"
	"ckptfs/formats/canonical"
)

const (
	// identifyTurn is how long it works before it looks whether anything else wants to.
	identifyTurn = 10 * time.Millisecond
	// maxNone bounds the manifests without an id that are noted in one commit.
	maxNone = 256
)

// errOvertaken: the file is another now, or somebody who asked was faster.
var errOvertaken = errors.New("overtaken")

// identifier computes the artifact ids of packed files before anybody asks for them, so that .ckptfs/artifacts finds them: one file after
// the other, on one processor, while nothing is packed or waits to be, and while packing might use a processor (see throttle.Throttle). Which manifests
// have an id and which have none is in the index; so a file is read once, whatever becomes of the daemon. What is not there the survey of
// the start finds.
type identifier struct {
	*rested
	none []cas.Hash // manifests without an id, to be noted; of the one goroutine
}

func newIdentifier(v *Volume, after time.Duration) *identifier {
	i := &identifier{rested: newRested(v, after, "artifact ids may be unknown until somebody asks for them")}
	i.one, i.done = i.identify, i.note
	return i
}

// found is add of a file that the survey looks at, unless what there is to know is known. f.mu is held.
func (i *identifier) found(n *Node) {
	if i.after < 0 {
		return
	}
	if known, err := i.v.artifacts.Known(n.file.rec.Manifest); err == nil && !known {
		i.add(n)
	}
}

// identify computes the id of a file.
func (i *identifier) identify(n *Node) {
	v, f := i.v, n.file
	f.mu.Lock()
	err := n.file.load()
	h, gen := f.rec.Manifest, f.gen
	todo := err == nil && f.rec.Packed() && f.damaged == nil && f.writers == 0 && !n.isDead()
	f.mu.Unlock()
	if err == nil && todo {
		if known, kerr := v.artifacts.Known(h); known || kerr != nil {
			todo, err = false, kerr
		}
	}
	if err == nil && todo {
		if err = v.content.step("identify"); err != nil {
			return
		}
		var r *paced
		_, err = v.computeArtifact(i.ctx, n, 1, func(gen uint64) io.ReaderAt {
			r = &paced{v: v, ctx: i.ctx, n: n, gen: gen}
			return r
		})
		if r != nil {
			r.pause()
		}
	}
	switch {
	case err == nil, errors.Is(err, errOvertaken), errors.Is(err, errBeingWritten):
	case errors.Is(err, canonical.ErrNoID):
		f.mu.Lock()
		same := f.gen == gen && f.rec.Manifest == h // else it is another file that has none
		f.mu.Unlock()
		if !same {
			return
		}
		if i.none = append(i.none, h); len(i.none) == maxNone {
			i.note()
		}
	default:
		i.failed(err)
	}
}

// note keeps which manifests have no id.
func (i *identifier) note() {
	if len(i.none) == 0 {
		return
	}
	if err := i.v.artifacts.PutNone(i.none); err != nil {
		i.failed(err)
	}
	i.none = i.none[:0]
}

// paced reads a file for who has time.
type paced struct {
	v     *Volume
	ctx   context.Context
	n     *Node
	gen   uint64
	over  func() // ends its turn; nil: it has none
	until time.Time
}

func (p *paced) ReadAt(b []byte, off int64) (int, error) {
	if p.over != nil && !time.Now().Before(p.until) {
		p.pause()
	}
	if p.over == nil {
		if err := p.v.packer.rests(p.ctx); err != nil {
			return 0, err
		}
		over, err := p.v.throttle.Turn(p.ctx)
		if err != nil {
			return 0, err
		}
		p.over, p.until = over, time.Now().Add(identifyTurn)
	}
	f := p.n.file
	f.mu.Lock()
	overtaken := f.gen != p.gen || f.writers > 0 || f.id.gen == f.gen+1 || p.n.isDead()
	f.mu.Unlock()
	if overtaken {
		return 0, errOvertaken
	}
	return f.ReadAt(b, off)
}

// pause ends its turn.
func (p *paced) pause() {
	if p.over != nil {
		p.over()
		p.over = nil
	}
}
