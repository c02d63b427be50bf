package recipe

import (
	"ckptfs/cas/half"
)

// Widen makes single precision of floats of any type.
type Widen struct{}

func (Widen) id() byte                 { return opWiden }
func (Widen) append(dst []byte) []byte { return dst }

// Round makes half precision of single precision.
type Round struct{ To half.Type }

func (Round) id() byte                   { return opRound }
func (r Round) append(dst []byte) []byte { return append(dst, byte(r.To)) }

func (r *fields) round() (Op, error) {
	op := Round{To: half.Type(r.byte())}
	if !r.bad && op.To != half.BF16 && op.To != half.F16 {
		return nil, newer("rounding to type %d", op.To)
	}
	return op, nil
}
