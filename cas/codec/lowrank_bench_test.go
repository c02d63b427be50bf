package codec

import (
	"fmt"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
	"ckptfs/cas/lowrank"
)

// BenchmarkLowRank encodes and decodes a matrix into which an adapter was merged, by three units of the last
// place of a weight of bfloat16: chunks, with what it takes to find the columns' factor, of which the size is
// in %size; %delta is what they take as deltas.
func BenchmarkLowRank(b *testing.B) {
	const rows, cols = 4096, 4096
	for _, h := range lowRankHints {
		for _, r := range []int{8, 16, 64} {
			var all, some []lowrank.Stretch
			var columns, out []byte
			name := fmt.Sprintf("%s/rank=%d", h.DType, r)
			b.Run(name+"/encode", func(b *testing.B) {
				raw, base := codectest.Merged(rows, cols, r, h.DType,
					map[string]float64{"BF16": 3, "F16": 3 * 8, "F32": 3 << 16}[h.DType])
				all, some = chunksOf(raw, base, h.Elem, cas.ChunkSize), nil
				for i := range 32 {
					some = append(some, all[i*len(all)/32])
				}
				b.SetBytes(int64(len(raw)))
				var low, delta int
				for b.Loop() {
					low, delta = 0, 0
					if !MayBeLowRank(some, rows, cols, h) {
						b.Fatal("not looked at")
					}
					var ok bool
					if columns, ok = FactorColumns(some, cols, h); !ok {
						b.Fatal("refused")
					}
					for _, s := range all {
						out, _ = EncodeLowRank(out[:0], s.Raw, s.Base, columns, cols, s.At, h, 2*len(s.Raw))
						low += len(out)
					}
				}
				for _, s := range all {
					out, _ = EncodeDelta(out[:0], s.Raw, s.Base, h, 2*len(s.Raw))
					delta += len(out)
				}
				_, out = Encode(out[:0], columns, ColumnsHint(h))
				b.ReportMetric(100*float64(low+len(out))/float64(len(raw)), "%size")
				b.ReportMetric(100*float64(delta)/float64(len(raw)), "%delta")
			})
			if all == nil {
				continue
			}
			s := all[len(all)/2]
			out, _ = EncodeLowRank(out[:0], s.Raw, s.Base, columns, cols, s.At, h, 2*len(s.Raw))
			delta, _ := EncodeDelta(nil, s.Raw, s.Base, h, 2*len(s.Raw))
			var dst []byte
			b.Run(name+"/decode", func(b *testing.B) {
				b.SetBytes(int64(len(s.Raw)))
				for b.Loop() {
					dst, _ = DecodeLowRank(dst[:0], out, s.Base, columns, len(s.Raw))
				}
			})
			b.Run(name+"/delta", func(b *testing.B) {
				b.SetBytes(int64(len(s.Raw)))
				for b.Loop() {
					dst, _ = DecodeDelta(dst[:0], delta, s.Base, len(s.Raw))
				}
			})
		}
	}
}
