package store

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"ckptfs/cas"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
)

// fate of a record.
type fate uint8

const (
	stays fate = iota
	idle       // nothing needs it: not wanted, or in the index elsewhere
	goes       // not wanted, and in the index here
	moved      // wanted, and copied to where the index says now
)

// part is the sweep of one segment.
type part struct {
	*sweep
	n      uint32
	r      *segment.Reader
	footer *segment.Footer
	recs   []segment.Record // by ascending offset
	fates  []fate           // of recs
	gen    int              // of the index by which they were judged
}

// step is how many records are looked at under a lock at a time.
const step = 4096

// judge settles the records' fates. A Put of one that goes rescues it, until it is doomed.
func (p *part) judge() error {
	s := p.s
	p.fates = make([]fate, len(p.recs))
	p.gen = s.indexer.generation()
	hashes, locs, marked := make([]cas.Hash, step), make([]cas.Location, step), make([]bool, step)
	var found []cas.Entry // wanted, and not where the index says
	for at := 0; at < len(p.recs); at += step {
		recs := p.recs[at:min(at+step, len(p.recs))]
		for i := range recs {
			hashes[i] = recs[i].Hash
			marked[i] = p.marked != nil && p.marked.MayHave(keyOf(recs[i].Hash))
		}
		if err := s.Locate(hashes[:len(recs)], locs[:len(recs)]); err != nil {
			return err
		}
		var doubtful []int
		s.pins.mu.Lock()
		for i := range recs {
			rec, loc, k := &recs[i], &locs[i], keyOf(recs[i].Hash)
			wanted := marked[i] || p.keep || s.pins.inUseLocked(k)
			here := loc.Segment == p.n && loc.Off == rec.Off
			switch {
			case !rec.Kind.Indexed() || here && wanted || p.keep && loc.Segment == 0:
			case here && p.blind != 0 && rec.Kind == cas.Chunk:
				p.spared = true
			case here:
				p.fates[at+i] = goes
			case wanted:
				doubtful = append(doubtful, i)
			default:
				p.fates[at+i] = idle
			}
		}
		s.pins.mu.Unlock()
		for _, i := range doubtful {
			rec, loc := &recs[i], locs[i]
			switch {
			case loc.Segment != 0 && loc.Kind.Serves(rec.Kind) && s.reader.intact(loc, rec.Hash):
				p.fates[at+i] = idle // there is a better copy
			case p.opt.DryRun || p.keep:
			case s.reader.intact(rec.Entry(p.n).Location, rec.Hash):
				found = append(found, rec.Entry(p.n))
			}
		}
	}
	if p.marked != nil && p.marked.Err() != nil {
		return errors.Join(errStop, p.marked.Err()) // what is wanted is not known any more
	}
	if len(found) == 0 {
		return nil
	}
	p.st.Reindexed += len(found)
	s.appender.flushing.Lock()
	defer s.appender.flushing.Unlock()
	mark, err := s.indexer.index.Watermark()
	if err != nil {
		return err
	}
	return s.indexer.index.Commit(found, mark)
}

// tally counts the records that stay, or those that do not, and the room that they take.
func (p *part) tally(stay bool) (t segment.Tally, room int64) {
	for i := range p.recs {
		if (p.fates[i] == stays) == stay {
			room += segment.Size(int(p.recs[i].Stored))
			t.Add(segment.Tally{Records: 1, Raw: int64(p.recs[i].Raw), Stored: int64(p.recs[i].Stored)})
		}
	}
	return t, room
}

// waiting is the room of the records that stay for the grace period alone.
func (p *part) waiting() (room int64) {
	for i := range p.recs {
		if k := keyOf(p.recs[i].Hash); p.fates[i] == stays && p.waits != nil && p.waits.Has(k) &&
			!p.s.pins.inUse(k) {
			room += segment.Size(int(p.recs[i].Stored))
		}
	}
	return room
}

