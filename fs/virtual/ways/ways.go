// Package ways says what the paths below .ckptfs/make mean. A path there says first what is made, which is
// its way, and then of what: a path of the tree.
//
//	make/README                                      what there is
//	make/cast/TYPE/PATH                              PATH in another type: bf16, f16 or f32
//	make/shard/tp=K/rank-R/PATH                      what rank R of K has of PATH, for tensor parallelism
//	make/consolidated/FOLDER/model.safetensors       the tensors of a step that ranks wrote in parts
//	make/soup/mean/PATH/+/PATH/soup.safetensors      the mean of 2 to 16 files, in this order
//	make/soup/sum/W/PATH/+/W/PATH/soup.safetensors   the sum of 2 to 16 files, each times its W
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
		"shard": 3, "sharded_state": 2, "mean": 2, "sum": 3}
	skip := ways[parts[0]]
	if parts[0] == "soup" && len(parts) > 1 {
		skip = ways[parts[1]]
	}
	for i := len(parts) - 1; i > 0; i-- {
		if parts[i] == Next {
			if skip += i - 1; parts[0] == "merge" {
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

// What Megatron-LM loads by --load with --ckpt-format torch: a file that says which of the checkpoints in a
// folder is meant, and the folder of this one, with one of each rank.
//
//	latest_checkpointed_iteration.txt      "release"
//	release/mp_rank_00/model_optim_rng.pt
const (
	MegatronLatest  = "latest_checkpointed_iteration.txt"
	MegatronRelease = "release"
)

// MegatronRank is the name of the folder of a rank.
func MegatronRank(rank int) string { return fmt.Sprintf("mp_rank_%02d", rank) }

// MegatronRanks reads tp=K or tp=K,vocab=N.
func MegatronRanks(name string) (ranks, multiple int, ok bool) {
	name, padded, is := strings.Cut(name, ",")
	multiple = 1
	if is {
		if multiple, ok = Numbered(padded, "vocab="); !ok || multiple < 2 || multiple > plans.MaxVocab {
			return 0, 0, false
		}
	}
	ranks, ok = Numbered(name, "tp=")
	return ranks, multiple, ok && ranks > 0 && ranks <= plans.MaxRanks
}

// megatronOf is the path of the model that a path below megatron/tp=K shows.
func megatronOf(p string) string {
	for _, name := range []string{plans.MegatronFile, "mp_rank_", MegatronRelease, MegatronLatest} {
		if dir, last := path.Split(p); last == name || name == "mp_rank_" && strings.HasPrefix(last, name) {
			p = strings.TrimSuffix(dir, "/")
		}
	}
	return p
}

// StatePart is the name of a file of vLLM's sharded_state.
var StatePart = regexp.MustCompile(`^model-rank-(0|[1-9][0-9]{0,3})-part-(0|[1-9][0-9]{0,3})\.safetensors$`)

// MaxStateParts is how many parts a rank has that have names.
const MaxStateParts = 10_000

// StateName is that of a part of a rank.
func StateName(rank, part int) string {
	return fmt.Sprintf("model-rank-%d-part-%d.safetensors", rank, part)
}
