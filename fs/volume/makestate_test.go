package volume

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats/safetensors"
	"ckptfs/fs/tree"
)

// stateModel writes the folder of a llama of one layer, of 4 numbers and 2 heads.
func (r *rig) stateModel(dir string) {
	r.t.Helper()
	r.mkdir(dir)
	const layer = "model.layers.0."
	var entries []safetensors.Entry
	size := int64(0)
	for name, shape := range map[string][]int64{
		"model.embed_tokens.weight": {64, 4}, "lm_head.weight": {64, 4}, "model.norm.weight": {4},
		layer + "self_attn.q_proj.weight": {4, 4}, layer + "self_attn.k_proj.weight": {4, 4},
		layer + "self_attn.v_proj.weight": {4, 4}, layer + "self_attn.o_proj.weight": {4, 4},
		layer + "mlp.gate_proj.weight": {6, 4}, layer + "mlp.up_proj.weight": {6, 4},
		layer + "mlp.down_proj.weight": {4, 6}, layer + "input_layernorm.weight": {4},
		layer + "post_attention_layernorm.weight": {4},
	} {
		entries = append(entries, safetensors.Entry{Name: name, DType: "BF16", Shape: shape})
		size += entries[len(entries)-1].NumBytes()
	}
	safetensors.SortSaved(entries)
	p, err := safetensors.AppendSaved(nil, entries, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(dir+"/model.safetensors", append(p, random(int(size), 1)...))
	r.write(dir+"/config.json", []byte(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
		"dtype": "bfloat16", "vocab_size": 64, "hidden_size": 4, "intermediate_size": 6,
		"num_hidden_layers": 1, "num_attention_heads": 2}`))
}

// The folder of a model has a file for each rank instead of its weights, and the rest as it is. Who may not
// read one of the files that these are made of sees none of them. A change of one is seen.
func TestMakeState(t *testing.T) {
	r := newRig(t)
	r.stateModel("m")
	r.write("m/pytorch_model.bin", []byte("more weights"))
	r.write("m/tokenizer.json", []byte("{}"))
	r.write("notes.txt", []byte("notes"))
	r.packOut("m/model.safetensors")
	const made = ".ckptfs/make/sharded_state/tp=2/m"
	ranks := []string{"model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors"}
	for dir, want := range map[string][]string{
		made:                              append([]string{"config.json", "tokenizer.json"}, ranks...),
		".ckptfs/make/sharded_state/tp=2": {"m", "notes.txt"},
	} {
		got := r.listing(dir)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
	first, second := r.read(made+"/"+ranks[0]), r.read(made+"/"+ranks[1])
	if len(first) != len(second) || string(first) == string(second) {
		t.Errorf("%d and %d bytes", len(first), len(second))
	}
	link := r.find(made + "/tokenizer.json")
	defer r.forget(link)
	if to, err := r.Readlink(link); to != "../../../../../m/tokenizer.json" || err != nil {
		t.Errorf("tokenizer.json leads to %q, %v", to, err)
	}
	for name, why := range map[string]string{
		"tp=2/m/model-rank-0-part-1.safetensors.why": "rank 0 of 2 has the parts 0 to 0",
		"tp=2/m/model-rank-2-part-0.safetensors.why": "no rank 2 of 2",
		"tp=4/m/model-rank-0-part-0.safetensors.why": "heads are not cut in 4",
		"tp=2/model-rank-0-part-0.safetensors.why":   "of 0 files",
		"tp=0.why":                "none of tp=1 to tp=1024",
		"tp=2/m/config.json.why":  "a link to itself",
		"tp=2/m/model-rank-0.why": "no such file",
	} {
		if got := r.read(".ckptfs/make/sharded_state/" + name); !strings.Contains(string(got), why) {
			t.Errorf("%s: %q", name, got)
		}
	}
	n := r.find(made + "/" + ranks[0])
	defer r.forget(n)
	h, err := r.Open(n, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer r.release(h)
	r.write("m/other.safetensors", []byte("no"))
	if r.exists(made + "/" + ranks[0]) {
		t.Error("it is there beside weights that are not known")
	}
	r.unlink("m/other.safetensors")
	if got := r.read(made + "/" + ranks[0]); string(got) != string(first) {
		t.Error("it is another file afterwards")
	}
	for _, name := range []string{"hf_quant_config.json", "modules.json"} {
		r.write("m/"+name, []byte("{}"))
		if why := string(r.read(made + "/" + ranks[0] + ".why")); !strings.Contains(why, name) {
			t.Errorf("beside %s: %s", name, why)
		}
		r.unlink("m/" + name)
	}
	r.stateModel("m")
	r.write("m/config.json", []byte(`{}`))
	if r.exists(made + "/" + ranks[0]) {
		t.Error("it is there of a config that says nothing")
	}
	_, err = h.Read(make([]byte, 100), 0)
	wantErr(t, "a read of what was", err, unix.ESTALE)
}

// Who may not read one of the files that a rank's is made of, or not list their folder, finds none of it: nor
// by a link to weights that are elsewhere, nor in the text that says why.
func TestMakeStateVisible(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be other users")
	}
	r := newRig(t)
	for _, dir := range []string{"m", "linked"} {
		r.stateModel(dir)
	}
	r.mkdir("secret")
	r.rename("linked/model.safetensors", "secret/weights.safetensors")
	r.symlink("../secret/weights.safetensors", "linked/model.safetensors")
	set := func(p string, mode uint32) { r.setattr(p, &tree.SetAttr{Mode: &mode}) }
	p := person{"stranger", 3000, []uint32{3000}}
	v := visitor{r, p, p.caller(t)}
	const made = ".ckptfs/make/sharded_state/tp=2/"
	ranks := func(dir string) (n int) {
		all, _ := v.list(made + dir)
		for _, e := range all {
			if strings.HasPrefix(e.Name, "model-") {
				n++
			}
		}
		name := made + dir + "/model-rank-1-part-0.safetensors"
		if got, err := v.get(name); (n > 0) != (err == nil && got != "") {
			t.Errorf("%s: %d files are listed, and %d bytes read, %v", dir, n, len(got), err)
		}
		why, _ := v.get(name + ".why")
		if n == 0 && (strings.Contains(why, "heads") || strings.Contains(why, "bytes")) {
			t.Errorf("%s: %s", dir, why)
		}
		return n
	}
	for _, dir := range []string{"", "m", "linked", "secret"} {
		set(dir, 0o755)
	}
	for _, f := range []string{"m/model.safetensors", "m/config.json", "linked/config.json", "secret/weights.safetensors"} {
		set(f, 0o644)
	}
	for _, x := range []struct {
		p    string
		shut uint32
		open uint32
		dir  string
	}{
		{"m/model.safetensors", 0o600, 0o644, "m"}, {"m/config.json", 0o600, 0o644, "m"}, {"m", 0o700, 0o755, "m"},
		{"m", 0o711, 0o755, "m"}, {"secret/weights.safetensors", 0o600, 0o644, "linked"},
		{"secret", 0o700, 0o755, "linked"}, {"linked", 0o711, 0o755, "linked"},
	} {
		if n := ranks(x.dir); n != 2 {
			t.Errorf("%s: %d files of all that may be read", x.dir, n)
		}
		set(x.p, x.shut)
		if n := ranks(x.dir); n != 0 {
			t.Errorf("%s is %o, and %d files are there", x.p, x.shut, n)
		}
		set(x.p, x.open)
	}
}

// A run's step has views of what else it saves. They are no files of weights.
func TestMakeStateOfStep(t *testing.T) {
	r := newRig(t)
	r.stateModel("runs/a/checkpoint-5")
	r.write("runs/a/checkpoint-5/optimizer.pt", fixture(t, "flat.pt"))
	if !slices.Contains(r.listing("runs/a/checkpoint-5"), "optimizer.safetensors") {
		t.Fatal("there is no view")
	}
	got := r.listing(".ckptfs/make/sharded_state/tp=2/runs/a/checkpoint-5")
	slices.Sort(got)
	if want := []string{"config.json", "model-rank-0-part-0.safetensors",
		"model-rank-1-part-0.safetensors"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// A name that is none of a way's has a reason.
func TestMakeWays(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	r.write("d/m.safetensors", filled(t, 10, float1))
	for name, why := range map[string]string{
		"nothing.why": "nothing is none of cast, consolidated", "cast/bf17.why": "bf16, f16 and f32",
		"gguf/q8_0.why": "bf16, f16 and f32", "shard/tp=0.why": "tp=2 to", "shard/tp=2/rank-2.why": "rank-0 to rank-1",
		"soup/median.why": "mean, slerp and sum", "soup/slerp/x.why": "numbers", "soup/sum/nan.why": "numbers", "soup/sum/1e400.why": "numbers",
		"merge/x.why": "numbers", "cast.why": "cast is there", "cast/bf16/d.why": "d is there.\n",
		"hf/d.why": "d is there. model.safetensors in it cannot be made: ", "cast/bf16/e.why": "no such file",
		"sharded_state/tp=2/d.why":                             "d is there. model-rank-0-part-0.safetensors in it cannot be made: ",
		"soup/slerp/1/d/m.safetensors/+.why":                   "+ is there",
		"soup/slerp/1/d/m.safetensors/+/d/m.safetensors/+.why": "+ cannot be made: of more than 2 files",
	} {
		if got := r.read(".ckptfs/make/" + name); !strings.Contains(string(got), why) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range []string{"cast/bf17", "soup/sum/1e400", "shard/tp=2/rank-2"} {
		if r.exists(".ckptfs/make/" + name) {
			t.Errorf("%s is there", name)
		}
	}
}
