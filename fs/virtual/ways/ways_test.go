package ways

import (
	"errors"
	"slices"
	"testing"

	"ckptfs/fs/plans"
)

// A path leads to what it shows.
func TestOf(t *testing.T) {
	for p, want := range map[string]string{
		"":                               "",
		"cast":                           "",
		"cast/bf16":                      "",
		"cast/bf16/m/a.safetensors":      "m/a.safetensors",
		"cast/bf16/m/a.safetensors.why":  "m/a.safetensors",
		"shard/tp=2/rank-1/m":            "m",
		"gguf/f16/models/m.gguf":         "models/m",
		"soup/sum/1/a/x/+/2/b/y":         "b/y",
		"soup/slerp/0.5/a/x/+/b/y":       "b/y",
		"soup/slerp/0.5/a/x":             "a/x",
		"merge/1/adapter/+/m/a":          "m/a",
		"hf/m/iter_1/model.safetensors":  "m/iter_1/model.safetensors",
		"megatron/tp=2":                  "",
		"megatron/tp=2/m":                "m",
		"megatron/tp=2/m/config.json":    "m/config.json",
		"megatron/tp=2/a/m/release":      "a/m",
		"megatron/tp=2/release":          "",
		"megatron/tp=2/m/release/x":      "m/release/x",
		"megatron/tp=2/m/mp_rank_00.why": "m",
		"megatron/tp=2,vocab=8/a/m/release/mp_rank_01/model_optim_rng.pt": "a/m",
		"megatron/tp=2/a/m/latest_checkpointed_iteration.txt":             "a/m",
	} {
		if got := Of(p); got != want {
			t.Errorf("%s shows %q, want %q", p, got, want)
		}
	}
}

// Names of ways with numbers are those that are printed so.
func TestMegatronRanks(t *testing.T) {
	for name, want := range map[string][2]int{
		"tp=1": {1, 1}, "tp=1024": {1024, 1}, "tp=4,vocab=128": {4, 128}, "tp=0": {}, "tp=02": {},
		"tp=1025": {}, "tp=": {},
		"tp=2,": {}, "tp=2,vocab=1": {}, "tp=2,vocab=0128": {}, "tp=2,vocab=99999999999": {},
		"tp=2,pp=2": {}, "tp=2,vocab=8,": {},
	} {
		ranks, multiple, ok := MegatronRanks(name)
		if ok != (want[0] > 0) || ok && (ranks != want[0] || multiple != want[1]) {
			t.Errorf("%s: %d, %d, %t", name, ranks, multiple, ok)
		}
	}
}

// The ranks of a group are in the order of their numbers, and all there.
func TestMegatronGroup(t *testing.T) {
	var many, shuffled []string
	for r := range 101 {
		many = append(many, MegatronRank(r))
		shuffled = append([]string{MegatronRank(r)}, shuffled...)
	}
	if got, err := MegatronGroup(shuffled); err != nil || !slices.Equal(got, many) {
		t.Errorf("%v, %v", got, err)
	}
	for _, names := range [][]string{
		nil, make([]string, MaxParts+1), {"mp_rank_01"}, {"mp_rank_00", "mp_rank_02"},
		{"mp_rank_00", "mp_rank_0"}, {"mp_rank_00_000"}, {"mp_rank_00", "mp_rank_01_000"},
	} {
		if got, err := MegatronGroup(names); !errors.Is(err, plans.ErrNone) {
			t.Errorf("%v: %v, %v", names, got, err)
		}
	}
}
