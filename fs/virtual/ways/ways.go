// Package ways says what the paths below .ckptfs/make mean. A path there says first what is made, which is
// its way, and then of what: a path of the tree.
//
//	make/README                                      what there is
//	make/cast/TYPE/PATH                              PATH in another type: bf16, f16 or f32
//	make/shard/tp=K/rank-R/PATH                      what rank R of K has of PATH, for tensor parallelism
//	make/consolidated/FOLDER/model.safetensors       the tensors of a step that ranks wrote in parts
//	make/soup/mean/PATH/+/PATH/soup.safetensors      the mean of 2 to 16 files, in this order
//	make/soup/sum/W/PATH/+/W/PATH/soup.safetensors   the sum of 2 to 16 files, each times its W
//	make/soup/slerp/T/PATH/+/PATH/soup.safetensors   T of the way from one file to another, spherically
//	make/merge/SCALE/ADAPTER/+/PATH                  PATH with the adapter in the file ADAPTER merged into it
//	make/gguf/TYPE/FOLDER.gguf                       the model in FOLDER as llama.cpp converts it
//	make/sharded_state/tp=K/FOLDER/                  the model in FOLDER as K ranks of vLLM load it
//	make/hf/FOLDER/model.safetensors                 the checkpoint of Megatron-LM in FOLDER for transformers
//	make/megatron/tp=K/FOLDER/                       the model in FOLDER as K ranks of Megatron-LM load it
//	make/megatron/tp=K,vocab=N/FOLDER/               so, of a vocabulary padded to a multiple of N
package ways

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"ckptfs/formats"
	"ckptfs/fs/plans"
)

// Names that there are.
const (
	WhySuffix  = ".why"  // ends the name of a text that says why a name is not there
	Next       = "+"     // leads to the next of several files
	GGUFSuffix = ".gguf" // ends the name of what is made of a folder below gguf
)

// Types are the names of the types that are cast to.
var Types = map[string]formats.DType{"bf16": formats.BF16, "f16": formats.F16, "f32": formats.F32}

// Weight reads a weight: a number as a person writes it.
func Weight(name string) (float64, bool) {
	w, err := strconv.ParseFloat(name, 64)
	odd := func(r rune) bool { return !strings.ContainsRune("0123456789.-+e", r) }
	return w, err == nil && strings.IndexFunc(name, odd) < 0 && len(name) <= 32
}

// Numbered is the number that a name ends in, after prefix, if it is written as Go prints it.
func Numbered(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// Of is the path of the tree that a path below .ckptfs/make shows, as far as it names one.
func Of(p string) string {
	parts := strings.Split(p, "/")
	ways := map[string]int{"cast": 2, "consolidated": 1, "gguf": 2, "hf": 1, "megatron": 2, "merge": 2,
		"shard": 3, "sharded_state": 2, "mean": 2, "slerp": 3, "sum": 3}
	skip := ways[parts[0]]
	if parts[0] == "soup" && len(parts) > 1 {
		skip = ways[parts[1]]
	}
	for i := len(parts) - 1; i > 0; i-- {
		if parts[i] == Next {
			if skip += i - 1; parts[0] == "merge" || parts[0] == "soup" && parts[1] == "slerp" {
				skip = i + 1
			}
			break
		}
	}
	if skip == 0 || len(parts) <= skip {
		return ""
	}
	of := strings.TrimSuffix(path.Join(parts[skip:]...), WhySuffix)
	switch parts[0] {
	case "gguf":
		of = strings.TrimSuffix(of, GGUFSuffix)
	case "megatron":
		of = megatronOf(of)
	}
	return of
}

// StatePart is the name of a file of vLLM's sharded_state.
var StatePart = regexp.MustCompile(`^model-rank-(0|[1-9][0-9]{0,3})-part-(0|[1-9][0-9]{0,3})\.safetensors$`)

// MaxStateParts is how many parts a rank has that have names.
const MaxStateParts = 10_000

// StateName is that of a part of a rank.
func StateName(rank, part int) string {
	return fmt.Sprintf("model-rank-%d-part-%d.safetensors", rank, part)
}

// Operand is a file that a path has, and how it is weighed.
type Operand struct{ Weight, Path string }

// And is what is said of several files with one more; of none that is "".
func And(before, weight, path string) string { return before + weight + "\x00" + path + "\x00" }

// Operands are the files of which And has said it.
func Operands(said string) (out []Operand) {
	parts := strings.Split(said, "\x00")
	for i := 0; i+1 < len(parts); i += 2 {
		out = append(out, Operand{parts[i], parts[i+1]})
	}
	return out
}

// OneName is the name of a file that has all tensors of a folder.
const OneName = "model.safetensors"

// MaxParts bounds of how many files of a folder one is made.
const MaxParts = 512

// CountParts is why a model is not of so many files of weights.
func CountParts(weights []string) error {
	if n := len(weights); n == 0 || n > MaxParts {
		return fmt.Errorf("%w: of %d files called model….safetensors; it takes 1 to %d", plans.ErrNone, n, MaxParts)
	}
	return nil
}

var parts = regexp.MustCompile(`-[0-9]+-of-[0-9]+\.safetensors$`)

// IsPart reports whether a file of this name has a part of a model's tensors.
func IsPart(name string) bool { return parts.MatchString(name) }
