package fetch

import (
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/segment"
)

// Content appends the content of a record to dst. bases are the contents of what it is stored against
// (delta.Gather), one behind the other, of which the first ends at first. The content is not held
// against the record's hash. The error wraps cas.ErrCorrupt if the payload, or a base, is not what it should
// be.
func Content(dst []byte, rec *segment.Record, payload, bases []byte, first int) ([]byte, error) {
	n := int(rec.Raw)
	if !codec.NeedsBase(rec.Codec) {
		return codec.Decode(dst, rec.Codec, payload, n)
	}
	b, err := segment.ParseBase(rec.Codec, payload)
	if err != nil {
		return dst, err
	}
	return delta.Content(dst, rec.Codec, &b, payload, bases, first, n)
}
