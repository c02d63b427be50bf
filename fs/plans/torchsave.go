package plans

import (
	"fmt"
	"math"
	"slices"

	"ckptfs/formats"
)

// torchSave plans what torch.save writes:
//
//	torch.serialization.set_crc32_options(False)
//	torch.save({"model": out, "checkpoint_version": 3.0, "iteration": 0}, stem + ".pt")
//
// of a dict of tensors, in this order, each of which has its own storage. One without an op is None. Sums of
// what no one has read yet cannot be told, so the archive has none: torch.load does not look at them.
//
//	stem/data.pkl       the pickle, of protocol 2
//	stem/data/N         the storages, each at a multiple of 64
//	stem/version, …     what torch says of the archive
func torchSave(stem string, out []output) (*Plan, error) {
	w := &pickler{seen: map[string]uint32{}}
	pickle, err := w.state(out)
	if err != nil {
		return nil, err
	}
	z := &archive{p: begin(nil, 2*(len(out)+6)+1), stem: stem} // beside data/N there are six records
	small := func(name, bytes string) { z.add(name, literal(bytes), int64(len(bytes))) }
	small("data.pkl", string(pickle))
	small(".format_version", "1")
	small(".storage_alignment", fmt.Sprint(storageAlignment))
	small("byteorder", "little")
	n := 0
	for i := range out {
		if out[i].op != nil {
			if out[i].NumBytes() > maxSaved-z.p.size {
				return nil, none("it has more than %d bytes", int64(maxSaved))
			}
			z.add(fmt.Sprintf("data/%d", n), out[i].op, out[i].NumBytes())
			n++
		}
	}
	small("version", "3\n")
	id, err := serializationID(z.names)
	if err != nil {
		return nil, err
	}
	small(".data/serialization_id", id)
	z.end()
	return z.p, nil
}

// maxSaved bounds the bytes of all storages.
const maxSaved = 1 << 60

// storageAlignment is what the offsets of storages are multiples of.
const storageAlignment = 64

// archive is a ZIP that is planned as caffe2's PyTorchStreamWriter writes one without sums. Numbers of 32 bits
// that do not suffice are in extra fields, as miniz has them.
//
//	local header, name, extra, padding ("FB", its length, and Zs) | data | descriptor | …
//	central directory | end of ZIP64 | its locator | end
type archive struct {
	p       *Plan
	stem    string
	names   []string // without the stem
	between []byte   // since the last data
	central []byte
}

// full is what a field of 32 bits says of a number that it does not hold.
const full = math.MaxUint32

func field(n int64) uint32 { return uint32(min(n, full)) }

// add adds a record of size bytes.
func (z *archive) add(name string, data op, size int64) {
	at := z.p.size + int64(len(z.between))
	z.names = append(z.names, name)
	name = z.stem + "/" + name
	wide := size >= full || at >= full
	var extra []byte
	if wide {
		extra = append(extra, 1, 0, 0, 0)
		if size >= full {
			extra = le.AppendUint64(le.AppendUint64(extra, uint64(size)), uint64(size))
		}
		if at >= full {
			extra = le.AppendUint64(extra, uint64(at))
		}
		le.PutUint16(extra[2:], uint16(len(extra)-4))
	}
	start := at + 30 + int64(len(name)) + int64(len(extra)) + 4
	padding := (storageAlignment - start%storageAlignment) % storageAlignment

	b := append(z.between, "PK\x03\x04\x00\x00\x08\x08"...)
	b = append(b, make([]byte, 18)...) // no method, time, sum, and sizes
	b = le.AppendUint16(b, uint16(len(name)))
	b = le.AppendUint16(b, uint16(int64(len(extra))+4+padding))
	b = append(append(b, name...), extra...)
	if size >= full {
		clear(b[len(b)-len(extra)+12:][:8]) // miniz knows no compressed size yet
	}
	b = le.AppendUint16(append(b, "FB"...), uint16(padding))
	for range padding {
		b = append(b, 'Z')
	}
	z.p.add(int64(len(b)), literal(b))
	z.p.add(size, data)
	b = append([]byte(nil), "PK\x07\x08\x00\x00\x00\x00"...)
	if wide {
		b = le.AppendUint64(le.AppendUint64(b, uint64(size)), uint64(size))
	} else {
		b = le.AppendUint32(le.AppendUint32(b, uint32(size)), uint32(size))
	}
	z.between = b

	c := append(z.central, "PK\x01\x02\x00\x00\x00\x00\x08\x08"...)
	c = append(c, make([]byte, 10)...)
	c = le.AppendUint32(le.AppendUint32(c, field(size)), field(size))
	c = le.AppendUint16(le.AppendUint16(c, uint16(len(name))), uint16(len(extra)))
	c = append(c, make([]byte, 10)...)
	c = le.AppendUint32(c, field(at))
	z.central = append(append(c, name...), extra...)
}

