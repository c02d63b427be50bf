package quant

// Format is a quantised format. The numbers are part of stored formats: they never change.
type Format uint8

// The formats: ggml's blocks, which share scales, and numbers of eight bits, of which a tensor's rows,
// columns or parts share a scale that lies elsewhere.
const (
	Q8_0   Format = 1
	Q4_0   Format = 2
	Q4_1   Format = 3
	Q5_0   Format = 4
	Q5_1   Format = 5
	Q2_K   Format = 6
	Q3_K   Format = 7
	Q4_K   Format = 8
	Q5_K   Format = 9
	Q6_K   Format = 10
	IQ4_NL Format = 11
	IQ4_XS Format = 12
	MXFP4  Format = 13
	F8E4M3 Format = 14
	F8E5M2 Format = 15

	NF4        Format = 16 // of bitsandbytes
	FP4        Format = 17
	Int8       Format = 18 // signed
	UInt8      Format = 19 // 128 more than they are
	Int4       Format = 20 // 8 more than they are
	NVFP4      Format = 21 // of compressed-tensors: pairs of elements that lie beside each other
	MXFP4Pairs Format = 22
	ScalesOf   Format = 23 // the scales of such
	AWQ        Format = 24 // of AutoAWQ: words of eight outputs

	formats = 25
)

// A shape is how a format lies in memory.
type shape struct {
	name         string
	elems, bytes int  // of a block
	sub          int  // how many elements share a scale, or are corrected or not together
	bits         uint // of a code
	variants     uint8
}

var shapes = [formats]shape{
	Q8_0:   {"Q8_0", 32, 34, 32, 8, 3},
	Q4_0:   {"Q4_0", 32, 18, 32, 4, 3},
	Q4_1:   {"Q4_1", 32, 20, 32, 4, 3},
	Q5_0:   {"Q5_0", 32, 22, 32, 5, 3},
	Q5_1:   {"Q5_1", 32, 24, 32, 5, 3},
	Q2_K:   {"Q2_K", 256, 84, 16, 2, 1},
	Q3_K:   {"Q3_K", 256, 110, 16, 3, 1},
	Q4_K:   {"Q4_K", 256, 144, 32, 4, 1},
	Q5_K:   {"Q5_K", 256, 176, 32, 5, 1},
	Q6_K:   {"Q6_K", 256, 210, 16, 6, 1},
	IQ4_NL: {"IQ4_NL", 32, 18, 32, 4, 1},
	IQ4_XS: {"IQ4_XS", 256, 136, 32, 4, 1},
	MXFP4:  {"MXFP4", 32, 17, 32, 4, 1},
	F8E4M3: {"F8_E4M3", 1, 1, 64, 8, 5},
	F8E5M2: {"F8_E5M2", 1, 1, 64, 8, 5},

	NF4:        {"NF4", 2, 1, 64, 4, 1},
	FP4:        {"FP4", 2, 1, 64, 4, 2},
	Int8:       {"INT8", 1, 1, 64, 8, 6},
	UInt8:      {"UINT8", 1, 1, 64, 8, 6},
	Int4:       {"INT4", 2, 1, 64, 4, 6},
	NVFP4:      {"NVFP4", 2, 1, 64, 4, 5},
	MXFP4Pairs: {"MXFP4 in pairs", 2, 1, 64, 4, 5},
	ScalesOf:   {"scales", 1, 1, 1, 8, 1}, // a block is a group, see Quantiser.Block
	AWQ:        {"AWQ", 8, 4, 64, 4, 3},
}

// Known reports whether f is a format of this version.
func (f Format) Known() bool { return f > 0 && f < formats }

// ByName is the format that a type of elements is called. Those that are no types of elements, but lie in
// bytes, have none.
func ByName(dtype string) (Format, bool) {
	for f, s := range shapes[:NF4] {
		if f > 0 && s.name == dtype {
			return Format(f), true
		}
	}
	return 0, false
}

func (f Format) String() string {
	if !f.Known() {
		return "unknown"
	}
	return shapes[f].name
}

// Block is how many elements a block has, and in how many bytes; 0, 0 of a format that is not known. Those of
// ScalesOf are a Quantiser's.
func (f Format) Block() (elems, bytes int) {
	if !f.Known() {
		return 0, 0
	}
	return shapes[f].elems, shapes[f].bytes
}

// Variants is how many variants a format has.
func (f Format) Variants() int {
	if !f.Known() {
		return 0
	}
	return int(shapes[f].variants)
}

// FP8 reports whether a format is of eight bits of which some are the exponent.
func (f Format) FP8() bool { return f == F8E4M3 || f == F8E5M2 }

// Apart reports whether a format has scales that lie elsewhere.
func (f Format) Apart() bool { return f >= F8E4M3 }

// Ruled reports whether a format has scales that follow by a Rule.
func (f Format) Ruled() bool { return f >= NF4 && f != AWQ }

// The variants of Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1: codes follow from the scale before it is rounded, with
// each operation rounded or with a product that is added unrounded; or from the scale that is stored.
const (
	Plain  = 0
	Fused  = 1
	Stored = 2
)

// The variants of FP8, of whole numbers, and of NVFP4 and MXFP4Pairs: what is rounded, of an element x and
// its scale s.
const (
	Divide     = 0 // x/s
	DivideBF16 = 1 // x/s, rounded to bfloat16
	Times      = 2 // x * (1/s)
	TimesBF16  = 3 // x * (1/s), both rounded to bfloat16
	DivideF16  = 4 // x/s, rounded to binary16
	Times127   = 5 // x * (127/s); of whole numbers
)
