package quant

// Fits is q with the variant of its format that tells most of a sample of blocks from the numbers x, of two
// the lower one; and the share of their codes that follow. What is unrelated has a share of some 5 to 40 %.
func Fits(q Quantiser, blocks []byte, x []float32) (_ Quantiser, share float64, _ error) {
	best, found := -1, q
	var s Streams
	for v := range uint8(q.Format.Variants()) {
		q.Variant, q.made = v, nil
		k := correction{counts: true}
		err := q.check(len(x))
		if err == nil {
			err = q.fits(blocks, len(x))
		}
		if err != nil {
			return q, 0, err
		}
		q.differ(&s, blocks, x, &k)
		if right := len(x) - k.codes; right > best {
			best, found = right, q
		}
		if best == len(x) {
			break
		}
	}
	if best <= 0 {
		return found, 0, nil
	}
	return found, float64(best) / float64(len(x)), nil
}
