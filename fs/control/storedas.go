package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// StoredAs says how a tensor is stored that follows from others, or is stored as its difference from one.
type StoredAs struct {
	// "quantised", "dequantised", "taken", "widened", "rounded", "combined": what is computed of the bases;
	// "difference"
	Op string `json:"op"`
	// the type of elements that is made: "Q4_K"; of what is dequantised, taken or a difference it is that of
	// the base
	Format  string `json:"format,omitempty"`
	Variant int    `json:"variant,omitempty"` // of how a format is rounded to, as in package quant
	// where another part of the base, or another order, is taken: "rope-permuted", "rows 0–7",
	// "columns 0–2047", "rows in another order", "elements in another order", "transposed",
	// "axes in reverse order"
	Order string `json:"order,omitempty"`
	Form  string `json:"form,omitempty"` // how bases are combined: "sum", "mean", "lerp", "task", "average"
	// in the order in which they are combined
	Bases []BaseTensor `json:"bases"`
	// there may be other bases: not all chunks of the tensor were looked at
	MoreBases bool `json:"more_bases,omitempty"`

	Bytes int64 `json:"bytes"` // that the tensor's chunks take in the segments
	// the share of the tensor's bytes that are stored so; the others are stored otherwise
	Share float64 `json:"share"`
	// what does not follow from the bases, as stored, as shares of the bytes of the chunk that was looked at
	Scales      float64 `json:"scales"`
	Corrections float64 `json:"corrections"`
}

// BaseTensor is a tensor that another is stored with the help of.
type BaseTensor struct {
	Path        string  `json:"path"` // "": of a file that was removed, or is not found
	Tensor      string  `json:"tensor,omitempty"`
	Coefficient float64 `json:"coefficient,omitempty"` // that it is combined with
}

func (b *BaseTensor) String() string {
	switch {
	case b.Path == "":
		return unnamed
	case b.Tensor == "":
		return b.Path
	}
	return b.Path + ":" + b.Tensor
}

// unnamed is a base of which no file is found.
const unnamed = "a removed file"

// of is what a tensor is made of, unless it is combined.
func (s *StoredAs) of() string {
	if len(s.Bases) == 0 {
		return unnamed
	}
	of := s.Bases[0].String()
	switch n := len(s.Bases) - 1; {
	case n == 0:
		return of
	case s.MoreBases:
		return "parts of " + of + " and others"
	case n == 1:
		return "parts of " + of + " and 1 other"
	default:
		return fmt.Sprintf("parts of %s and %d others", of, n)
	}
}

// String is what people read.
func (s *StoredAs) String() string {
	of := s.of()
	switch {
	case s.Order == "":
	case strings.HasSuffix(s.Order, "permuted"):
		of = s.Order + " " + of
	default:
		of = s.Order + " of " + of
	}
	out := of
	switch s.Op {
	case "quantised":
		out = s.Format + " of " + of
	case "dequantised":
		out = "dequantised from " + s.Format + " of " + of
	case "widened", "rounded":
		out = s.Op + " from " + of
	case "combined":
		out = Combined(s.Form, s.Bases)
	case "difference":
		out = "difference from " + of
	case "taken":
		switch {
		case s.Order != "" || len(s.Bases) > 1:
		case len(s.Bases) == 0 || s.Bases[0].Path == "":
			out = "numbers of " + of
		default:
			out = "the same as " + of
		}
	}
	if s.Scales >= leastShare {
		out += ", scales " + percent(s.Scales)
	}
	if s.Corrections >= leastShare {
		out += ", corrections " + percent(s.Corrections)
	}
	if s.Share < allOfIt {
		out += ", " + percent(s.Share) + " of it"
	}
	return out
}

const (
	leastShare = 0.0005 // that is told
	allOfIt    = 0.995
)

func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 2, 64) + " %" }

// Combined is how bases are combined, as people write it: of a sum the greater terms first.
func Combined(form string, bases []BaseTensor) string {
	name := func(i int) string { return bases[i].String() }
	switch {
	case form == "mean":
		names := make([]string, len(bases))
		for i := range bases {
			names[i] = name(i)
		}
		return fmt.Sprintf("(%s) / %s", strings.Join(names, " + "), number(bases[0].Coefficient))
	case form == "lerp" && len(bases) == 2:
		return fmt.Sprintf("%s %s(%s − %s)", name(0), term(bases[1].Coefficient), name(1), name(0))
	case form == "task" && len(bases) == 3:
		return fmt.Sprintf("%s %s(%s − %s)", name(0), term(bases[1].Coefficient), name(1), name(2))
	}
	out := ""
	bases = slices.Clone(bases)
	slices.SortStableFunc(bases, func(a, b BaseTensor) int {
		return cmp.Compare(b.Coefficient, a.Coefficient)
	})
	for i := range bases {
		out += " " + term(bases[i].Coefficient) + name(i)
	}
	if rest, ok := strings.CutPrefix(out, " + "); ok {
		return rest
	}
	return strings.Replace(out, " − ", "−", 1)
}

// term is what stands before something that is added so many times.
func term(c float64) string {
	sign := "+ "
	if c < 0 {
		sign = "− "
	}
	if math.Abs(c) == 1 {
		return sign
	}
	return sign + number(math.Abs(c)) + " "
}

// number is one of single precision, in as many digits as people compare; Bases have all of it.
func number(x float64) string { return strconv.FormatFloat(x, 'g', 4, 32) }

// A file is reproduced from others if at least LeastFollows of its tensors' bytes follow from them, with no
// more than MostLeft of these stored all the same.
const (
	LeastFollows = 0.9
	MostLeft     = 0.15
)

// Reproduction says that nearly all of a file's tensors follow from those of others.
type Reproduction struct {
	Path string `json:"path"`
	// "quantised", "dequantised", "merged", "rounded", or "same weights": numbers that were taken or
	// widened, so that either follows from the other
	Kind string `json:"kind"`
	What string `json:"what"` // "Q4_K, Q6_K of models/x/model.safetensors"
	// the files, or folders of sharded models, that it follows from
	From []BaseTensor `json:"from"`

	TensorBytes int64   `json:"tensor_bytes"`
	Bytes       int64   `json:"follow_bytes"` // of these: they follow
	Share       float64 `json:"share"`        // Bytes of TensorBytes
	// what is stored of Bytes all the same: scales, corrections, coefficients, names of bases
	StoredBytes int64 `json:"stored_bytes"`
	FreeBits    int64 `json:"free_bits"` // as many decide which of all such files it is
	// what of it another parent, that is declared, contradicts; "": nothing
	Contradicts string `json:"contradicts,omitempty"`
}

// Verified is the answer of Tensors.Verify.
type Verified struct {
	A       string `json:"a"`
	B       string `json:"b"`
	Follows bool   `json:"follows"` // nearly all of A follows from B, as of a Reproduction

	Tensors     int     `json:"tensors"` // of A
	TensorBytes int64   `json:"tensor_bytes"`
	Bytes       int64   `json:"follow_bytes"`
	Share       float64 `json:"share"`        // Bytes of TensorBytes
	StoredBytes int64   `json:"stored_bytes"` // what a store would store of Bytes all the same
	FreeBits    int64   `json:"free_bits"`
	// tensors of which not even nine tenths follow, the largest first; at most 16 are named. Those of less
	// than 4 KiB, for which no recipe is looked, are not among them
	Others []TensorRef `json:"others"`
	More   int         `json:"more_others,omitempty"`
}
