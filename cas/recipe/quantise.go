package recipe

// Quantise makes blocks of numbers of single precision.
type Quantise struct{}

type quantiser struct{}

func (Quantise) id() byte                 { return opQuantise }
func (Quantise) append(dst []byte) []byte { return dst }
func (Quantise) run(*machine) error       { return newer("quantise") }
func (r *fields) quantise() (Op, error)   { return nil, newer("quantise") }
