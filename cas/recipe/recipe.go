// Package recipe computes chunks from the numbers of others: quantised tensors from those that they were
// quantised from, slices and permutations from the tensor that they are of.
//
// A record of codec.Recipe names its bases, 1 to 40 (package segment). What follows them is a program, and
// what the program leaves to be told:
//
//	0  1  how many ops: 1 to 8
//	1     the ops, each a byte that says which, and its fields
//	      streams: for each that the ops ask for, in their order
//
// Fields are uvarints (encoding/binary); those that may be negative are zigzag-coded. A stream is
//
//	   uvarint, its length once decoded; where it is 0 nothing follows
//	1  codec, one that needs no base
//	   uvarint, its length as stored
//	   the bytes as that codec stores them
//
// A program is a pipe. Its value begins as a vector of numbers, which take makes of the bases, and ends as
// the chunk, numbers of single precision as their 4 bytes each, little-endian. No value is longer than
// MaxValue bytes. There are no loops but those of take, and no jumps; lengths are summed before memory is
// taken. An op, a type or a format that is not known is that of a newer version: cas.ErrNewer.
//
//	1  take      type; how many groups g, 1 to 1024; of each of them: how often it is repeated, how many
//	             stretches, 1 to 8, and of each of these: first element, length, step (signed).
//	             The bases lie one behind the other, as one array of elements of that type. Behind them lies a
//	             stream of further elements, and then as many zeros as are asked for. For each group, as often
//	             as it is repeated, come its stretches, one behind the other, each moved on by its step from
//	             time to time.
//	2  widen     –. Numbers of any type of float become single precision, which is exact.
//	3  round     type (bfloat16 or binary16). Numbers of single precision are rounded as package half does.
//	4  quantise  format and variant of package quant, head, and for formats with scales apart their geometry:
//	             type of the scales, rows and columns of the tensor, and of a group (quant.Scales), and the
//	             first element's place; but of FP8 the rule of the scales (quant.Rule): kind, levels and
//	             global scale, of 4 bytes each. Numbers of single precision become blocks. Where the chunk's
//	             edges cut blocks, their parts lie in a stream: first the head bytes ahead of the whole
//	             blocks, then those behind them. Other streams: see quant.Streams. It is the last op.
//	5  dequantise  format of package quant, and of FP8 type, rows and columns of the
//	             tensor, and of a group (quant.Scales), the first element's place, and how many elements.
//	             Bytes become the numbers of single precision that they stand for (quant.Dequantise): blocks,
//	             or the codes of so many elements and behind them the scales of the groups that these touch.
//	6  combine   form, type, how many vectors: 1 to 8, and for each of them a coefficient, 4 bytes. The
//	             vectors, of single precision, lie one behind the other. They become one of that type
//	             (Form; averages are of a vector and those that come after it); what is no number is
//	             0x7fc00000 before that. It is the last op. A stream for each byte of its elements says by how
//	             many places in the order of all numbers of the type the chunk's differ: zigzag-coded, the
//	             lowest byte first; all are empty where nothing does.
//	7  transpose rows, columns, how many elements are skipped, and how many remain. The value, elements as
//	             they were taken or rounded, is matrices of so many rows and columns, one behind the other.
//	             Each becomes its transpose, column after column. Of all their elements then, so many are
//	             skipped, and so many remain.
//	8  aside     as take. What it takes, of the bases and of zeros behind them, is put aside, and the value
//	             stays what it is. Of quantise's formats AWQ needs it: the scales of the groups that its
//	             elements touch, and behind them their zeros (quant.Quantiser).
//
// # Determinism
//
// What is computed is the same on all processors: see package quant.
package recipe

import (
	"fmt"

	"ckptfs/cas"
)

// Bounds of a program, besides those of segment.MaxRecipeBases and segment.MaxRecipe.
const (
	MaxOps       = 8
	MaxGroups    = 1 << 10
	MaxStretches = 8
	MaxValue     = 8 << 20 // bytes of a value
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("recipe: %s: %w", fmt.Sprintf(format, args...), cas.ErrCorrupt)
}

func newer(format string, args ...any) error {
	return fmt.Errorf("recipe: %s: %w", fmt.Sprintf(format, args...), cas.ErrNewer)
}
