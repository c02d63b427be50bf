package torch

import (
	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

// maxRank is the most dimensions that torch gives a tensor.
const maxRank = 64

// untyped is the storage class whose tensors state their own dtype.
const untyped = "UntypedStorage"

// storageTypes has the classes of torch/storage.py, _storage_type_to_dtype_map. Quantised elements are their
// integers; the two packed 4- and 2-bit types are left out.
var storageTypes = map[string]formats.DType{
	"DoubleStorage": formats.F64, "FloatStorage": formats.F32, "HalfStorage": formats.F16,
	"BFloat16Storage": formats.BF16, "LongStorage": formats.I64, "IntStorage": formats.I32,
	"ShortStorage": formats.I16, "CharStorage": formats.I8, "ByteStorage": formats.U8,
	"BoolStorage": formats.Bool, untyped: formats.U8, "ComplexFloatStorage": formats.C64,
	"ComplexDoubleStorage": formats.C128, "QInt8Storage": formats.I8, "QUInt8Storage": formats.U8,
	"QInt32Storage": formats.I32,
}

// torchTypes has the dtypes of _rebuild_tensor_v3 that the formats know. float4_e2m1fn_x2 holds two elements
// a byte and is handled by unpackF4.
var torchTypes = map[string]formats.DType{
	"float8_e5m2": formats.F8E5M2, "float8_e4m3fn": formats.F8E4M3, "float8_e8m0fnu": formats.F8E8M0,
	"float8_e5m2fnuz": formats.F8E5M2FZ, "float8_e4m3fnuz": formats.F8E4M3FZ,
	"uint16": formats.U16, "uint32": formats.U32, "uint64": formats.U64,
	"bool": formats.Bool, "uint8": formats.U8, "int8": formats.I8, "int16": formats.I16, "int32": formats.I32,
	"int64": formats.I64, "float16": formats.F16, "bfloat16": formats.BF16, "float32": formats.F32,
	"float64": formats.F64, "complex64": formats.C64, "complex128": formats.C128,
}

// call is a function and the arguments it would be called with.
type call struct{ fn, args pickle.Value }

// asCall returns the call that v stands for, looked at through the wrappers of parameters and subclasses. It
// refuses calls whose result the pickle changes afterwards.
func asCall(v pickle.Value) (call, bool) {
	for range 8 {
		fn, args, ok := v.Call()
		_, built := v.State()
		if !ok || v.Kind() != pickle.Call || built || v.NumPairs() > 0 || v.Len() > 0 ||
			args.Kind() != pickle.Tuple {
			return call{}, false
		}
		c := call{fn, args}
		if isWrapper(c) {
			return c, true
		}
		// func, type, args, state
		if fn.IsGlobal("torch._tensor", "_rebuild_from_type_v2") && args.Len() == 4 {
			c = call{args.At(0), args.At(2)}
			if c.args.Kind() != pickle.Tuple {
				return call{}, false
			}
		}
		if n := c.args.Len(); c.fn.IsGlobal("torch._utils", "_rebuild_parameter") && n == 3 ||
			// data, requires_grad, hooks, state
			c.fn.IsGlobal("torch._utils", "_rebuild_parameter_with_state") && n == 4 {
			v = c.args.At(0)
			continue
		}
		return c, true
	}
	return call{}, false
}

// isWrapper reports whether c makes a tensor that has no storage but holds other tensors as attributes.
func isWrapper(c call) bool {
	return c.fn.IsGlobal("torch._tensor", "_rebuild_from_type_v2") && c.args.Len() == 4 &&
		c.args.At(0).IsGlobal("torch._utils", "_rebuild_wrapper_subclass")
}

// rebuild is a function of torch/_utils.py that makes a tensor of a storage. All begin with storage, offset,
// size and stride.
type rebuild struct {
	name     string
	min, max int // arguments
	dtype    int // the argument that has the dtype; 0 where the storage's type is it
	metadata int // the argument that says whether the view is conjugated or negated; 0 for none
}

var rebuilds = [...]rebuild{
	{name: "_rebuild_tensor", min: 4, max: 4},
	{name: "_rebuild_tensor_v2", min: 6, max: 7, metadata: 6},
	{name: "_rebuild_tensor_v3", min: 7, max: 8, dtype: 6, metadata: 7},
	{name: "_rebuild_qtensor", min: 7, max: 7},
}

// tensor returns the tensor that c makes, without a name, and the index of its storage. When c makes none, or
// none that is certain, it says why.
func (w *walker) tensor(c call) (t formats.Tensor, storage int, why string) {
	none := func(why string) (formats.Tensor, int, string) { return formats.Tensor{}, 0, why }
	module, name := c.fn.Global()
	if string(module) != "torch._utils" {
		return none(whyFunction)
	}
	for _, r := range rebuilds {
		if r.name != string(name) {
			continue
		}
		n := c.args.Len()
		if n < r.min || n > r.max {
			return none(whyFunction)
		}
		i, why := w.storage(c.args.At(0))
		if why != "" {
			return none(why)
		}
		if r.metadata > 0 && r.metadata < n {
			if why := viewed(c.args.At(r.metadata)); why != "" {
				return none(why)
			}
		}
		s := &w.storages[i]
		t := formats.Tensor{DType: storageTypes[s.class], Region: s.Region}
		packed := false
		if r.dtype > 0 {
			mod, dt := c.args.At(r.dtype).Global()
			if string(mod) != "torch" || s.class != untyped {
				return none(whyType)
			}
			t.DType = torchTypes[string(dt)]
			if packed = string(dt) == "float4_e2m1fn_x2"; packed {
				t.DType = formats.U8
			}
		}
		if t.DType == "" {
			return none(whyType)
		}
		if !place(&t, s.Len, c.args.At(1), c.args.At(2), c.args.At(3)) {
			return none(whyPlace)
		}
		if packed && !unpackF4(&t) {
			return none(whyPacked)
		}
		return t, i, ""
	}
	return none(whyFunction)
}

// viewed says why a tensor is not its storage's elements: the metadata of one that is saved conjugated or
// negated. "": it is.
func viewed(metadata pickle.Value) string {
	if metadata.Kind() == pickle.None || metadata.Kind() == pickle.Dict && metadata.NumPairs() == 0 {
		return ""
	}
	for i := range metadata.NumPairs() {
		switch k, _ := metadata.Pair(i); string(k.Text()) {
		case "conj":
			return whyConjugated
		case "neg":
			return whyNegated
		}
	}
	return whyFunction
}

// place sets the tensor's shape, strides and offset, given in elements of a storage of n bytes.
func place(t *formats.Tensor, n int64, offset, size, stride pickle.Value) bool {
	width := int64(t.DType.Bits() / 8)
	off, ok := offset.Int()
	if !ok || width == 0 || off < 0 || off > n/width {
		return false
	}
	if t.Shape, ok = integers(size); !ok {
		return false
	}
	if t.Stride, ok = integers(stride); !ok || len(t.Stride) != len(t.Shape) {
		return false
	}
	t.Offset = off * width
	if t.CheckBounds(n) != nil {
		return false
	}
	if t.NumElements() == 0 {
		t.Region, t.Offset, t.Stride = -1, 0, nil
	}
	if t.Contiguous() {
		t.Stride = nil
	}
	return true
}

// integers returns the elements of a tuple of integers. Torch writes tuples, and nothing later in the pickle
// can change one, as it could a list.
func integers(v pickle.Value) ([]int64, bool) {
	if v.Kind() != pickle.Tuple || v.Len() > maxRank {
		return nil, false
	}
	out := make([]int64, v.Len())
	for i := range out {
		n, ok := v.At(i).Int()
		if !ok {
			return nil, false
		}
		out[i] = n
	}
	return out, true
}

// unpackF4 turns a tensor of bytes into one of twice as many 4-bit elements, as the safetensors library does.
func unpackF4(t *formats.Tensor) bool {
	if t.Stride != nil || len(t.Shape) == 0 {
		return false
	}
	t.DType = formats.F4
	t.Shape[len(t.Shape)-1] *= 2
	return true
}

// Storage is a run of bytes that a pickle's persistent ids name.
type Storage struct {
	Key    string
	Len    int64 // bytes
	Region int   // in the layout; -1 when it is empty

	class    string // the storage type of the persistent ids met so far; "" before the first
	disputed bool   // persistent ids differ in type or length
}

// ID is what a persistent id says of a storage:
//
//	('storage', torch.FloatStorage, '0', 'cpu', 1024)    key, location, elements
//
// Files that are not zips have a sixth field, the view, which is None.
type ID struct {
	Class, Key string
	Width      int64 // bytes of an element
	Numel      int64
}

// ParseID reads a persistent id. It returns false for any but a storage's of a known type.
func ParseID(v pickle.Value) (id ID, ok bool) {
	t, ok := v.PersID()
	if !ok || t.Kind() != pickle.Tuple || t.Len() != 5 && (t.Len() != 6 || t.At(5).Kind() != pickle.None) ||
		t.At(0).Kind() != pickle.Text || string(t.At(0).Text()) != "storage" ||
		t.At(2).Kind() != pickle.Text ||
		t.At(3).Kind() != pickle.Text || string(t.At(3).Text()) == "meta" {
		return ID{}, false
	}
	module, name := t.At(1).Global()
	if m := string(module); m != "torch" && m != "torch.storage" {
		return ID{}, false
	}
	id.Class, id.Key = string(name), string(t.At(2).Text())
	id.Width = int64(storageTypes[id.Class].Bits() / 8)
	id.Numel, ok = t.At(4).Int()
	return id, ok && id.Width > 0 && id.Numel >= 0
}

// storage returns the index of the storage that a persistent id names, or why it can't.
func (w *walker) storage(v pickle.Value) (i int, why string) {
	id, ok := ParseID(v)
	if !ok {
		if class, key, ok := unknownID(v); ok && storageTypes[class] == "" {
			if i, known := w.byKey[key]; known {
				w.met[i] = true
			}
			return 0, whyType
		}
		return 0, whyStorage
	}
	i, known := w.byKey[id.Key]
	if !known {
		return 0, whyStorage
	}
	w.met[i] = true
	s := &w.storages[i]
	if s.class == "" {
		s.class = id.Class
	}
	// Torch caches the storage that it loads first. Empty ones may be met under several types.
	if id.Numel != s.Len/id.Width || s.Len%id.Width != 0 || id.Class != s.class && s.Len > 0 {
		s.disputed = true
	}
	s.class = id.Class
	if s.disputed {
		return 0, whyStorage
	}
	return i, ""
}

// unknownID reads the class and the key of a persistent id that is a storage's.
func unknownID(v pickle.Value) (class, key string, ok bool) {
	t, ok := v.PersID()
	if !ok || t.Kind() != pickle.Tuple || t.Len() < 5 || string(t.At(0).Text()) != "storage" {
		return "", "", false
	}
	_, name := t.At(1).Global()
	return string(name), string(t.At(2).Text()), true
}
