package plans

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// What is planned is what torch.save writes, as testdata/torchsave.py has it: its pickle, its archive, also of
// more than 4 GiB, and its serialization_id.
func TestTorchSave(t *testing.T) {
	b, err := os.ReadFile("testdata/torchsave.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string][]json.RawMessage
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		var size int64
		var sum string
		var gap [2]int64
		for i, to := range []any{&size, &sum, &gap} {
			if err := json.Unmarshal(c[i+1], to); err != nil {
				t.Fatal(err)
			}
		}
		p, err := torchSave("archive", zeroOutputs(t, c[0]))
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		for _, r := range [][2]int64{{0, gap[0]}, {gap[1], p.Size()}} {
			read := io.NewSectionReader(at{Plan: p}, r[0], r[1]-r[0])
			if _, err := io.Copy(h, read); err != nil {
				t.Fatal(err)
			}
		}
		if got := hex.EncodeToString(h.Sum(nil)); p.Size() != size || got != sum {
			t.Errorf("%s: %d bytes, %s; torch has %d, %s", name, p.Size(), got, size, sum)
		}
	}
}

// Torch writes other records of empty tensors, and of other types of numbers other names.
func TestTorchSaveRefuses(t *testing.T) {
	for what, e := range map[string]safetensors.Entry{
		"an empty one": {Name: "a", DType: formats.F32, Shape: []int64{3, 0}}, "doubles": {Name: "a", DType: formats.F64},
	} {
		_, err := torchSave("archive", []output{{e, zeros{}}})
		refused(t, what, err)
	}
}

// zeroOutputs are the tensors of a case.
func zeroOutputs(t *testing.T, said json.RawMessage) (out []output) {
	var n int
	if json.Unmarshal(said, &n) == nil {
		for i := range n {
			o := output{Entry: safetensors.Entry{Name: fmt.Sprintf("none.%d", i)}}
			if i%3 != 0 {
				o.Entry = safetensors.Entry{Name: fmt.Sprintf("tensor.%d", i), DType: formats.BF16, Shape: []int64{1}}
				o.op = zeros{}
			}
			out = append(out, o)
		}
		return out
	}
	var tensors [][]json.RawMessage
	if err := json.Unmarshal(said, &tensors); err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		var o output
		for i, to := range []any{&o.Name, &o.DType, &o.Shape}[:len(x)] {
			if err := json.Unmarshal(x[i], to); err != nil {
				t.Fatal(err)
			}
		}
		if len(x) > 1 {
			o.op = zeros{}
		}
		out = append(out, o)
	}
	return out
}
