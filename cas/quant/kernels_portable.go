//go:build !amd64

package quant

func extremesOf(e *extremes, x []float32, sub int) { extremesPortable(e, x, sub, 0) }

func magnitude(x []float32) uint32 { return magnitudePortable(x) }

func (q *Quantiser) predict(dst []byte, x []float32, f *factors) { q.predictPortable(dst, x, f) }

func (q *Quantiser) f8(codes []byte, x []float32, s float32) { q.f8Portable(codes, x, s) }

func steady8(v *[8]float32, by, lo, hi float32) uint64 { return steady8Portable(v, by, lo, hi) }

func (r *row) predict(variant uint8, codes []byte, x []float32, s float32, t []float32) {
	r.predictPortable(variant, codes, x, s, t)
}

func (r *ranges) spread(e *extremes, blocks int) { r.spreadPortable(e, blocks) }

func (r *ranges) factors(f *factors, levels float32, blocks int) {
	r.factorsPortable(f, levels, blocks)
}