// move copies the records that stay to the segment that is being written, as long as there is room on the
// disk: not the last of it, of which the index and the footers need some. What cannot be read stays.
func (p *part) move(ctx context.Context) {
	s := p.s
	var at []int
	var copies []*record
	for i := range p.recs {
		if p.fates[i] != stays || !p.recs[i].Kind.Indexed() {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		written, err := s.room(segment.Size(int(p.recs[i].Stored)))
		if err != nil {
			break
		}
		c, err := p.copy(&p.recs[i])
		written()
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrClosed) {
			break
		}
		if err == nil && c != nil {
			at, copies = append(at, i), append(copies, c)
		}
	}
	_ = s.commit(copies) // some may have made it: see below
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	for i, c := range copies {
		if c.state == indexed {
			p.fates[at[i]] = moved
			p.st.Copied += segment.Size(int(c.entry.Stored))
		}
	}
}

// copy appends a record, as it is stored, to the segment that is being written. Nil: a Put is just storing
// it.
func (p *part) copy(rec *segment.Record) (*record, error) {
	s := p.s
	buf, raw := scratch.Get(), scratch.Get()
	defer scratch.Put(buf)
	defer scratch.Put(raw)
	*buf = slices.Grow((*buf)[:0], int(segment.Size(int(rec.Stored))))
	var head segment.Record
	whole := (*buf)[:segment.RecordHeaderSize+int(rec.Stored)]
	payload, err := p.r.ReadRecord(rec.Entry(p.n).Location, rec.Hash, &head, whole)
	if err != nil {
		return nil, err
	}
	// What is not what its name says is not spread.
	*raw = slices.Grow((*raw)[:0], int(head.Raw))
	got := (*raw)[:head.Raw]
	var sum cas.XXH3
	if err = s.reader.decode(access{}, &head, payload, got, segment.AnyNumber); err == nil {
		sum, err = cas.SumXXH3(got), cas.Check(got, rec.Hash)
	}
	if err != nil {
		return nil, err
	}

	c := &record{hash: rec.Hash, kind: head.Kind, done: make(chan struct{})}
	s.appender.mu.Lock()
	if s.appender.closed || s.appender.pending[rec.Hash] != nil {
		defer s.appender.mu.Unlock()
		if s.appender.closed {
			return nil, ErrClosed
		}
		return nil, nil
	}
	s.appender.pending[rec.Hash] = c
	s.appender.mu.Unlock()
	_, err = s.appender.append(c, &segment.Record{Kind: head.Kind, Codec: head.Codec, Raw: head.Raw,
		Hash: rec.Hash, XXH3: sum}, whole)
	return c, err
}

// reshape takes the records that go out of the index, then drops whatever does not stay from the segment: all
// of it by removing the file, else by a footer without them and holes in their place.
func (p *part) reshape() error {
	s := p.s
	s.passes.reshaping.Lock()
	defer s.passes.reshaping.Unlock()
	if p.gen != s.indexer.generation() {
		return errRenewed
	}
	size, err := p.r.Size()
	if err != nil {
		return err
	}
	before := p.r.Taken(size)

	entries := p.doom()
	left := slices.Contains(p.fates, stays)
	if !left {
		err = s.leave(p.n)
	}
	if err == nil {
		// With nothing to remove this still sees to it that the index has on the disk where what was moved is
		// now.
		err = s.indexer.index.Remove(entries)
	}
	s.pins.doomsNone()
	if err != nil {
		return errors.Join(errStop, err)
	}

	if !left {
		s.reader.files.Retire(p.n)
		if err := s.fs.Remove(segment.Path(s.dir, p.n)); err != nil {
			return err
		}
		p.drop(before, -1)
		p.st.Removed++
		return s.fs.SyncDir(s.dir)
	}
	kept := p.split()
	// Also when the footer lists no more than these: whether the disk has that footer is not known.
	if _, err := p.r.Seal(kept, p.footer.Sealed); err != nil {
		return err
	}
	ft, err := p.r.Footer()
	if err != nil {
		return err
	}
	punched := true
	for _, g := range segment.Gaps(kept, ft.Start()) {
		err := p.r.Punch(g)
		if errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
			punched = false
			p.st.NotPunched++
			break
		}
		if err != nil {
			return err
		}
	}
	if size, err = p.r.Size(); err != nil {
		return err
	}
	p.drop(before-p.r.Taken(size), 0)
	if punched {
		p.st.Punched++
	}
	return nil
}

