// Package salvage saves what is whole of a damaged store. It works on the folder of segments alone: no store
// is open, and no index is asked.
//
// It reads every record of every segment. Of a damaged segment the whole records are copied, as they are
// stored, to a new segment, which is sealed and durable before the damaged file is moved aside. Nothing is
// deleted: what could not be read is still in the file that was moved. The index names places that are gone
// then, so it is dropped before the first file is moved, and the next opening of the store makes it again
// from the segments.
//
//	read ──> whole: it stays as it is
//	  │
//	  └────> damaged: copy the whole records ──> drop the index (once) ──> move the file aside
//
// A salvage that was cut short leaves at most a copy of records that the damaged segment still has. A second
// one does what is left.
package salvage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// Options says where things go.
type Options struct {
	Aside string // the directory that damaged segments are moved to
	// DropIndex puts the index aside, which is about to be wrong. It is called once, before the first segment
	// is moved.
	DropIndex func() error
	Now       func() time.Time
	Progress  func(Stats) // after each segment; may be nil
}

// Stats is what a salvage did.
type Stats struct {
	Segments, Looked int
	Kept             segment.Tally // whole records of damaged segments, now in new ones
	Moved            []Moved
	Stuck            []Moved // damaged, and could not be moved: they are where they were
}

// Moved is a damaged segment.
type Moved struct {
	Segment uint32
	Aside   string // where it is now
	New     uint32 // holds its whole records; 0: there were none
	Records int    // how many
	Lost    int    // records that its footer lists and that could not be read
	Reason  error
	Stuck   error // why it could not be moved
}

// Segments salvages the segments in dir, of the store id, which is not open. It may be cut short at any time,
// and be called again. The error is one of the disk; damage is none.
func Segments(fsys disk.FS, dir string, id [16]byte, opt Options) (Stats, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	v := &salvage{fs: fsys, dir: dir, id: id, opt: opt}
	numbers, err := segment.Numbers(fsys, dir)
	if err != nil {
		return v.st, err
	}
	if len(numbers) > 0 {
		v.next = numbers[len(numbers)-1] + 1
	}
	v.st.Segments = len(numbers)
	for _, n := range numbers {
		if err := v.segment(n); err != nil {
			return v.st, fmt.Errorf("%s: %w", segment.Path(dir, n), err)
		}
		v.st.Looked++
		if opt.Progress != nil {
			opt.Progress(v.st)
		}
	}
	return v.st, nil
}

type salvage struct {
	fs      disk.FS
	dir     string
	id      [16]byte
	opt     Options
	next    uint32
	dropped bool
	st      Stats

	buf, raw []byte // of the record that is being read
}

func (v *salvage) segment(n uint32) error {
	var whole []segment.Record
	var lost int
	r, err := segment.Open(v.fs, v.dir, segment.ID{Store: v.id, Number: n})
	reason := err
	switch {
	case err == nil:
		defer r.Close()
		if whole, lost, reason, err = v.examine(r); err != nil || reason == nil {
			return err
		}
	case !disk.Unreadable(err):
		return err
	}
	s := Moved{Segment: n, Records: len(whole), Lost: lost, Reason: reason}
	// The index is not dropped for what stays where it is, nor are copies made of it.
	if name := segment.Path(v.dir, n); disk.Unreadable(reason) {
		if s.Stuck = v.fs.Rename(name, name); s.Stuck != nil {
			v.st.Stuck = append(v.st.Stuck, s)
			return nil
		}
	}
	if len(whole) > 0 {
		if s.New, err = v.copy(r, whole); err != nil {
			return err
		}
	}
	if !v.dropped && v.opt.DropIndex != nil {
		if err := v.opt.DropIndex(); err != nil {
			return err
		}
	}
	v.dropped = true
	switch s.Aside, err = v.aside(n); {
	case err != nil && s.Aside == "" && (disk.Unreadable(err) || disk.Unreadable(reason)):
		s.Stuck = err
		v.st.Stuck = append(v.st.Stuck, s)
		return nil
	case err != nil:
		return err
	}
	v.st.Moved = append(v.st.Moved, s)
	return nil
}

