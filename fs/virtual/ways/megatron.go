package ways

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"ckptfs/formats/dcp"
	"ckptfs/fs/plans"
)

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

// MegatronConfigs are where the config.json of a checkpoint is looked for, from its folder on.
var MegatronConfigs = []string{"config.json", "../config.json", "../huggingface/config.json"}

// MegatronCommon is the file of a torch_dist that has what is no tensor.
const MegatronCommon = "common.pt"

// MegatronHidden are the files of a torch_dist beside those of tensors.
var MegatronHidden = []string{dcp.Metadata, MegatronCommon, "metadata.json"}

// IsMegatronRelease reports whether a name is of what is made of a model. A folder that has one of its own is
// no model's.
func IsMegatronRelease(name string) bool { return name == MegatronLatest || name == MegatronRelease }

// IsMegatron reports whether a folder with such a name looks like a checkpoint.
func IsMegatron(name string) bool { return name == dcp.Metadata || IsMegatronRank(name) }

// IsMegatronCommon reports whether it is that of MegatronCommon.
func IsMegatronCommon(name string) bool { return name == MegatronCommon }

// megatronRank is the name of the folder of a rank, with what it has of pipelines and experts.
var megatronRank = regexp.MustCompile(`^mp_rank_[0-9]+(_.*)?$`)

// IsMegatronRank reports whether a folder of this name is a rank's.
func IsMegatronRank(name string) bool { return megatronRank.MatchString(name) }

// MegatronGroup are the names of the folders of ranks in the order of these. The error is plans.ErrNone where
// they are not those of one tensor-parallel group, of 1 to MaxParts.
func MegatronGroup(names []string) (inOrder []string, err error) {
	if len(names) == 0 || len(names) > MaxParts {
		return nil, fmt.Errorf("%w: of %d ranks; it takes 1 to %d", plans.ErrNone, len(names), MaxParts)
	}
	for _, name := range names {
		if m := megatronRank.FindStringSubmatch(name); m == nil || m[1] != "" {
			return nil, fmt.Errorf("%w: %s is of pipelines or experts", plans.ErrNone, name)
		}
	}
	for r := range names {
		inOrder = append(inOrder, MegatronRank(r))
		if !slices.Contains(names, MegatronRank(r)) {
			return nil, fmt.Errorf("%w: %s is not among the %d ranks that are there", plans.ErrNone, MegatronRank(r),
				len(names))
		}
	}
	return inOrder, nil
}
