package volume

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
)

const quantRows, quantCols = 640, 512

// quantPair is a model of some tensors in bfloat16, and that model with codes of 8 bits, as a quantiser makes
// them with a scale for each row.
func quantPair(t testing.TB, seed uint64, tensors int) (model, fp8 []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	var whole, small []safetensors.Entry
	var wholeData, smallData []byte
	for k := range tensors {
		name := fmt.Sprintf("model.layers.%d.mlp.up_proj.weight", k)
		var scales []byte
		for range quantRows {
			row := make([]float32, quantCols)
			var most float32
			for i := range row {
				row[i] = half.FromBF16(half.ToBF16(math.Float32bits(float32(r.NormFloat64() * 0.02))))
				most = max(most, max(row[i], -row[i]))
				wholeData = binary.LittleEndian.AppendUint16(wholeData, half.ToBF16(math.Float32bits(row[i])))
			}
			q := quant.Quantiser{Format: quant.F8E4M3, Variant: quant.Divide,
				Scales: quant.Scales{Rows: 1, Cols: quantCols, Tall: 1, Wide: quantCols}}
			var s quant.Streams
			var err error
			if smallData, err = q.Restore(smallData, &s, row); err != nil {
				t.Fatal(err)
			}
			scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(most/448))
		}
		smallData = append(smallData, scales...)
		shape := []int64{quantRows, quantCols}
		whole = append(whole, safetensors.Entry{Name: name, DType: formats.BF16, Shape: shape})
		small = append(small, safetensors.Entry{Name: name, DType: formats.F8E4M3, Shape: shape},
			safetensors.Entry{Name: name + "_scale", DType: formats.F32, Shape: []int64{quantRows, 1}})
	}
	file := func(entries []safetensors.Entry, data []byte) []byte {
		p, err := safetensors.AppendHeader(nil, entries, nil)
		if err != nil {
			t.Fatal(err)
		}
		return append(p, data...)
	}
	return file(whole, wholeData), file(small, smallData)
}

// recipesOf is how many chunks are stored as recipes.
func (r *rig) recipesOf() int64 {
	r.t.Helper()
	for _, e := range r.stats().Encodings {
		if e.Codec == "recipe" {
			return e.Records
		}
	}
	return 0
}

// When the model that another was quantised from is removed, a prune stores that one without it, and gives
// the room back; a dry run says so before.
func TestPruneApart(t *testing.T) {
	r := newRig(t)
	model, fp8 := quantPair(t, 1, 4)
	r.write("base.safetensors", model)
	r.sync()
	r.write("base-fp8.safetensors", fp8)
	r.sync()
	r.evictAll()
	recipes := r.recipesOf()
	if recipes == 0 {
		t.Fatal("nothing is computed")
	}
	with := r.segmentBytes()
	if p := r.prune(now); p.BaseFiles != 0 || p.BaseBytes != 0 || p.ApartBytes != 0 {
		t.Errorf("before it was removed: %+v", p)
	}
	r.unlink("base.safetensors")
	p := r.prune(control.PruneOptions{MaxUnused: 0.5, DryRun: true})
	if p.BaseFiles != 1 || p.BaseBytes < int64(len(model))/2 || p.BaseAloneBytes < int64(len(fp8))/2 ||
		p.ApartBytes != p.BaseAloneBytes || p.FreedBytes < (p.BaseBytes-p.BaseAloneBytes)*9/10 {
		t.Errorf("dry run: %+v", p)
	}
	if r.recipesOf() != recipes || r.segmentBytes() > with {
		t.Error("a dry run changed something")
	}
	said := p
	p = r.prune(now)
	if p.BaseFiles != 0 || p.BaseBytes != 0 || p.ApartBytes == 0 ||
		p.ApartBytes > said.ApartBytes*11/10 || p.FreedBytes-p.CopiedBytes < said.FreedBytes/2 {
		t.Errorf("%+v; the dry run said %+v", p, said)
	}
	if n := r.recipesOf(); n != 0 {
		t.Errorf("%d recipes are left", n)
	}
	if after := r.segmentBytes(); after > int64(len(fp8))*11/10 {
		t.Errorf("%d bytes are left of %d", after, with)
	}
	r.same("base-fp8.safetensors", fp8)
	r.sound()
	if p := r.prune(now); p.ApartBytes != 0 || p.BaseFiles != 0 {
		t.Errorf("again: %+v", p)
	}
	r = r.reopen()
	r.same("base-fp8.safetensors", fp8)
	r.sound()
}

// As long as some file names it, or as much is computed of it as it has itself, it stays.
func TestPruneApartDoesNotPay(t *testing.T) {
	r := newRig(t)
	model, fp8 := quantPair(t, 2, 2)
	r.write("base.safetensors", model)
	r.sync()
	r.write("base-fp8.safetensors", fp8)
	r.sync()
	r.write("copy.safetensors", model)
	r.sync()
	r.unlink("base.safetensors")
	recipes := r.recipesOf()
	if p := r.prune(now); p.BaseFiles != 0 || p.ApartBytes != 0 || recipes == 0 || r.recipesOf() != recipes {
		t.Errorf("%+v, %d of %d recipes", p, r.recipesOf(), recipes)
	}
	r.unlink("copy.safetensors")
	r.unlink("base-fp8.safetensors")
	if p := r.prune(now); p.BaseFiles != 0 || p.ApartBytes != 0 {
		t.Errorf("nothing is left: %+v", p)
	}
	if r.recipesOf() != 0 {
		t.Error("recipes are left of removed files")
	}
}

// On a disk without room the bases stay, and it is said why; where there is little, what is computed of them
// is stored apart by and by.
func TestPruneApartOnFullDisk(t *testing.T) {
	r, leave := onDiskOf(t, "32m", hotSize(0))
	model, fp8 := quantPair(t, 3, 6)
	r.write("base.safetensors", model)
	r.packOut("base.safetensors")
	r.write("base-fp8.safetensors", fp8)
	r.packOut("base-fp8.safetensors")
	r.unlink("base.safetensors")
	recipes := r.recipesOf()
	leave(100 << 10)
	p := r.prune(now)
	if !p.BaseNoRoom || p.BaseFiles != 1 || p.ApartBytes != 0 || recipes == 0 || r.recipesOf() != recipes {
		t.Errorf("no room: %+v, %d of %d recipes", p, r.recipesOf(), recipes)
	}
	r.same("base-fp8.safetensors", fp8)
	// Where the disk is full before a part is stored, what is left of it stays told, and is tried again.
	apart := int64(0)
	for room := int64(200); r.recipesOf() > 0 && room <= 3200; room += 50 {
		leave(room << 10)
		p = r.prune(now)
		apart += p.ApartBytes
		if left := r.recipesOf(); left > 0 != (p.BaseFiles == 1) || left > 0 != p.BaseNoRoom {
			t.Errorf("%d KiB: %+v, %d recipes", room, p, left)
		}
		r.same("base-fp8.safetensors", fp8)
	}
	if apart < int64(len(fp8))/2 || r.recipesOf() != 0 {
		t.Errorf("%d bytes were stored apart, %d recipes are left", apart, r.recipesOf())
	}
	r.sound()
}