// split returns the records that stay, in place of all, and leaves the others in recs: with millions of small
// records there is no room for them twice.
func (p *part) split() (kept []segment.Record) {
	var gone []segment.Record
	var fates []fate
	kept = p.recs[:0]
	for i, rec := range p.recs {
		if p.fates[i] == stays {
			kept = append(kept, rec)
		} else {
			gone, fates = append(gone, rec), append(fates, p.fates[i])
		}
	}
	p.recs, p.fates = gone, fates
	return kept
}

// errRenewed: there is a new index, which may say something else of the segment: it is judged again.
var errRenewed = errors.New("the index was made again meanwhile")

// doom puts the records that go past rescue, and returns their entries. Those that were rescued stay.
func (p *part) doom() (entries []cas.Entry) {
	s := p.s
	s.pins.mu.Lock()
	s.pins.doomed = make(map[key]struct{})
	s.pins.mu.Unlock()
	for at := 0; at < len(p.recs); at += step {
		entries = p.doomSome(entries, at, min(at+step, len(p.recs)))
	}
	return entries
}

// doomSome is doom for the records from one index to another.
func (p *part) doomSome(entries []cas.Entry, from, to int) []cas.Entry {
	s := p.s
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	for i := from; i < to; i++ {
		if p.fates[i] != goes {
			continue
		}
		rec := &p.recs[i]
		k := keyOf(rec.Hash)
		if s.pins.inUseLocked(k) || s.appender.pending[rec.Hash] != nil { // rescued
			p.fates[i] = stays
			p.st.Rescued++
			continue
		}
		s.pins.doomed[k] = struct{}{}
		entries = append(entries, rec.Entry(p.n))
	}
	return entries
}

// leave prepares for segment n to go: there is a newer one, so that its number is not given out again, and
// the watermark does not lie in it.
func (s *Store) leave(n uint32) error {
	if s.appender.tails.Last() == n {
		if err := s.appender.tails.Grow(n); err != nil {
			return err
		}
		if s.appender.tails.Last() == n {
			return ErrClosed
		}
		if err := s.fs.SyncDir(s.dir); err != nil {
			return err
		}
	}
	s.appender.flushing.Lock()
	defer s.appender.flushing.Unlock()
	if s.appender.top.Segment == n {
		s.appender.top = cas.Watermark{Segment: n + 1}
	}
	mark, err := s.indexer.index.Watermark()
	if err != nil || mark.Segment != n {
		return err
	}
	if s.indexer.floor.Segment == n { // it was read by now
		s.indexer.floor = cas.Watermark{}
	}
	return s.indexer.index.Commit(nil, cas.Watermark{Segment: n + 1})
}

// drop counts what went.
func (p *part) drop(freed int64, segments int) {
	s := p.s
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	for i := range p.recs {
		if p.fates[i] != stays {
			s.appender.stats.Totals.Discount(&p.recs[i])
		}
		if f := p.fates[i]; f == idle || f == goes {
			p.st.Dead.Add(segment.Tally{Records: 1, Raw: int64(p.recs[i].Raw),
				Stored: int64(p.recs[i].Stored)})
			p.st.Room += segment.Size(int(p.recs[i].Stored))
		}
	}
	s.appender.stats.Segments += segments
	s.appender.stats.Bytes -= freed
	p.st.Freed += freed
}
