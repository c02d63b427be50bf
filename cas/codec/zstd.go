package codec

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"ckptfs/cas"
)

type zstdCodec struct{}

// EncodeAll and DecodeAll keep their state in a pool inside, one for each processor.
var (
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil,
			zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithAllLitEntropyCompression(true), // else unmatched literals stay uncompressed
			zstd.WithSingleSegment(true),            // states the content size whatever it is
			zstd.WithEncoderCRC(false),              // the record has its own
			zstd.WithWindowSize(zstdWindow))
		if err != nil {
			panic(fmt.Sprintf("codec: zstd refuses constant options: %v", err))
		}
		return e
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil,
			zstd.WithDecoderConcurrency(0),
			zstd.WithDecoderMaxMemory(cas.MaxChunk+1),
			zstd.WithDecodeAllCapLimit(true)) // never past the capacity that it is given
		if err != nil {
			panic(fmt.Sprintf("codec: zstd refuses constant options: %v", err))
		}
		return d
	})
)

const zstdWindow = 1 << 20

func (zstdCodec) ID() byte { return Zstd }

func (zstdCodec) Encode(dst, raw []byte, _ Hint) []byte { return zstdEncoder().EncodeAll(raw, dst) }

func (zstdCodec) Decode(dst, stored []byte, rawLen int) ([]byte, error) {
	if rawLen < 0 || rawLen > cas.MaxChunk {
		return dst, fmt.Errorf("zstd: %d bytes: %w", rawLen, cas.ErrTooLarge)
	}
	var h zstd.Header
	if err := h.Decode(stored); err != nil {
		return dst, fmt.Errorf("zstd: %w: %w", err, cas.ErrCorrupt)
	}
	if h.Skippable || !h.HasFCS || h.FrameContentSize != uint64(rawLen) {
		return dst, fmt.Errorf("zstd: frame states %d bytes, want %d: %w",
			h.FrameContentSize, rawLen, cas.ErrCorrupt)
	}
	dst, err := grow(dst, rawLen)
	if err != nil {
		return dst, err
	}
	n := len(dst)
	// The third index keeps the decoder, which copies in strides, off what follows in dst's array.
	out, err := zstdDecoder().DecodeAll(stored, dst[n:n:n+rawLen])
	if err != nil {
		return dst, fmt.Errorf("zstd: %w: %w", err, cas.ErrCorrupt)
	}
	if len(out) != rawLen {
		return dst, fmt.Errorf("zstd: %d bytes, want %d: %w", len(out), rawLen, cas.ErrCorrupt)
	}
	return dst[:n+rawLen], nil // where out lies: with the capacity limited the decoder never moves
}
