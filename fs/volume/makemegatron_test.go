package volume

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// megatronSaved writes the checkpoint dir of two ranks, as they are made of the model in the folder m, and
// the model's config.json above it.
func (r *rig) megatronSaved(dir string) {
	r.t.Helper()
	r.mkdir(dir)
	r.mkdir(dir + "/release")
	for _, rank := range []string{"mp_rank_00", "mp_rank_01"} {
		at := "release/" + rank
		r.mkdir(dir + "/" + at)
		at += "/model_optim_rng.pt"
		r.write(dir+"/"+at, r.read(".ckptfs/make/megatron/tp=2/m/"+at))
	}
	r.write(dir+"/config.json", r.read("m/config.json"))
}

// The folder of a model has those of its ranks instead of its weights, and the rest as it is. A change is
// seen.
func TestMakeMegatron(t *testing.T) {
	r := newRig(t)
	r.stateModel("m")
	r.write("m/pytorch_model.bin", []byte("more weights"))
	r.write("m/tokenizer.json", []byte("{}"))
	r.write("m/modules.json", []byte("[]"))
	r.packOut("m/model.safetensors")
	const made = ".ckptfs/make/megatron/tp=2/m"
	for dir, want := range map[string][]string{
		made:                           {"config.json", "latest_checkpointed_iteration.txt", "modules.json", "release", "tokenizer.json"},
		made + "/release":              {"mp_rank_00", "mp_rank_01"},
		made + "/release/mp_rank_01":   {"model_optim_rng.pt"},
		".ckptfs/make/megatron/tp=2":   {"m"},
		".ckptfs/make/megatron":        {"tp=2"},
		".ckptfs/make/megatron/tp=3/m": {"config.json", "modules.json", "tokenizer.json"},
		".ckptfs/make/hf/m": {"config.json", "model.safetensors", "modules.json", "pytorch_model.bin",
			"tokenizer.json"},
		".ckptfs/make/megatron/tp=1/m":         {"config.json", "latest_checkpointed_iteration.txt", "modules.json", "release", "tokenizer.json"},
		".ckptfs/make/megatron/tp=1/m/release": {"mp_rank_00"},
	} {
		got := r.listing(dir)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
	if got := string(r.read(made + "/latest_checkpointed_iteration.txt")); got != "release" {
		t.Errorf("the latest one is %q", got)
	}
	const rank0, rank1 = made + "/release/mp_rank_00/model_optim_rng.pt", made + "/release/mp_rank_01/model_optim_rng.pt"
	first := r.read(rank0)
	if second := r.read(rank1); len(first) != len(second) || bytes.Equal(first, second) {
		t.Errorf("%d and %d bytes", len(first), len(second))
	}
	padded := r.read(".ckptfs/make/megatron/tp=2,vocab=256/m/release/mp_rank_00/model_optim_rng.pt")
	if more := len(padded) - len(first); more < 2*96*8 {
		t.Errorf("of a padded vocabulary it has %d bytes more", more)
	}
	for name, why := range map[string]string{
		"tp=2/m/release/mp_rank_00/model_optim_rng.pt.why": "bytes",
		"tp=2/m/release/mp_rank_00/x.why":                  "no such file",
		"tp=2/m/release/mp_rank_02.why":                    "none of mp_rank_00 to mp_rank_01",
		"tp=2/m/release/mp_rank_01.why":                    "mp_rank_01 is there",
		"tp=3/m/release.why":                               "2 heads are not cut in 3",
		"tp=3/m.why":                                       "m is there. release in it cannot be made: ",
		"tp=2/m.why":                                       "m is there.\n",
		"tp=2/release.why":                                 "of 0 files",
		"tp=0.why":                                         "none of tp=1 to tp=1024",
		"tp=2,vocab=1.why":                                 "none of tp=1 to tp=1024",
		"tp=2,pp=2.why":                                    "none of tp=1 to tp=1024",
		"tp=2/m/config.json.why":                           "a link to itself",
	} {
		if got := r.read(".ckptfs/make/megatron/" + name); !strings.Contains(string(got), why) {
			t.Errorf("%s: %q", name, got)
		}
	}
	w := r.open("m/config.json", unix.O_WRONLY)
	if got := r.read(made + "/release.why"); !strings.Contains(string(got), "a program writes m/config.json") {
		t.Errorf("while its config is written: %q", got)
	}
	r.release(w)
	r.mkdir("m/release")
	if got := r.listing(made); slices.Contains(got, "latest_checkpointed_iteration.txt") || r.exists(made+"/release/mp_rank_00") {
		t.Errorf("%v beside a release of its own", got)
	}
	r.rename("m/release", "release")
	n := r.find(rank0)
	defer r.forget(n)
	h, err := r.Open(n, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer r.release(h)
	r.write("m/config.json", []byte(`{}`))
	if r.exists(made+"/release") || r.exists(made+"/latest_checkpointed_iteration.txt") {
		t.Error("it is there of a config that says nothing")
	}
	_, err = h.Read(make([]byte, 100), 0)
	wantErr(t, "a read of what was", err, unix.ESTALE)
}

// A checkpoint of Megatron-LM has the model's file instead of its own, and the config.json that is above it.
func TestMakeHF(t *testing.T) {
	r := newRig(t)
	r.stateModel("m")
	r.megatronSaved("saved")
	r.write("m/tokenizer.json", []byte("{}"))
	r.packOut("saved/release/mp_rank_01/model_optim_rng.pt")
	const made = ".ckptfs/make/hf/saved/release"
	got := r.listing(made)
	slices.Sort(got)
	want := []string{"config.json", "model.safetensors", "mp_rank_00", "mp_rank_01"}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	whole, of := r.read(made+"/model.safetensors"), r.read("m/model.safetensors")
	if at := bytes.IndexByte(of, '}') + 1; len(of) < 1000 || !bytes.HasSuffix(whole, of[len(of)-1000:]) {
		t.Errorf("%d bytes differ from %d, of which %d begin", len(whole), len(of), at)
	}
	link := r.find(made + "/config.json")
	defer r.forget(link)
	if to, err := r.Readlink(link); to != "../../../../../saved/config.json" || err != nil {
		t.Errorf("config.json leads to %q, %v", to, err)
	}
	for name, why := range map[string]string{
		"saved/release/model.safetensors.why": "bytes", "saved/model.safetensors.why": "folders of ranks, beside it",
		"m/model.safetensors.why": "a link to itself", "saved/release/other.why": "no such file",
	} {
		if got := r.read(".ckptfs/make/hf/" + name); !strings.Contains(string(got), why) {
			t.Errorf("%s: %q", name, got)
		}
	}
	// without reports why there is no file while a file has another name.
	without := func(name, why string) {
		t.Helper()
		r.rename(name, "away")
		if got := r.read(made + "/model.safetensors.why"); !strings.Contains(string(got), why) {
			t.Errorf("without %s: %q", name, got)
		}
		r.rename("away", name)
	}
	without("saved/config.json", "no config.json")
	r.mkdir("saved/huggingface") // where verl has it
	r.rename("saved/config.json", "saved/huggingface/config.json")
	if again := r.read(made + "/model.safetensors"); !bytes.Equal(again, whole) {
		t.Error("it is another file with its config elsewhere")
	}
	r.rename("saved/huggingface/config.json", "saved/config.json")
	r.rename("saved", "..saved") // a name, and no way out
	if again := r.read(".ckptfs/make/hf/..saved/release/model.safetensors"); !bytes.Equal(again, whole) {
		t.Error("it is another file below a name with dots")
	}
	r.rename("..saved", "saved")
	without("saved/release/mp_rank_00", "mp_rank_00 is not among the 1 ranks")
	without("saved/release/mp_rank_01", "and not")
	without("saved/release/mp_rank_01/model_optim_rng.pt", "no such file")
	r.mkdir("saved/release/mp_rank_01_000")
	without("m/tokenizer.json", "pipelines")
	r.rename("saved/release/mp_rank_01_000", "gone")
	if again := r.read(made + "/model.safetensors"); !bytes.Equal(again, whole) {
		t.Error("it is another file afterwards")
	}
	r.write("saved/release/.metadata", []byte("no pickle"))
	if got := r.read(made + "/model.safetensors.why"); !strings.Contains(string(got), "cannot be made") {
		t.Errorf("beside a .metadata: %q", got)
	}
}

// So has one that dist_checkpointing.save wrote. Its common.pt is read, too, and has to be readable.
func TestMakeHFSaved(t *testing.T) {
	r := newRig(t)
	const from = "../plans/testdata/torch_dist/"
	r.mkdir("saved")
	all, err := os.ReadDir(from + "saved")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(from + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, e := range all {
		r.write("saved/"+e.Name(), read("saved/"+e.Name()))
	}
	r.write("saved/config.json", read("config.json"))
	r.write("saved/tokenizer.json", []byte("{}"))
	const made = ".ckptfs/make/hf/saved"
	for _, packed := range []bool{false, true} {
		if packed {
			r.packOut("saved/__1_0.distcp")
		}
		got := r.listing(made)
		slices.Sort(got)
		if want := []string{"config.json", "model.safetensors", "tokenizer.json"}; !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		if got, want := r.read(made+"/model.safetensors"), read("model.safetensors"); !bytes.Equal(got, want) {
			t.Errorf("%d bytes differ from %d", len(got), len(want))
		}
	}
	without := func(name, why string) {
		t.Helper()
		if got := r.read(made + "/model.safetensors.why"); !strings.Contains(string(got), why) {
			t.Errorf("without %s: %q", name, got)
		}
	}
	for _, name := range []string{".metadata", "common.pt", "config.json", "__0_0.distcp", "__0_1.distcp",
		"__1_0.distcp", "__1_1.distcp"} {
		defer r.forget(r.find("saved/" + name)) // as the kernel has them: the plan is kept
	}
	without("anything", "bytes")
	r.rename("saved/__1_1.distcp", "saved/__1_9.distcp") // which .metadata does not name
	without("__1_1.distcp", "files that .metadata names are there")
	r.rename("saved/__1_9.distcp", "saved/__1_1.distcp")
	r.rename("saved/.metadata", "away")
	without(".metadata", "no such file")
	r.write("saved/mp_rank_00", []byte("no folder"))
	without("a folder of a rank", "of 0 ranks")
	r.mkdir("saved/.metadata")
	without("a .metadata that is a file", "no such file")
	r.rename("saved/.metadata", "folder")
	r.rename("away", "saved/.metadata")
	r.write("saved/common.pt", []byte("none of torch"))
	without("a common.pt of torch", "common.pt")
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be other users")
	}
	r.write("saved/common.pt", read("saved/common.pt"))
	set := func(p string, mode uint32) { r.setattr(p, &tree.SetAttr{Mode: &mode}) }
	set("", 0o755)
	set("saved", 0o755)
	p := person{"stranger", 3000, []uint32{3000}}
	for _, name := range []string{".metadata", "common.pt", "__0_0.distcp", "config.json"} {
		for _, e := range all {
			set("saved/"+e.Name(), 0o644)
		}
		set("saved/config.json", 0o644)
		v := visitor{r, p, p.caller(t)}
		if _, err := v.get(made + "/model.safetensors"); err != nil {
			t.Errorf("of files that all may read: %v", err)
		}
		set("saved/"+name, 0o600)
		if _, err := v.get(made + "/model.safetensors"); err == nil {
			t.Errorf("%s may not be read, and it is there", name)
		}
	}
}

// Who may not read one of the files that another is made of, or not list their folder, finds none of it.
func TestMakeMegatronVisible(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be other users")
	}
	r := newRig(t)
	r.stateModel("m")
	r.megatronSaved("saved")
	set := func(p string, mode uint32) { r.setattr(p, &tree.SetAttr{Mode: &mode}) }
	p := person{"stranger", 3000, []uint32{3000}}
	v := visitor{r, p, p.caller(t)}
	for _, dir := range []string{"", "m", "saved", "saved/release", "saved/release/mp_rank_00", "saved/release/mp_rank_01"} {
		set(dir, 0o755)
	}
	const file = "/release/mp_rank_01/model_optim_rng.pt"
	for _, f := range []string{"m/model.safetensors", "m/config.json", "saved/config.json", "saved" + file,
		"saved/release/mp_rank_00/model_optim_rng.pt"} {
		set(f, 0o644)
	}
	r.write("saved/release/config.json", r.read("m/config.json")) // the one above is not looked at
	set("saved/release/config.json", 0o644)
	for _, x := range []struct {
		p          string
		shut, open uint32
		of         string
	}{
		{"m/model.safetensors", 0o600, 0o644, "megatron/tp=2/m" + file}, {"m/config.json", 0o600, 0o644, "megatron/tp=2/m" + file},
		{"m", 0o711, 0o755, "megatron/tp=2/m" + file},
		{"m", 0o711, 0o755, "megatron/tp=2/m/latest_checkpointed_iteration.txt"},
		{"saved/release/config.json", 0o600, 0o644, "hf/saved/release/model.safetensors"},
		{"saved/release/config.json", 0o600, 0o644, "hf/saved/release/config.json"},
		{"saved" + file, 0o600, 0o644, "hf/saved/release/model.safetensors"},
		{"saved/release/mp_rank_00", 0o700, 0o755, "hf/saved/release/model.safetensors"},
		{"saved/release", 0o711, 0o755, "hf/saved/release/model.safetensors"},
		{"saved", 0o700, 0o755, "hf/saved/release/model.safetensors"},
	} {
		for _, shut := range []bool{false, true, false} {
			set(x.p, x.open)
			if shut {
				set(x.p, x.shut)
			}
			_, err := v.get(".ckptfs/make/" + x.of)
			if (err != nil) != shut {
				t.Errorf("%s, of which %s is shut (%t): %v", x.of, x.p, shut, err)
			}
		}
	}
}