// end adds the directory.
func (z *archive) end() {
	at := z.p.size + int64(len(z.between))
	size, n := int64(len(z.central)), len(z.names)
	b := append(z.between, z.central...)
	b = le.AppendUint64(append(b, "PK\x06\x06"...), 44)
	b = append(b, 0x1e, 3, 0x2d, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	for _, x := range []int64{int64(n), int64(n), size, at} {
		b = le.AppendUint64(b, uint64(x))
	}
	b = le.AppendUint64(append(b, "PK\x06\x07\x00\x00\x00\x00"...), uint64(at+size))
	b = append(b, "\x01\x00\x00\x00PK\x05\x06\x00\x00\x00\x00"...)
	few := uint16(min(n, math.MaxUint16))
	b = le.AppendUint16(le.AppendUint16(b, few), few)
	b = le.AppendUint32(le.AppendUint32(b, field(size)), field(at))
	b = append(b, 0, 0)
	z.p.add(int64(len(b)), literal(b))
	z.between, z.central = nil, nil
}

// storageClasses are the names by which torch's pickles have types.
var storageClasses = map[formats.DType]string{
	formats.BF16: "BFloat16Storage", formats.F16: "HalfStorage", formats.F32: "FloatStorage",
}

// pickler writes what Python's pickler does, in protocol 2.
type pickler struct {
	b    []byte
	memo uint32            // how many objects are in it
	seen map[string]uint32 // of these, what is written once
}

// state is the pickle of the dict.
func (w *pickler) state(out []output) ([]byte, error) {
	w.op("\x80\x02")
	w.made("}")
	w.op("(")
	w.text("model")
	w.made("}")
	const batch = 1000 // of the pairs of a dict; one behind the last is empty
	n := 0
	for i := range out {
		if i%batch == 0 {
			w.op("(")
		}
		w.text(out[i].Name)
		if out[i].op == nil {
			w.op("N")
		} else if err := w.tensor(n, &out[i]); err != nil {
			return nil, err
		} else {
			n++
		}
		if i%batch == batch-1 {
			w.op("u")
		}
	}
	if len(out)%batch == 0 {
		w.op("(")
	}
	w.op("u")
	w.text("checkpoint_version")
	w.op("G\x40\x08\x00\x00\x00\x00\x00\x00") // 3.0
	w.text("iteration")
	w.number(0)
	w.op("u.")
	return w.b, nil
}

// tensor writes a tensor that is the whole of storage n.
func (w *pickler) tensor(n int, o *output) error {
	class, ok := storageClasses[o.DType]
	if !ok {
		return none("tensor %q is of type %s", o.Name, o.DType)
	}
	w.global("torch._utils", "_rebuild_tensor_v2")
	w.op("((")
	w.shared("storage")
	w.global("torch", class)
	w.text(fmt.Sprint(n))
	w.shared("cpu")
	numel := int64(1)
	stride := make([]int64, len(o.Shape))
	for d, size := range slices.Backward(o.Shape) {
		stride[d] = numel
		numel *= size
	}
	if numel == 0 {
		return none("tensor %q is empty, of which torch writes another record", o.Name)
	}
	w.number(numel)
	w.made("t")
	w.op("Q")
	w.number(0)
	w.tuple(o.Shape)
	w.tuple(stride)
	w.op("\x89")
	w.global("collections", "OrderedDict")
	w.op(")")
	w.made("R")
	w.made("t")
	w.made("R")
	return nil
}

func (w *pickler) op(codes string) { w.b = append(w.b, codes...) }

// made writes the code that makes an object, and puts it in the memo.
func (w *pickler) made(code string) {
	w.op(code)
	w.put()
}

func (w *pickler) put() {
	if w.memo < 256 {
		w.b = append(w.b, 'q', byte(w.memo))
	} else {
		w.b = le.AppendUint32(append(w.b, 'r'), w.memo)
	}
	w.memo++
}

// once writes an object that is written once, and taken from the memo from then on.
func (w *pickler) once(key string, write func()) {
	at, ok := w.seen[key]
	switch {
	case !ok:
		w.seen[key] = w.memo
		write()
	case at < 256:
		w.b = append(w.b, 'h', byte(at))
	default:
		w.b = le.AppendUint32(append(w.b, 'j'), at)
	}
}

func (w *pickler) global(module, name string) {
	w.once(module+" "+name, func() { w.made("c" + module + "\n" + name + "\n") })
}

func (w *pickler) shared(s string) { w.once(s, func() { w.text(s) }) }

func (w *pickler) text(s string) {
	w.b = le.AppendUint32(append(w.b, 'X'), uint32(len(s)))
	w.made(s)
}

// number writes one that is not negative.
func (w *pickler) number(n int64) {
	switch {
	case n < 1<<8:
		w.b = append(w.b, 'K', byte(n))
	case n < 1<<16:
		w.b = le.AppendUint16(append(w.b, 'M'), uint16(n))
	case n < 1<<31:
		w.b = le.AppendUint32(append(w.b, 'J'), uint32(n))
	default:
		var digits []byte
		for ; n > 0; n >>= 8 {
			digits = append(digits, byte(n))
		}
		if digits[len(digits)-1] >= 0x80 {
			digits = append(digits, 0)
		}
		w.b = append(append(w.b, 0x8a, byte(len(digits))), digits...)
	}
}

// tuple writes numbers. One of none is not kept in the memo.
func (w *pickler) tuple(of []int64) {
	codes := []string{")", "\x85", "\x86", "\x87"}
	if len(of) >= len(codes) {
		w.op("(")
	}
	for _, n := range of {
		w.number(n)
	}
	switch {
	case len(of) == 0:
		w.op(codes[0])
	case len(of) < len(codes):
		w.made(codes[len(of)])
	default:
		w.made("t")
	}
}
