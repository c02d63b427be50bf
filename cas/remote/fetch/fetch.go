// Package fetch reads records of objects: many with few requests, several requests at a time, and each held
// against its place before anybody looks at it.
//
//	one request    records of one object, with what lies between them where that is at most MaxGap; at most
//	               MaxRange, or the whole object when nearly all of it is wanted and there are others to be
//	               read beside it
//	memory         one record for each request that is under way
//
// A record says which object it is of, and where it lies (package segment). So bytes of another object, of
// another place, or none at all, are found whatever server or cache gave them. What is wrong is asked for
// once more, past every cache (bucket.Past).
package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

const (
	// MaxGap is how many bytes between two records are read along rather than left out of one request.
	MaxGap = 1 << 20
	// MaxRange bounds one request, in bytes, but for a whole object and for one record.
	MaxRange = 16 << 20
)

// Reader reads records.
type Reader struct {
	Bucket bucket.Bucket
	// Requests at a time; 8 if 0.
	Requests int
	// Here reports whether Bucket has a record at hand, so that it is read by itself; nil: none.
	Here func(*Record) bool
	// First is with which of n requests Each begins; nil: with the first. Where many machines read the same
	// objects, each begins at another one.
	First func(n int) int

	gets, bytes atomic.Int64
}

// Record is one that is wanted.
type Record struct {
	Object record.Object
	Off    int64 // of its header
	Stored uint32
}

// Len is how many bytes it takes, without what aligns the next one.
func (r *Record) Len() int64 { return segment.RecordHeaderSize + int64(r.Stored) }

func (r *Record) end() int64 { return r.Off + r.Len() }

