package codec

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"ckptfs/cas"
)

// Patch is the number of text or structure that is encoded against an earlier version of it: one Zstandard
// frame (RFC 8878) with the base as a dictionary of raw content, of id 0, its length stated, without a
// checksum.
const Patch byte = 3

// minPatch is the length from which a base is of use as a dictionary.
const minPatch = 64

// shortPatch is the length of a text up to which the fastest level is enough.
const shortPatch = 64 << 10

// EncodeAgainst appends raw to dst encoded against base, an earlier version of it, by the codec that suits h.
// It returns dst as it was and false unless that takes at most the given number of bytes. What was encoded
// has been decoded again and compared.
func EncodeAgainst(dst, raw, base []byte, h Hint, most int) (id byte, out []byte, ok bool) {
	if _, kind := numbers(h); kind != notNumbers {
		out, ok = EncodeDelta(dst, raw, base, h, most)
		return Delta, out, ok
	}
	out, ok = encodePatch(dst, raw, base, most)
	return Patch, out, ok
}

// DecodeAgainst undoes EncodeAgainst and EncodeRounded: it appends the rawLen bytes that stored holds under
// codec id to dst. Its errors and bounds are those of Codec.Decode. The memory of base is the caller's.
func DecodeAgainst(dst []byte, id byte, stored, base []byte, rawLen int) ([]byte, error) {
	switch id {
	case Delta:
		return DecodeDelta(dst, stored, base, rawLen)
	case Patch:
		return decodePatch(dst, stored, base, rawLen)
	case Rounded:
		return decodeRounded(dst, stored, base, rawLen)
	}
	return dst, fmt.Errorf("codec %d with a base: %w", id, cas.ErrNewer)
}

// NeedsBase reports whether codec id needs a base to decode: by DecodeAgainst, DecodeLowRank, or package
// recipe.
func NeedsBase(id byte) bool {
	return id == Delta || id == Patch || id == LowRank || id == Rounded || id == Recipe
}

func encodePatch(dst, raw, base []byte, most int) ([]byte, bool) {
	if len(raw) < minLen || len(raw) > cas.MaxChunk || len(base) < minPatch || len(base) > cas.MaxChunk {
		return dst, false
	}
	out, err := patch(dst, raw, base)
	if err != nil || len(out)-len(dst) > most {
		return dst, false
	}
	got, err := decodePatch(nil, out[len(dst):], base, len(raw))
	if err != nil || !bytes.Equal(got, raw) {
		return dst, false
	}
	return out, true
}

// patch appends a frame of raw to dst.
func patch(dst, raw, base []byte) ([]byte, error) {
	if len(raw) <= shortPatch && len(base) <= shortPatch {
		p := patchers.Get().(*patcher)
		defer patchers.Put(p)
		return p.encode(dst, raw, base)
	}
	// The better levels find no more in a short text, and making their tables takes longer than encoding it.
	level := zstd.SpeedFastest
	if len(raw) > shortPatch {
		level = zstd.SpeedBetterCompression
	}
	enc, err := newPatchEncoder(level, len(raw)+len(base), base)
	if err != nil {
		return dst, err
	}
	return enc.EncodeAll(raw, dst), nil
}

// newPatchEncoder returns an encoder with base as dictionary, whose window holds n bytes.
func newPatchEncoder(level zstd.EncoderLevel, n int, base []byte) (*zstd.Encoder, error) {
	return zstd.NewWriter(nil,
		zstd.WithEncoderDictRaw(0, base),
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false),
		zstd.WithSingleSegment(true),
		zstd.WithEncoderLevel(level),
		zstd.WithAllLitEntropyCompression(true),
		zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(window(n)))
}

// patcher encodes short texts, one after the other. Making its tables, of half a megabyte, takes longer than
// encoding such a text.
type patcher struct {
	enc *zstd.Encoder
	out appender
}

type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}

var patchers = sync.Pool{New: func() any {
	enc, err := newPatchEncoder(zstd.SpeedFastest, 2*shortPatch, make([]byte, minPatch))
	if err != nil {
		panic(fmt.Sprintf("codec: zstd refuses constant options: %v", err))
	}
	return &patcher{enc: enc}
}}

// encode writes raw as a stream. What is less than a block and ends there becomes a frame that states its
// length, as EncodeAll makes it; EncodeAll would not take another dictionary.
func (p *patcher) encode(dst, raw, base []byte) ([]byte, error) {
	p.out = dst
	defer func() { p.out = nil }()
	if err := p.enc.ResetWithOptions(&p.out, zstd.WithEncoderDictRaw(0, base)); err != nil {
		return dst, err
	}
	if _, err := p.enc.Write(raw); err != nil {
		return dst, err
	}
	if err := p.enc.Close(); err != nil {
		return dst, err
	}
	return p.out, nil
}

// window is the least power of two that is at least n, within what the encoder takes.
func window(n int) int {
	w := zstd.MinWindowSize
	for w < n {
		w *= 2
	}
	return w
}

// patchDecoders have no goroutines, and so need no Close.
var patchDecoders = sync.Pool{New: func() any {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(cas.MaxChunk+1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(fmt.Sprintf("codec: zstd refuses constant options: %v", err))
	}
	return dec
}}

func decodePatch(dst, stored, base []byte, rawLen int) ([]byte, error) {
	if len(base) > cas.MaxChunk {
		return dst, fmt.Errorf("patch: base of %d bytes: %w", len(base), cas.ErrTooLarge)
	}
	d, err := grow(dst, rawLen)
	if err != nil {
		return dst, fmt.Errorf("patch: %w", err)
	}
	var head zstd.Header
	err = head.Decode(stored)
	if err != nil || !head.HasFCS || head.FrameContentSize != uint64(rawLen) || head.Skippable {
		return dst, fmt.Errorf("patch: no frame of %d bytes: %w", rawLen, cas.ErrCorrupt)
	}
	dec := patchDecoders.Get().(*zstd.Decoder)
	defer patchDecoders.Put(dec)
	if err := dec.ResetWithOptions(nil, zstd.WithDecoderDictRaw(0, base)); err != nil {
		return dst, fmt.Errorf("patch: %w", err)
	}
	n := len(d)
	out, err := dec.DecodeAll(stored, d[n:n:n+rawLen])
	if err != nil || len(out) != rawLen {
		return dst, fmt.Errorf("patch: %d bytes, want %d: %v: %w", len(out), rawLen, err, cas.ErrCorrupt)
	}
	return d[:n+rawLen], nil
}
