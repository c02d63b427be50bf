package recipe

import (
	"encoding/binary"
	"math"
	"sync"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

var le = binary.LittleEndian

// widen sets dst to the numbers of a type in src.
func widen(dst []float32, src []byte, t Type) {
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	case BF16:
		half.Widen(dst, src)
	case F16:
		t := f16s()
		for i := range dst {
			dst[i] = t[le.Uint16(src[2*i:])]
		}
	case F8E4M3:
		t := quant.F8E4M3.Numbers()
		for i := range dst {
			dst[i] = t[src[i]]
		}
	case F8E5M2:
		for i := range dst {
			dst[i] = half.FromF16(uint16(src[i]) << 8)
		}
	}
}

// f16s are the numbers of binary16.
var f16s = sync.OnceValue(func() *[1 << 16]float32 {
	t := new([1 << 16]float32)
	for i := range t {
		t[i] = half.FromF16(uint16(i))
	}
	return t
})

// round sets dst to the numbers of src, rounded.
func round(dst []byte, src []float32, to half.Type) {
	one := half.ToF16
	if to == half.BF16 {
		one = half.ToBF16
	}
	for i, x := range src {
		le.PutUint16(dst[2*i:], one(math.Float32bits(x)))
	}
}
