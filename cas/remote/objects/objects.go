// Package objects turns records of the local store into objects of a remote: segments in the bytes of package
// segment, of at most record.MaxObject, whose id is {the object's id, 1}. Payloads are what the local store
// has, byte by byte; headers are new, so that a record is tied to the object and the place.
//
//	d/…    chunks of 32 KiB stored and more
//	m/…    smaller chunks, parts of graphs; at the end of the last one manifests, lists, plans and commit
//	       records
//
// A Packer is told of files one after the other, and lays their chunks out in the order of their closures:
// what a reader of the file needs first lies first, bases ahead of what is stored against them. Manifests and
// lists lie right before the plans, so that one request brings all that a reader has to know before it asks
// for chunks. An object that is full is put at once. Nothing is staged: an Object is a list of headers, and
// its Body reads the payloads from the Source each time that it is sent. Its checksum is known before, since
// that of each payload is.
//
// An object stays as long as one file needs a record of it. So what is removed at different times lies in
// different data objects, from the first MiB of a push on:
//
//	a large file      of a MiB, and a sixteenth of what was laid out before it, begins one; so does the file
//	                  behind it
//	deltas            do not share one with what is stored alone: later deltas need those before them
//
// Small files share objects, however many they are.
//
// # What is there already
//
// A record is not put again that lies in an object which no epoch has condemned, if a reader of the plan can
// decode it there: because it is stored alone, or because its payload is the local one (by length and
// checksum), so that it has the same bases. What has other bases there is put again. Bases of what is relied
// on are in the plan; where they are not there, they are put.
//
//	∀ r in a plan with bases: each base is in the plan, and number(base) < number(r)
//
// That holds since it holds of the local store: r has its local number or 0, and so have its bases.
//
// A file that another entry has as a whole (Whole) is relied on with its plan, however it is stored here.
//
// # Plans
//
// A plan states the length of each object that it names, and lies in one of these: the last meta object,
// whose length depends on those of the plans. So these are made for a length, which is the right one when it
// comes out again. It only grows, by the bytes that numbers take, so a few rounds find it.
//
// # Memory
//
// Some 300 bytes for each record of the file that is being laid out, 150 for each that is laid out, and 16
// for each chunk of the push; a payload for each object that is being put.
package objects

import (
	"hash/crc32"
	"io"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Object is a segment that is to be put.
type Object struct {
	record.Object
	records []segment.Record // by offset
	own     map[int][]byte   // payloads of those that no Source has, by index
	end     int64            // of the records
}

// size is how long the object is if n records more of so many stored bytes in all their rooms go in.
func (o *Object) size(n int, room int64) int64 {
	return o.end + room + segment.FooterSize(len(o.records)+n)
}

// takes reports whether a record goes in.
func (o *Object) takes(stored int) bool {
	return o.size(1, segment.Size(stored)) <= record.MaxObject && len(o.records) < segment.MaxRecords
}

// add lays out a record and returns its offset.
func (o *Object) add(r segment.Record) int64 {
	r.Off = o.end
	o.records = append(o.records, r)
	o.end = r.End()
	return r.Off
}

// addOwn is add for a payload that no Source has.
func (o *Object) addOwn(kind cas.Kind, h cas.Hash, p []byte) int64 {
	if o.own == nil {
		o.own = map[int][]byte{}
	}
	o.own[len(o.records)] = p
	return o.add(segment.Record{Kind: kind, Codec: codec.Raw, Raw: uint32(len(p)), Stored: uint32(len(p)),
		Hash: h, XXH3: cas.SumXXH3(p), CRC: crc32.Checksum(p, castagnoli)})
}

func (o *Object) segment() segment.ID { return segment.ID{Store: o.ID, Number: 1} }

// Key is the object's key.
func (o *Object) Key() string { return o.Class.Key(o.ID) }

// Records are what lies in the object.
func (o *Object) Records() []Placed {
	all := make([]Placed, len(o.records))
	for i := range o.records {
		r := &o.records[i]
		all[i] = Placed{Hash: r.Hash, Off: r.Off, Raw: r.Raw, Stored: r.Stored, CRC: r.CRC, Kind: r.Kind,
			Based: codec.NeedsBase(r.Codec)}
	}
	return all
}

// Body is what is put. failed is told of a *LostError that a reader gives.
func (o *Object) Body(src Source, failed func(error)) bucket.Body {
	return bucket.Body{Size: o.Len, CRC32C: o.crc(), Immutable: true, Open: func() (io.ReadCloser, error) {
		return &reader{o: o, src: src, failed: failed, next: -1}, nil
	}}
}

// crc is the CRC-32C of the whole object, made of those of its payloads.
func (o *Object) crc() uint32 {
	head := segment.AppendFileHeader(nil, o.segment())
	sum := crc32.Checksum(head, castagnoli)
	for i := range o.records {
		r := &o.records[i]
		head = segment.AppendRecord(head[:0], o.segment(), r, nil)[:segment.RecordHeaderSize]
		sum = crc32.Update(sum, castagnoli, head)
		sum = joined(sum, r.CRC, int64(r.Stored))
		sum = crc32.Update(sum, castagnoli, zeros[:r.End()-r.Off-segment.RecordHeaderSize-int64(r.Stored)])
	}
	return crc32.Update(sum, castagnoli, o.footer(nil))
}

func (o *Object) footer(p []byte) []byte {
	return segment.AppendFooter(p, o.segment(), o.records, o.end)
}

var zeros [64 << 10]byte

// joined is the checksum of two runs of bytes, one behind the other, the second of n bytes. A checksum is a
// linear function of the register before and of the bytes, but for the inversions around it: what the first
// run leaves in the register passes through n zeros, and is added.
func joined(first, second uint32, n int64) uint32 {
	first = ^first
	for ; n > 0; n -= int64(len(zeros)) {
		first = crc32.Update(first, castagnoli, zeros[:min(n, int64(len(zeros)))])
	}
	return ^first ^ second
}

// reader reads an object: the file header, the records, the footer.
type reader struct {
	o      *Object
	src    Source
	failed func(error)
	next   int // record, -1 is the file header
	buf    []byte
	rest   []byte // of buf
	err    error
}

// Read reads of the part that was begun, and begins the next when it is at its end.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.err = r.fill()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// fill makes the next part.
func (r *reader) fill() error {
	i := r.next
	r.next++
	switch {
	case i < 0:
		r.buf = segment.AppendFileHeader(r.buf[:0], r.o.segment())
	case i < len(r.o.records):
		if err := r.record(i); err != nil {
			r.failed(err)
			return err
		}
	case i == len(r.o.records):
		r.buf = r.o.footer(r.buf[:0])
	default:
		return io.EOF
	}
	r.rest = r.buf
	return nil
}

// record makes a record, its payload read to where it belongs.
func (r *reader) record(i int) error {
	rec := &r.o.records[i]
	if own, ok := r.o.own[i]; ok {
		r.buf = segment.AppendRecord(r.buf[:0], r.o.segment(), rec, own)
		return nil
	}
	size := int(segment.Size(int(rec.Stored)))
	r.buf = segment.AppendRecord(r.buf[:0], r.o.segment(), rec, nil)[:segment.RecordHeaderSize]
	r.buf = slices.Grow(r.buf, size-len(r.buf))[:size]
	payload := r.buf[segment.RecordHeaderSize:]
	clear(payload[rec.Stored:])
	if err := r.src.Payload(rec, payload[:rec.Stored]); err != nil {
		return &LostError{rec.Hash, err}
	}
	return nil
}

// Close does nothing: there is nothing open between reads.
func (r *reader) Close() error { return nil }
