//go:build !amd64 && !arm64

package rans

func (c *Counts) sum(t *tally, shift int, set *values) { c.sumPortable(t, shift, set) }

func (s *values) holds(p []byte) int { return s.holdsPortable(p) }

func (d *Decoder) steps(dst []byte) ([]byte, error) { return dst, nil }

func (e *Encoder) steps(src []byte) { e.stepsPortable(src) }
