package codec

// numberKind is what is known of the elements' type.
type numberKind byte

const (
	notNumbers numberKind = iota
	integers
	floats
)

// numbers is what h promises: elements of w bytes. The names are those of formats.DType; complex numbers are
// two floats. Booleans and what has less than a byte are not numbers. An unknown type of a known width is
// taken for integers.
func numbers(h Hint) (w int, kind numberKind) {
	switch h.DType {
	case "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 1, floats
	case "F16", "BF16":
		return 2, floats
	case "F32", "C64":
		return 4, floats
	case "F64", "C128":
		return 8, floats
	case "I8", "U8":
		return 1, integers
	}
	switch h.Elem {
	case 2, 4, 8:
		return h.Elem, integers
	}
	return 1, notNumbers
}

// encodeNumbers is Encode for elements of w bytes. Planes decode three times as fast as zstd. So zstd is
// tried only when a sample repeats itself or integers come out small, and taken only when it saves an eighth
// of what planes take.
func encodeNumbers(dst, raw []byte, h Hint, w int, kind numberKind) (id byte, out []byte) {
	n := len(dst)
	out = encodePlanes(dst, raw, h)
	size := len(out) - n
	if repeats(raw, w) || kind == integers && size < len(raw)/4*3 {
		p := scratch.Get().(*[]byte)
		defer scratch.Put(p)
		*p = zstdCodec{}.Encode((*p)[:0], raw, h)
		if z := *p; len(z) <= size-size/8 && pays(len(z), len(raw)) && verify(zstdCodec{}, z, raw) {
			return Zstd, append(out[:n], z...)
		}
	}
	if pays(size, len(raw)) && verifyPlanes(out[n:], raw) {
		return Planes, out
	}
	return Raw, append(out[:n], raw...)
}
