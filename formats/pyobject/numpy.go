package pyobject

import (
	"strconv"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

// dtype is a NumPy type.
type dtype struct {
	code  formats.DType // "" for one that there is none for
	width int64         // bytes of an element
	objs  bool          // objects
}

var types = map[string]formats.DType{
	"b1": formats.Bool, "i1": formats.I8, "u1": formats.U8, "i2": formats.I16, "u2": formats.U16,
	"i4": formats.I32, "u4": formats.U32, "i8": formats.I64, "u8": formats.U64, "f2": formats.F16,
	"f4": formats.F32, "f8": formats.F64, "c8": formats.C64, "c16": formats.C128,
}

// readType reads dtype('f8', False, True) with the state (3, '<', None, None, None, -1, -1, 0): version, byte
// order, subarray, names, fields, item size, alignment, flags. The item size is -1 unless the type is
// structured, or is text.
func readType(v pickle.Value) (d dtype, ok bool) {
	fn, args, _ := v.Call()
	state, built := v.State()
	if v.Kind() != pickle.Call || !fn.IsGlobal("numpy", "dtype") || args.Kind() != pickle.Tuple ||
		args.Len() < 1 ||
		!built || state.Kind() != pickle.Tuple || state.Len() < 7 {
		return d, false
	}
	code, order := string(args.At(0).Text()), string(state.At(1).Text())
	if len(code) < 2 {
		return d, false
	}
	n, err := strconv.ParseUint(code[1:], 10, 24)
	if err != nil || args.At(0).Kind() != pickle.Text {
		return d, false
	}
	d.width = int64(n)
	switch code[0] {
	case 'O':
		d.objs = true
		return d, true
	case 'U':
		d.width *= 4
	case 'V', 'S', 'M', 'm', 'b', 'i', 'u', 'f', 'c':
	default:
		return d, false
	}
	if item, ok := state.At(5).Int(); ok && item >= 0 && item != d.width {
		return d, false
	}
	plain := state.At(2).Kind() == pickle.None && state.At(3).Kind() == pickle.None
	if hasObjects(state) {
		return d, false
	}
	if plain && (order == "<" || order == "|" && n == 1) {
		d.code = types[code]
	}
	return d, true
}

// hasObjects reports whether the flags of a structured type's state say that it holds references, or can't be
// read.
func hasObjects(state pickle.Value) bool {
	if state.Len() < 8 {
		return false
	}
	const reference = 1
	flags, ok := state.At(7).Int()
	return !ok || flags&reference != 0
}

// count is the number of a shape's elements, -1 when that can't be said.
func count(shape []int64) int64 {
	t := formats.Tensor{Shape: shape}
	return t.NumElements()
}

func integers(v pickle.Value) ([]int64, bool) {
	const maxRank = 64
	if v.Kind() != pickle.Tuple || v.Len() > maxRank {
		return nil, false
	}
	out := make([]int64, v.Len())
	for i := range out {
		n, ok := v.At(i).Int()
		if !ok || n < 0 {
			return nil, false
		}
		out[i] = n
	}
	return out, true
}

// isReconstruct reports whether v is an array made by _reconstruct, and returns its state:
// version, shape, dtype, is it column-major, bytes or list.
func isReconstruct(v pickle.Value) (pickle.Value, bool) {
	fn, _, _ := v.Call()
	module, name := fnName(fn)
	state, built := v.State()
	ok := v.Kind() == pickle.Call && built && name == "_reconstruct" &&
		(module == "numpy._core.multiarray" || module == "numpy.core.multiarray") &&
		state.Kind() == pickle.Tuple && state.Len() == 5
	return state, ok
}

func fnName(fn pickle.Value) (module, name string) {
	if fn == (pickle.Value{}) {
		return "", ""
	}
	m, n := fn.Global()
	return string(m), string(n)
}

// objects returns the elements of an array of objects.
func objects(v pickle.Value) (pickle.Value, bool) {
	if v.Kind() != pickle.Call {
		return pickle.Value{}, false
	}
	state, ok := isReconstruct(v)
	if !ok || state.At(4).Kind() != pickle.List {
		return pickle.Value{}, false
	}
	return state.At(4), true
}

// readArray reads an array whose bytes are a Raw.
func readArray(v pickle.Value) (a array, ok bool) {
	if v.Kind() != pickle.Call {
		return a, false
	}
	var shape, typ, raw pickle.Value
	a.order = 'C'
	if state, ok := isReconstruct(v); ok {
		shape, typ, raw = state.At(1), state.At(2), state.At(4)
		if state.At(3).Bool() {
			a.order = 'F'
		}
	} else {
		fn, args, _ := v.Call()
		module, name := fnName(fn)
		if name != "_frombuffer" || module != "numpy._core.numeric" && module != "numpy.core.numeric" ||
			args.Kind() != pickle.Tuple || args.Len() != 4 {
			return a, false
		}
		raw, typ, shape = args.At(0), args.At(1), args.At(2)
		if string(args.At(3).Text()) == "F" {
			a.order = 'F'
		}
	}
	off, n, isRaw := raw.Raw()
	d, typed := readType(typ)
	dims, shaped := integers(shape)
	if !isRaw || !typed || !shaped || d.objs || d.width == 0 || count(dims) < 0 || count(dims) > n/d.width ||
		count(dims)*d.width != n {
		return a, false
	}
	a.Range, a.typ, a.shape = formats.Range{Off: off, Len: n}, d, dims
	return a, true
}

// tensor is the array's, without a region.
func (a *array) tensor(name string) formats.Tensor {
	t := formats.Tensor{Name: name, DType: a.typ.code, Shape: a.shape}
	if a.order == 'F' {
		t.SetColumnMajor()
	}
	return t
}