// Error is what is wrong with a record, or why it cannot be read.
type Error struct {
	Key string // of the object
	Off int64  // of the record in it
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s at %d: %v", e.Key, e.Off, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Stats are how many requests were made of an engine since the Reader was made, and the bytes that came of
// them.
func (r *Reader) Stats() (gets, bytes int64) { return r.gets.Load(), r.bytes.Load() }

// Each reads records and calls f with each of them: with its number, its header and its payload, which is
// f's during the call, from several goroutines at once. A record whose bytes are wrong, or of which f returns
// an error that wraps cas.ErrCorrupt, is read once more. The error is an *Error, or the context's.
func (r *Reader) Each(ctx context.Context, records []Record,
	f func(i int, rec *segment.Record, payload []byte) error) error {
	requests := cmp.Or(r.Requests, 8)
	here, away := r.here(records)
	bad, err := r.pass(ctx, r.Bucket, records, append(here, split(records, away, requests)...), f)
	if err != nil || len(bad) == 0 {
		return err
	}
	again := make([]int, len(bad))
	for i, b := range bad {
		again[i] = b.i
	}
	bad, err = r.pass(ctx, bucket.Past(r.Bucket), records, split(records, again, requests), f)
	if err != nil || len(bad) == 0 {
		return err
	}
	return bad[0].err
}

// here are the numbers of the records at hand, each a range of its own, and those of the others.
func (r *Reader) here(records []Record) (here [][]int, away []int) {
	for i := range records {
		if r.Here != nil && r.Here(&records[i]) {
			here = append(here, []int{i})
		} else {
			away = append(away, i)
		}
	}
	return here, away
}

// wrong is a record whose bytes were wrong.
type wrong struct {
	i   int
	err error
}

// pass reads ranges of records, and returns those that were wrong.
func (r *Reader) pass(ctx context.Context, b bucket.Bucket, records []Record, ranges [][]int,
	f func(int, *segment.Record, []byte) error) (bad []wrong, err error) {
	found := make([][]wrong, len(ranges))
	if len(ranges) > 1 && r.First != nil {
		first := r.First(len(ranges))
		ranges = slices.Concat(ranges[first:], ranges[:first])
	}
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(r.Requests, 8))
	for i, rg := range ranges {
		g.Go(func() (err error) {
			if err = each.Err(); err == nil {
				found[i], err = r.get(each, b, records, rg, f)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(found...), nil
}

// split sorts only, numbers of records, and cuts it into ranges of one request each, of which so many are
// made at a time.
func split(records []Record, only []int, requests int) (ranges [][]int) {
	slices.SortFunc(only, func(a, b int) int {
		x, y := &records[a], &records[b]
		return cmp.Or(slices.Compare(x.Object.ID[:], y.Object.ID[:]), cmp.Compare(x.Off, y.Off))
	})
	ids := map[record.ID]bool{}
	for _, i := range only {
		ids[records[i].Object.ID] = true
	}
	for len(only) > 0 {
		n := near(records, only)
		first, last := &records[only[0]], &records[only[n-1]]
		if len(ids) <= requests || last.end()-first.Off < first.Object.Len-MaxGap {
			n = within(records, only[:n])
		}
		ranges, only = append(ranges, only[:n]), only[n:]
	}
	return ranges
}

// near is how many of only lie in one object without a gap that is not worth reading.
func near(records []Record, only []int) (n int) {
	end := records[only[0]].end()
	for n = 1; n < len(only); n++ {
		x := &records[only[n]]
		if x.Object.ID != records[only[0]].Object.ID || x.Off-end > MaxGap {
			break
		}
		end = max(end, x.end())
	}
	return n
}

// within is how many of only lie in one range.
func within(records []Record, only []int) (n int) {
	begin := records[only[0]].Off
	for n = 1; n < len(only) && records[only[n]].end()-begin <= MaxRange; n++ {
	}
	return n
}

// get reads one range, and returns the records that were wrong.
func (r *Reader) get(ctx context.Context, b bucket.Bucket, records []Record, rg []int,
	f func(int, *segment.Record, []byte) error) (bad []wrong, err error) {
	first, last := &records[rg[0]], &records[rg[len(rg)-1]]
	key := first.Object.Class.Key(first.Object.ID)
	fail := func(i int, err error) ([]wrong, error) {
		err = &Error{Key: key, Off: records[i].Off, Err: err}
		if passes(err) {
			return nil, err
		}
		for _, i := range rg {
			bad = append(bad, wrong{i, err})
		}
		return bad, nil
	}
	off, n := first.Off, last.end()-first.Off
	body, info, err := b.Get(ctx, key, off, n, "")
	if !info.Cached {
		r.gets.Add(1)
	}
	if err != nil {
		return fail(rg[0], err)
	}
	defer body.Close()
	if first.Object.Len != 0 && info.Size != first.Object.Len {
		return fail(rg[0], fmt.Errorf("the object has %d bytes, want %d: %w", info.Size, first.Object.Len,
			cas.ErrCorrupt))
	}
	in := &stream{r: body, at: off, buf: *buffers.Get().(*[]byte)}
	defer func() {
		if !info.Cached {
			r.bytes.Add(in.at - off)
		}
		buffers.Put(&in.buf)
	}()
	for len(rg) > 0 {
		x := &records[rg[0]]
		if err := in.read(x); err != nil {
			return fail(rg[0], err)
		}
		if err := in.check(x, rg[0], f); err != nil {
			err = &Error{Key: key, Off: x.Off, Err: err}
			if passes(err) {
				return nil, err
			}
			bad = append(bad, wrong{rg[0], err})
		}
		rg = rg[1:]
	}
	return bad, nil
}

// passes reports whether err says nothing of the bytes: to ask another for them is of no use.
func passes(err error) bool {
	return !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, bucket.ErrNotFound) &&
		!errors.Is(err, bucket.ErrRange) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// stream is the bytes of a range. buf holds the record that was read last.
type stream struct {
	r   io.Reader
	at  int64 // offset of the next byte in the object
	buf []byte
}

// read reads on to the end of x. Two records that overlap, of a plan that lies, are no range.
func (s *stream) read(x *Record) error {
	if x.Off < s.at {
		return fmt.Errorf("it lies in another record: %w", cas.ErrCorrupt)
	}
	n, err := io.CopyN(io.Discard, s.r, x.Off-s.at)
	s.at += n
	if err != nil {
		return err
	}
	size := segment.RecordHeaderSize + int(x.Stored)
	s.buf = slices.Grow(s.buf[:0], size)[:size]
	got, err := io.ReadFull(s.r, s.buf)
	s.at += int64(got)
	return err
}

// check gives the record that was read to f.
func (s *stream) check(x *Record, i int, f func(int, *segment.Record, []byte) error) error {
	rec, err := segment.ParseRecord(s.buf, segment.ID{Store: x.Object.ID, Number: 1}, x.Off)
	if err != nil {
		return err
	}
	payload := s.buf[segment.RecordHeaderSize:]
	if rec.Stored != x.Stored {
		return fmt.Errorf("record of %d bytes, want %d: %w", rec.Stored, x.Stored, cas.ErrCorrupt)
	}
	if err := rec.CheckPayload(payload); err != nil {
		return err
	}
	return f(i, &rec, payload)
}
