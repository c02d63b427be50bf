package volume

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats/safetensors"
	"ckptfs/fs/tree"
)

// hubModel writes the folder of a model of one tensor, all of whose numbers are x.
func (r *rig) hubModel(dir string, x uint32) {
	r.t.Helper()
	r.mkdir(dir)
	p, err := safetensors.AppendSaved(nil, []safetensors.Entry{
		{Name: "lm_head.weight", DType: "F32", Shape: []int64{200, 100}}}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for range 200 * 100 {
		p = binary.LittleEndian.AppendUint32(p, x)
	}
	r.write(dir+"/model.safetensors", p)
	r.write(dir+"/tokenizer.model", []byte("\n\x09\n\x05<unk>\x18\x02"))
	r.write(dir+"/config.json", []byte(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
		"vocab_size": 200, "hidden_size": 100, "intermediate_size": 96, "num_hidden_layers": 1,
		"num_attention_heads": 4, "max_position_embeddings": 512, "rms_norm_eps": 1e-5}`))
}

// The file of a model's folder follows all files there, those that come too: who has an old one open gets no
// byte of a newer source.
func TestMakeGGUF(t *testing.T) {
	r := newRig(t)
	r.hubModel("a-7B-chat", float1)
	r.packOut("a-7B-chat/model.safetensors")
	const made = ".ckptfs/make/gguf/f16/a-7B-chat.gguf"
	first := r.read(made)
	n := r.find(made)
	defer r.forget(n)
	h, err := r.Open(n, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer r.release(h)
	if !strings.Contains(string(first), "general.size_label") || strings.Contains(string(first), "a template") {
		t.Errorf("it begins with %.300q", first)
	}
	r.write("a-7B-chat/tokenizer_config.json", []byte(`{"chat_template": "a template"}`))
	if got := r.read(made); !strings.Contains(string(got), "a template") {
		t.Error("a file that came is not seen")
	}
	if got, err := r.readHandle(h); err != nil || string(got) != string(first) {
		t.Errorf("what was opened before is read otherwise: %v", err)
	}
	w := r.open("a-7B-chat/config.json", unix.O_WRONLY)
	if r.exists(made) {
		t.Error("it is there while its config is written")
	}
	if why := r.read(made + ".why"); !strings.Contains(string(why), "a program writes") {
		t.Errorf("the reason is %q", why)
	}
	r.writeAt(w, []byte(`{"architectures": ["OtherForCausalLM"],`), 0)
	r.release(w)
	if why := r.read(made + ".why"); !strings.Contains(string(why), `config.json: the architecture "OtherForCausalLM"`) {
		t.Errorf("the reason is %q", why)
	}
	_, err = h.Read(make([]byte, 100), 0)
	wantErr(t, "a read of what was", err, unix.ESTALE)
	for name, want := range map[string]string{
		".ckptfs/make/gguf/f16/nothing.gguf.why":               "no such file",
		".ckptfs/make/gguf/f16/a-7B-chat/config.json.gguf.why": "is no folder",
	} {
		if why := r.read(name); !strings.Contains(string(why), want) {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// A file is what its name says: under another name it is read otherwise, though its bytes are the same.
func TestMakeGGUFRenamed(t *testing.T) {
	r := newRig(t)
	r.hubModel("m", float1)
	r.write("m/tokenizer_config.json", []byte(`{"a": 1}`))
	r.write("m/chat_template.json", []byte(`{"chat_template": "a template"}`))
	const made = ".ckptfs/make/gguf/f16/m.gguf"
	first := string(r.read(made))
	r.rename("m/chat_template.json", "m/chat_template.jinja")
	second := string(r.read(made))
	const text, whole = "a template", `{"chat_template": "a template"}`
	if !strings.Contains(first, text) || strings.Contains(first, whole) || !strings.Contains(second, whole) {
		t.Errorf("%.1000q, then %.1000q", first, second)
	}
}

// Who may not read one of the files of a model's folder, or not list it, finds no file that is made of it.
func TestMakeGGUFOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be other users")
	}
	r := newRig(t)
	for dir, change := range map[string]struct {
		below string
		mode  uint32
	}{"open": {"", 0o755}, "config": {"/config.json", 0o600}, "weights": {"/model.safetensors", 0o600},
		"unlisted": {"", 0o711}, "closed": {"", 0o700}} {
		r.hubModel(dir, float1)
		for _, name := range []string{"", "/config.json", "/model.safetensors", "/tokenizer.model"} {
			mode := uint32(0o755)
			if name == change.below {
				mode = change.mode
			}
			r.setattr(dir+name, &tree.SetAttr{Mode: &mode})
		}
	}
	p := person{"stranger", 3000, []uint32{3000}}
	stranger, root := visitor{r, p, p.caller(t)}, visitor{r, person{what: "root"}, tree.Caller{}}
	for _, dir := range []string{"open", "config", "weights", "unlisted", "closed"} {
		name := ".ckptfs/make/gguf/bf16/" + dir + ".gguf"
		if _, err := root.get(name); err != nil {
			t.Errorf("root: %s: %v", dir, err)
		}
		if _, err := stranger.get(name); (err == nil) != (dir == "open") {
			t.Errorf("a stranger: %s: %v", dir, err)
		}
	}
}
