package volume

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
)

// fp8File is a file of one matrix in FP8, whose scales, one for each 128 by 128, lie beside it; and the
// numbers that it stands for.
func fp8File(t testing.TB, name string, x []float32) (file []byte, numbers []float32) {
	t.Helper()
	rows := len(x) / wide
	g := quant.Scales{Rows: rows, Cols: wide, Tall: 128, Wide: 128}
	g.Values = make([]float32, (rows+127)/128*(wide/128))
	scaled := slices.Clone(x)
	for i, v := range x {
		s := &g.Values[i/wide/128*(wide/128)+i%wide/128]
		*s = max(*s, max(v, -v)/448)
	}
	for i := range scaled {
		scaled[i] /= g.Values[i/wide/128*(wide/128)+i%wide/128]
	}
	q := quant.Quantiser{Format: quant.F8E4M3}
	var s quant.Streams
	codes, err := q.Restore(nil, &s, scaled)
	if err != nil {
		t.Fatal(err)
	}
	q.Scales = g
	numbers = make([]float32, len(x))
	if err := q.Dequantise(numbers, codes); err != nil {
		t.Fatal(err)
	}
	file, err = safetensors.AppendHeader(nil, []safetensors.Entry{
		{Name: name, DType: formats.F8E4M3, Shape: []int64{int64(rows), wide}},
		{Name: name + "_scale_inv", DType: formats.F32, Shape: []int64{int64(rows) / 128, wide / 128}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	file = append(file, codes...)
	for _, v := range g.Values {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(v))
	}
	return file, numbers
}

// dequantisedFiles are files in which codes are, and what was made of these.
func dequantisedFiles(t testing.TB) (codes, numbers []otherFile) {
	t.Helper()
	const hf, llama = "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"
	one := func(dtype formats.DType, name string, x []float32) []byte {
		return weightsFile{dtype, wide, map[string][]float32{name: x}}.bytes(t)
	}
	fp8, of8 := fp8File(t, hf, gauss(1, 1024))
	x := gauss(2, 1024)
	blocks := ggufOf(t, llama, quant.Q4_K, 12, x)
	q := quant.Quantiser{Format: quant.Q4_K}
	of4 := make([]float32, len(x))
	if err := q.Dequantise(of4, blocks[len(blocks)-len(x)/256*144:]); err != nil {
		t.Fatal(err)
	}
	back := rowsOf(of4, len(of4)/wide, func(r int) int {
		return r/head*head + r%(head/2)*2 + r%head/(head/2)
	})
	codes = []otherFile{{"FP8", fp8, 1}, {"Q4_K", blocks, 1}}
	numbers = []otherFile{
		{"bfloat16 of FP8", one(formats.BF16, hf, of8), 0.02},
		{"binary16 of FP8", one(formats.F16, hf, of8), 0.02},
		{"bfloat16 of Q4_K", one(formats.BF16, hf, back), 0.02},
		{"single precision of Q4_K", one(formats.F32, hf, back), 0.02},
	}
	return codes, numbers
}

// What codes stand for takes little beside them, and stays when they are gone.
func TestDequantised(t *testing.T) {
	codes, numbers := dequantisedFiles(t)
	r := newRig(t)
	want := map[string][]byte{}
	put := func(i int, f otherFile) {
		t.Helper()
		p := f.name(i) + ".safetensors"
		r.mkdir(f.folder(i))
		before := r.segmentBytes()
		r.write(p, f.bytes)
		r.pack(p)
		want[p] = f.bytes
		took := r.segmentBytes() - before
		if i >= len(codes) && float64(took) > f.most*float64(len(f.bytes)) {
			t.Errorf("%s takes %d of %d bytes", f.what, took, len(f.bytes))
		}
	}
	for i, f := range slices.Concat(codes, numbers) {
		put(i, f)
	}
	check := func() {
		t.Helper()
		r.evictAll()
		for p, b := range want {
			r.same(p, b)
		}
		r.sound()
	}
	check()
	for i, f := range codes {
		p := f.name(i) + ".safetensors"
		r.unlink(p)
		delete(want, p)
	}
	r.prune(now)
	r = r.crashed()
	check()
	r = r.withoutIndex()
	check()
}

// TestThreeTypes: of numbers in three types one is stored, whichever way round they come: what is computed
// is no master of others.
func TestThreeTypes(t *testing.T) {
	x := gauss(3, 1024)
	types := []formats.DType{formats.BF16, formats.F32, formats.F16}
	for first := range types {
		r := newRig(t)
		want := map[string][]byte{}
		var base int64
		for i := range types {
			dtype := types[(first+i)%len(types)]
			p := string(dtype) + ".safetensors"
			want[p] = weightsFile{dtype, wide, map[string][]float32{"layers.0.w": x}}.bytes(t)
			before := r.segmentBytes()
			r.write(p, want[p])
			r.pack(p)
			took := r.segmentBytes() - before
			if i == 0 {
				base = took
			} else if took > base/20 {
				t.Errorf("%s behind %s takes %d bytes", dtype, types[first], took)
			}
		}
		r.evictAll()
		for p, b := range want {
			r.same(p, b)
		}
		r.sound()
	}
}

// Where codes come last, a compaction makes of it what would have been, had they come first.
func TestDequantisedFirst(t *testing.T) {
	codes, numbers := dequantisedFiles(t)
	r := newRig(t)
	want := map[string][]byte{}
	most := 0.0
	for i, f := range slices.Concat(numbers[1:2], codes[:1], numbers[:1]) {
		p := f.name(i) + ".safetensors"
		r.mkdir(f.folder(i))
		r.write(p, f.bytes)
		r.pack(p)
		want[p] = f.bytes
		if i == 0 {
			most = 1.1 * float64(r.segmentBytes())
		}
	}
	r.compact(control.CompactOptions{})
	r.prune(now)
	if got := r.segmentBytes(); float64(got) > most {
		t.Errorf("%d bytes, want %.0f", got, most)
	}
	r.evictAll()
	for p, b := range want {
		r.same(p, b)
	}
	r.sound()
}
