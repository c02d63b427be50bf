package tree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"ckptfs/cas"
)

// HeaderSize is the length in bytes of the header of a hollow file.
const HeaderSize = 160

const headerText = "ckptfs: packed, read it through the mount of its store         \n"

// Header is what a hollow file begins with.
type Header struct {
	Store  [16]byte // the store's id
	Record Record
	Size   int64
}

// Encode writes the header in the form that the package comment draws.
func (h *Header) Encode() [HeaderSize]byte {
	var b [HeaderSize]byte
	copy(b[:64], headerText)
	copy(b[64:80], h.Store[:])
	rec := h.Record.Encode()
	copy(b[80:144], rec[:])
	binary.LittleEndian.PutUint64(b[144:], uint64(h.Size))
	binary.LittleEndian.PutUint32(b[156:], crc32.Checksum(b[:156], castagnoli))
	return b
}

// LooksHollow reports whether a file that begins with p begins like a hollow file of the store.
func LooksHollow(p []byte, store [16]byte) bool {
	return len(p) >= HeaderSize && bytes.HasPrefix(p, []byte(headerText)) && bytes.Equal(p[64:80], store[:])
}

// DecodeHeader reads the header of a hollow file; an error wraps cas.ErrCorrupt or cas.ErrNewer.
func DecodeHeader(p []byte) (Header, error) {
	var h Header
	if len(p) < HeaderSize || !bytes.HasPrefix(p, []byte(headerText)) {
		return h, fmt.Errorf("header of a hollow file: not there: %w", cas.ErrCorrupt)
	}
	p = p[:HeaderSize]
	if binary.LittleEndian.Uint32(p[156:]) != crc32.Checksum(p[:156], castagnoli) {
		return h, fmt.Errorf("header of a hollow file: checksum: %w", cas.ErrCorrupt)
	}
	var err error
	if h.Record, err = DecodeRecord(p[80:144]); err != nil {
		return h, fmt.Errorf("header of a hollow file: %w", err)
	}
	copy(h.Store[:], p[64:80])
	h.Size = int64(binary.LittleEndian.Uint64(p[144:]))
	if !h.Record.Hollow || h.Size < HeaderSize || binary.LittleEndian.Uint32(p[152:]) != 0 {
		return Header{}, fmt.Errorf("header of a hollow file: contradicts itself: %w", cas.ErrCorrupt)
	}
	return h, nil
}
