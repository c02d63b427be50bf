package volume

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// A folder below a way is what its path leads to, also where the kernel has the node of one that was moved:
// no file of the old one is found by it.
func TestMakeFolderMoved(t *testing.T) {
	r := newRig(t)
	for i, dir := range []string{"m", "new"} {
		r.mkdir(dir)
		r.write(dir+"/model.safetensors", filled(t, 30_000, float1+uint32(i)<<20))
	}
	const made = ".ckptfs/make/cast/bf16/"
	first, second := r.read(made+"m/model.safetensors"), r.read(made+"new/model.safetensors")
	kept := r.find(made + "m")
	defer r.forget(kept)
	read := func() []byte {
		t.Helper()
		n, _, err := r.Lookup(kept, "model.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		defer r.forget(n)
		h, err := r.Open(n, unix.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		defer r.release(h)
		got, err := r.readHandle(h)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if !bytes.Equal(read(), first) {
		t.Fatal("it is another file")
	}
	r.rename("m", "old")
	_, _, err := r.Lookup(kept, "model.safetensors")
	wantErr(t, "in a folder that was moved", err, unix.ENOENT)
	r.write("m", []byte("a file"))
	_, _, err = r.Lookup(kept, "model.safetensors")
	wantErr(t, "in what is no folder now", err, unix.ENOENT)
	r.unlink("m")
	r.rename("new", "m")
	if bytes.Equal(first, second) || !bytes.Equal(read(), second) {
		t.Error("by the folder's path another file is found than that of the folder that is there")
	}
}

// The kernel keeps for a moment what everyone finds: folders of a path, and links to files that all may read.
func TestMakeBrief(t *testing.T) {
	r := newRig(t)
	r.mkdir("m")
	r.write("m/model.safetensors", filled(t, 30_000, float1))
	r.write("m/all", []byte("x"))
	r.write("m/mine", []byte("x"))
	for name, mode := range map[string]uint32{"m/all": 0o644, "m/mine": 0o640} {
		r.setattr(name, &tree.SetAttr{Mode: &mode})
	}
	for name, want := range map[string]bool{
		"": false, "cast": true, "cast/bf16": true, "cast/bf16/m": true, "cast/bf16/m/all": true,
		"cast/bf16/m/mine": false, "cast/bf16/m/model.safetensors": false,
		"cast/bf16/m/model.safetensors.why": false, "soup/mean/m/model.safetensors": false, "README": false,
	} {
		n := r.find(".ckptfs/make/" + name)
		if n.IsBrief() != want && !n.IsFixed() {
			t.Errorf("%s is kept: %t", name, !want)
		}
		r.forget(n)
	}
}

// What the config refuses is not looked at any further.
func TestMakeGGUFConfigFirst(t *testing.T) {
	r := newRig(t)
	r.hubModel("m", float1)
	r.write("m/tokenizer.json", nil)
	size := int64(65 << 20)
	r.setattr("m/tokenizer.json", &tree.SetAttr{Size: &size})
	const why = ".ckptfs/make/gguf/f16/m.gguf.why"
	if got := r.read(why); !strings.Contains(string(got), "m/tokenizer.json has 68157440 bytes") {
		t.Fatalf("%q", got)
	}
	r.write("m/config.json", []byte(`{"architectures": ["OtherForCausalLM"]}`))
	if got := r.read(why); !strings.Contains(string(got), `the architecture "OtherForCausalLM"`) {
		t.Errorf("%q", got)
	}
}
