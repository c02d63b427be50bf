package fetch

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// Content appends the content of a record to dst. bases are the contents of what it is stored against
// (segment.ParseBase), one behind the other, of which the first ends at first. The content is not held
// against the record's hash. The error wraps cas.ErrCorrupt if the payload, or a base, is not what it should
// be.
func Content(dst []byte, rec *segment.Record, payload, bases []byte, first int) ([]byte, error) {
	n := int(rec.Raw)
	if !codec.NeedsBase(rec.Codec) {
		return codec.Decode(dst, rec.Codec, payload, n)
	}
	if max(n, first, len(bases)-first) > segment.MaxBased {
		return dst, fmt.Errorf("delta of %d bytes: %w: %w", n, cas.ErrTooLarge, cas.ErrCorrupt)
	}
	b, err := segment.ParseBase(rec.Codec, payload)
	if err != nil {
		return dst, err
	}
	payload = payload[b.Size():]
	if rec.Codec == codec.LowRank {
		return codec.DecodeLowRank(dst, payload, bases[:first:first], bases[first:], n)
	}
	return codec.DecodeAgainst(dst, rec.Codec, payload, bases, n)
}
