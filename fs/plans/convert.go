package plans

import (
	"bytes"
	"encoding/binary"
	"math"
	"sync"

	"ckptfs/cas/half"
	"ckptfs/formats"
)

var le = binary.LittleEndian

// floating reports whether torch takes a type for one of floating point that it can convert.
func floating(d formats.DType) bool {
	switch d {
	case formats.F64, formats.F32, formats.F16, formats.BF16,
		formats.F8E4M3, formats.F8E5M2, formats.F8E4M3FZ, formats.F8E5M2FZ:
		return true
	}
	return false
}

// convertible reports whether torch converts numbers of a type to another, of F32, F16 and BF16.
//
// Rounding is to the nearest, ties to even. F64 is rounded to float32 first. A NaN stays one:
//
//	to BF16      0xffff of F32; 0x7fc0 of F16 and F8
//	to F16       its sign and the upper bits of its payload, and quiet
//	to F32       its sign and its payload; quiet, but of BF16 and F8 (see widen)
//
// There are two for which torch has no rule, so that files differ in these: a NaN of F16 in F32, and one of F64
// in BF16, have other bits near the end of what one thread converts. Here they are as elsewhere in a tensor:
// quiet with the payload, and 0xffff.
func convertible(from, to formats.DType) bool {
	switch to {
	case from, formats.F32, formats.F16, formats.BF16:
		return floating(from)
	}
	return false
}

// widen sets dst, of 4 bytes a number, to the numbers of src as float32.
func widen(dst, src []byte, from formats.DType) {
	switch from {
	case formats.F32:
		copy(dst, src)
	case formats.BF16:
		for len(src) >= 8 && len(dst) >= 16 {
			v := le.Uint64(src)
			le.PutUint64(dst, v<<16&0xffff0000|v<<32&0xffff000000000000)
			le.PutUint64(dst[8:], v>>16&0xffff0000|v&0xffff000000000000)
			src, dst = src[8:], dst[16:]
		}
		for ; len(src) >= 2; src, dst = src[2:], dst[4:] {
			le.PutUint32(dst, uint32(le.Uint16(src))<<16)
		}
	case formats.F16:
		table := fromF16()
		for ; len(src) >= 2; src, dst = src[2:], dst[4:] {
			le.PutUint32(dst, table[le.Uint16(src)])
		}
	case formats.F64:
		for ; len(src) >= 8; src, dst = src[8:], dst[4:] {
			le.PutUint32(dst, fromF64(le.Uint64(src)))
		}
	default:
		table := fromF8(from)
		for i, b := range src {
			le.PutUint32(dst[4*i:], table[b])
		}
	}
}

// narrow sets dst to the float32 numbers of src, rounded to to. nan is what a NaN becomes in bfloat16.
func narrow(dst, src []byte, to formats.DType, nan uint16) {
	switch to {
	case formats.F32:
		copy(dst, src)
	case formats.F16:
		half.Round(dst, src, half.F16)
	case formats.BF16:
		half.Round(dst, src, half.BF16)
		if nan != 0x7fc0 { // which no number becomes
			replace(dst, 0x7fc0, nan)
		}
	}
}

// replace changes the numbers of 2 bytes that are from.
func replace(p []byte, from, to uint16) {
	var is [2]byte
	le.PutUint16(is[:], from)
	for at := 0; ; {
		i := bytes.Index(p[at:], is[:])
		if i < 0 {
			return
		}
		if at += i; at%2 != 0 {
			at++
			continue
		}
		le.PutUint16(p[at:], to)
		at += 2
	}
}

// fromF64 rounds a number of double precision to float32. Go's conversion keeps of a NaN what the processor
// keeps of it.
func fromF64(x uint64) uint32 {
	const payload = 1<<52 - 1
	if x&^(1<<63) > 0x7ff0000000000000 {
		return uint32(x>>32)&0x80000000 | 0x7fc00000 | uint32(x&payload>>29)
	}
	return math.Float32bits(float32(math.Float64frombits(x)))
}

// fromF16 are the numbers of binary16 as float32, as F16C converts them.
var fromF16 = sync.OnceValue(func() *[1 << 16]uint32 {
	var t [1 << 16]uint32
	for i := range t {
		t[i] = math.Float32bits(half.FromF16(uint16(i)))
		if half.IsNaN(t[i]) {
			t[i] |= 0x400000
		}
	}
	return &t
})

// fromF8 are the numbers of a type of 8 bits as float32, as torch converts them.
func fromF8(d formats.DType) *[256]uint32 { return f8()[d] }

var f8 = sync.OnceValue(func() map[formats.DType]*[256]uint32 {
	e4, e5, e4fz, e5fz := new([256]uint32), new([256]uint32), new([256]uint32), new([256]uint32)
	for i := range 256 {
		e4[i] = small(i, 3, 7)
		if i&0x7f == 0x7f {
			e4[i] = uint32(i&0x80)<<24 | 0x7ff00000
		}
		e5[i] = fromF16()[i<<8] // the same bits with eight more of mantissa
		e4fz[i], e5fz[i] = small(i, 3, 8), small(i, 2, 16)
	}
	e4fz[0x80], e5fz[0x80] = 0x7f800001, 0x7f800001 // their only NaN
	return map[formats.DType]*[256]uint32{
		formats.F8E4M3: e4, formats.F8E5M2: e5, formats.F8E4M3FZ: e4fz, formats.F8E5M2FZ: e5fz,
	}
})

// small is a number of 8 bits, with so many bits of mantissa, and this bias of its exponent.
func small(b, mantissa, bias int) uint32 {
	m, e := b&(1<<mantissa-1), b&0x7f>>mantissa
	if e > 0 {
		m |= 1 << mantissa
	} else {
		e = 1
	}
	x := math.Ldexp(float64(m), e-bias-mantissa)
	if b&0x80 != 0 {
		x = math.Copysign(x, -1)
	}
	return math.Float32bits(float32(x))
}
