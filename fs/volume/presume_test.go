package volume

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/formats"
)

// pickled is a pickle of a list of n numbers, of which those with one seed begin alike.
func pickled(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	p := []byte("\x80\x04](")
	for range n {
		p = binary.BigEndian.AppendUint64(append(p, 'G'), math.Float64bits(r.NormFloat64()))
	}
	return append(p, "e."...)
}

// ones is a pickle of an array of n numbers.
func ones(n int) []byte {
	p := []byte("\x80\x04cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01J")
	p = append(binary.LittleEndian.AppendUint32(p, uint32(n)),
		"K\x01\x86cnumpy\ndtype\n\x8c\x02f8\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89B"...)
	p = binary.LittleEndian.AppendUint32(p, uint32(8*n))
	for range n {
		p = binary.LittleEndian.AppendUint64(p, math.Float64bits(1))
	}
	return append(p, "tb."...)
}

// A file that is mostly what the step before it was is not parsed; any other is.
func TestPresume(t *testing.T) {
	const n = 100_000
	before := pickled(1, n)
	broken := bytes.Clone(before)
	broken[4+9*(n/2)] = 0xff // no opcode
	for name, c := range map[string]struct {
		now    []byte
		format string
		data   bool
	}{
		"the same":          {before, "pickle", false},
		"grown":             {pickled(1, n+n/50), "pickle", false},
		"broken inside":     {broken, "pickle", false}, // as the one before it was: there is no harm in it
		"broken at the end": {append(bytes.Clone(before), 0xff), "blob", false},
		"another":           {pickled(2, n), "pickle", false},
		"another, broken":   {append(pickled(2, n), "\xff."...), "blob", false},
		"with an array":     {append(bytes.Clone(before), ones(40_000)...), "pickle", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.mkdir("run")
			for i, p := range [][]byte{before, c.now} {
				dir := []string{"run/1", "run/2"}[i]
				r.mkdir(dir)
				r.write(dir+"/model.pkl", p)
				r.sync()
			}
			_, m := r.manifestOf("run/2/model.pkl")
			data := slices.ContainsFunc(m.Regions, func(g formats.Region) bool {
				return g.Kind == formats.Data
			})
			if m.Format != c.format || data != c.data {
				t.Errorf("format %s, data %v, want %s, %v", m.Format, data, c.format, c.data)
			}
			r.evictAll()
			if got := r.read("run/2/model.pkl"); !bytes.Equal(got, c.now) {
				t.Error("other bytes")
			}
		})
	}
}