// examine reads every record. reason says what is damaged; nil: nothing. whole are the records that are
// intact, lost is how many of those that the footer lists are not.
func (v *salvage) examine(r *segment.Reader) (whole []segment.Record, lost int, reason, err error) {
	size, err := r.Size()
	if disk.Unreadable(err) {
		return nil, 0, err, nil
	}
	if err != nil || size < segment.FileHeaderSize {
		return nil, 0, nil, err
	}
	switch herr := r.CheckHeader(); {
	case errors.Is(herr, segment.ErrForeign):
		return nil, 0, herr, nil
	case errors.Is(herr, cas.ErrCorrupt) || disk.Unreadable(herr):
		reason = herr
	case herr != nil:
		return nil, 0, nil, herr
	}
	_, recs, ferr := r.Contents()
	if ferr != nil {
		if ft, err := r.Footer(); err == nil {
			recs = nil
			ferr = r.Each(ft, func(rec *segment.Record) error {
				recs = append(recs, *rec)
				return nil
			})
		} else {
			ferr = err
		}
	}
	if errors.Is(ferr, cas.ErrNewer) || errors.Is(ferr, segment.ErrOlder) {
		return nil, 0, nil, ferr
	}
	if ferr != nil {
		sc, err := r.Scan(0)
		if err != nil {
			return nil, 0, nil, err
		}
		for recs = nil; sc.Next(); {
			if !sc.Gap() {
				recs = append(recs, *sc.Record())
			} else if g, zero := sc.Range(); !zero && !sc.Holed(g) && reason == nil {
				reason = fmt.Errorf("%d bytes at %d hold no record: %w", g.End-g.Off, g.Off, cas.ErrCorrupt)
			}
		}
		if err := sc.Err(); err != nil {
			return nil, 0, nil, err
		}
		reason = cmp.Or(sc.Unread(), reason)
	}
	for i := range recs {
		loc := recs[i].Entry(r.Number()).Location
		sum, wrong, rerr := v.readWhole(r, loc, recs[i].Hash)
		if disk.Unreadable(rerr) {
			// disks have been known to think better of it
			sum, wrong, rerr = v.readWhole(r, loc, recs[i].Hash)
		}
		if wrong != nil && reason == nil {
			reason = &cas.ChunkError{Hash: recs[i].Hash, Loc: loc, Err: wrong}
		}
		recs[i].XXH3 = sum
		switch {
		case rerr == nil || errors.Is(rerr, cas.ErrNewer):
			whole = append(whole, recs[i])
			continue
		case !disk.Unreadable(rerr) && !segment.IsDamage(rerr):
			return nil, 0, nil, rerr
		}
		lost++
		if reason == nil {
			reason = &cas.ChunkError{Hash: recs[i].Hash, Loc: loc, Err: rerr}
		}
	}
	return whole, lost, reason, nil
}

// readWhole reads a record, decodes it and holds it against its hash. sum is the XXH3 of the content; wrong
// says that the record has another one. A delta is whole when it is what was written: its base may lie
// anywhere.
func (v *salvage) readWhole(r *segment.Reader, loc cas.Location, h cas.Hash) (
	sum cas.XXH3, wrong, err error) {
	v.buf = slices.Grow(v.buf[:0], segment.RecordHeaderSize+int(loc.Stored))
	var rec segment.Record
	payload, err := r.ReadRecord(loc, h, &rec, v.buf[:segment.RecordHeaderSize+int(loc.Stored)])
	if err != nil {
		return rec.XXH3, nil, err
	}
	if codec.NeedsBase(rec.Codec) {
		_, err := segment.ParseBase(rec.Codec, payload)
		return rec.XXH3, nil, err
	}
	v.raw = slices.Grow(v.raw[:0], int(loc.Raw))
	got, err := codec.Decode(v.raw[:0:loc.Raw], rec.Codec, payload, int(loc.Raw))
	if err != nil {
		return rec.XXH3, nil, err
	}
	sum, wrong = cas.SumXXH3(got), cas.CheckXXH3(got, rec.XXH3)
	return sum, wrong, cas.Check(got, h)
}

// copy makes a new segment of whole records, durable, and returns its number.
func (v *salvage) copy(r *segment.Reader, whole []segment.Record) (number uint32, err error) {
	number = v.next
	v.next++
	w, err := segment.Create(v.fs, v.dir, segment.ID{Store: v.id, Number: number}, 1<<62)
	defer func() {
		if err != nil && !errors.Is(err, fs.ErrExist) {
			_ = v.fs.Remove(segment.Path(v.dir, number)) // ours, and a copy
		}
	}()
	if err != nil {
		return 0, err
	}
	defer w.Close()
	for i := range whole {
		rec := &whole[i]
		buf := make([]byte, segment.RecordHeaderSize+int(rec.Stored), segment.Size(int(rec.Stored)))
		var head segment.Record
		if _, err := r.ReadRecord(rec.Entry(r.Number()).Location, rec.Hash, &head, buf); err != nil {
			return 0, err
		}
		slot, err := w.Reserve(int(rec.Stored))
		if err != nil {
			return 0, err
		}
		out := &segment.Record{Kind: head.Kind, Codec: head.Codec, Raw: head.Raw, Hash: head.Hash,
			XXH3: rec.XXH3}
		err = w.Write(slot, out, buf)
		w.Finish(slot, out, err)
		if err != nil {
			return 0, err
		}
		v.st.Kept.Add(segment.Tally{Records: 1, Raw: int64(head.Raw), Stored: int64(head.Stored)})
	}
	if _, err := w.Seal(v.opt.Now()); err != nil {
		return 0, err
	}
	return number, v.fs.SyncDir(v.dir)
}

// aside moves a segment's file to the first free name.
func (v *salvage) aside(n uint32) (string, error) {
	if err := v.fs.MkdirAll(v.opt.Aside, 0o700); err != nil {
		return "", err
	}
	if err := v.fs.SyncDir(filepath.Dir(v.opt.Aside)); err != nil {
		return "", err
	}
	to := filepath.Join(v.opt.Aside, segment.Name(n))
	for i := 1; ; i++ {
		f, err := v.fs.OpenFile(to, 0, 0)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil && !disk.Unreadable(err) {
			return "", err
		}
		if err == nil {
			f.Close()
		}
		to = filepath.Join(v.opt.Aside, fmt.Sprintf("%s.%d", segment.Name(n), i))
	}
	if err := v.fs.Rename(segment.Path(v.dir, n), to); err != nil {
		return "", err
	}
	return to, errors.Join(v.fs.SyncDir(v.opt.Aside), v.fs.SyncDir(v.dir))
}
