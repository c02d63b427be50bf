package codec

import (
	"fmt"

	"ckptfs/cas"
)

type rawCodec struct{}

func (rawCodec) ID() byte { return Raw }

func (rawCodec) Decode(dst, stored []byte, rawLen int) ([]byte, error) {
	if len(stored) != rawLen {
		return dst, fmt.Errorf("raw: %d bytes, want %d: %w", len(stored), rawLen, cas.ErrCorrupt)
	}
	dst, err := grow(dst, rawLen)
	if err != nil {
		return dst, err
	}
	return append(dst, stored...), nil
}
