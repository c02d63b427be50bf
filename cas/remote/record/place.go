package record

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// Place is where a record of a plan lies.
type Place struct {
	Object uint32 // index into Plan.Objects
	Stored uint32 // bytes of the payload, 1 to cas.MaxChunk
	Off    int64  // of the record's header in the object, in bytes; a multiple of 8
}

// End is where the record's room ends.
func (p Place) End() int64 { return p.Off + segment.Size(int(p.Stored)) }

func (p Place) check(objects []Object) error {
	if int64(p.Object) >= int64(len(objects)) {
		return fmt.Errorf("object %d of %d", p.Object, len(objects))
	}
	return checkRange(p.Off, int64(p.Stored), objects[p.Object].Len)
}

// checkRange holds that a record may lie there in an object of size bytes.
func checkRange(off, stored, size int64) error {
	if off%8 != 0 || off < segment.FileHeaderSize || stored < 1 || stored > cas.MaxChunk ||
		segment.Size(int(stored)) > size-off {
		return fmt.Errorf("record of %d bytes at %d of %d", stored, off, size)
	}
	return nil
}

// placeCoder encodes places and records and reads them, one after the other.
type placeCoder struct {
	last Place
	raw  int64 // of the last record
}

// begin is from where a place's offset counts that does not go on.
func (c *placeCoder) begin(object uint32) int64 {
	if object != c.last.Object || c.last.Stored == 0 {
		return 0
	}
	return c.last.End()
}

func (c *placeCoder) append(p []byte, at Place) []byte {
	begin := c.begin(at.Object)
	if begin != 0 && begin == at.Off {
		p = num(p, int64(at.Stored)<<1|1)
	} else {
		p = num(p, int64(at.Stored)<<1)
		p = zz(p, int64(at.Object)-int64(c.last.Object))
		p = zz(p, (at.Off-begin)/8)
	}
	c.last = at
	return p
}

// read reads a place. Distances may wrap around, to a place that append writes otherwise.
func (c *placeCoder) read(r *reader, objects []Object) Place {
	n := r.upTo(cas.MaxChunk<<1 | 1)
	at := Place{Object: c.last.Object, Stored: uint32(n >> 1), Off: c.begin(c.last.Object)}
	if n&1 == 0 {
		at.Object += uint32(r.Zigzag())
		at.Off = c.begin(at.Object) + r.Zigzag()*8
	}
	if err := at.check(objects); err != nil {
		r.Fail("%v", err)
		return Place{}
	}
	c.last = at
	return at
}

func (c *placeCoder) appendRecord(p []byte, x Record) []byte {
	raw := c.raw
	c.raw = int64(x.Raw)
	return zz(c.append(p, x.Place), c.raw-raw)
}

func (c *placeCoder) readRecord(r *reader, objects []Object) Record {
	at := c.read(r, objects)
	c.raw += r.Zigzag()
	return Record{Place: at, Raw: uint32(c.raw)}
}
