package pyobject

import (
	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

// built is told of each object that the pickle completes. Behind joblib's NumpyArrayWrapper lies an array.
func (b *builder) built(v pickle.Value, at int64) (int64, error) {
	fn, _, ok := v.Call()
	if !ok || !fn.IsGlobal("joblib.numpy_pickle", "NumpyArrayWrapper") {
		return 0, nil
	}
	b.joblib = true
	state, _ := v.State()
	var shape, order, typ, align pickle.Value
	for i := range state.NumPairs() {
		key, val := state.Pair(i)
		switch string(key.Text()) {
		case "shape":
			shape = val
		case "order":
			order = val
		case "dtype":
			typ = val
		case "numpy_array_alignment_bytes":
			align = val
		}
	}
	none := pickle.Value{}
	if shape == none || order == none || typ == none || len(b.arrays) >= maxArrays {
		return 0, reject("joblib: an array without shape, order or dtype, or too many")
	}
	a := array{order: 'C'}
	if string(order.Text()) == "F" {
		a.order = 'F'
	}
	var typed, shaped bool
	a.typ, typed = readType(typ)
	a.shape, shaped = integers(shape)
	n := count(a.shape)
	if !typed || !shaped || n < 0 {
		return 0, reject("joblib: an array of a type or shape that is not known")
	}
	start := at
	if a.typ.objs {
		end, err := pickle.Scan(b.r, at, b.size, 0, nil)
		if err != nil {
			return 0, err
		}
		a.objs, a.Range = true, formats.Range{Off: at, Len: end - at}
	} else {
		if align != none && align.Kind() != pickle.None {
			var pad [1]byte
			if at >= b.size {
				return 0, reject("joblib: no pad")
			}
			if err := formats.ReadFull(b.r, pad[:], at); err != nil {
				return 0, err
			}
			at += 1 + int64(pad[0])
		}
		if a.typ.width > 0 && n > (b.size-at)/a.typ.width || at > b.size {
			return 0, reject("joblib: an array of %v past the file", a.shape)
		}
		a.Range = formats.Range{Off: at, Len: n * a.typ.width}
	}
	b.byID[v.ID()] = len(b.arrays)
	b.arrays = append(b.arrays, a)
	return a.Off + a.Len - start, nil
}
