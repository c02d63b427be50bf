//go:build !amd64

package rans

func (t *table) fill(f *Freqs) { t.fillPortable(f) }

func (f *Freqs) values() values { return f.valuesPortable() }

func (f *Freqs) shares(c *Counts, scale float64) (sum, top int) { return f.sharesPortable(c, scale) }

func (t *tally) add(p []byte) { t.addPortable(p) }

func (c *Counts) logs() (sum uint64, used, total int) { return c.logsPortable() }
