package rans

import (
	"math/bits"
	"sync"
	"time"

	"ckptfs/cas/simd"
)

// coder has the kernels of one kind that code steps of all states: of 16, of 32, of 64 of them.
type coder struct {
	name  string
	level simd.Level
	decoding
	encoding
}

type (
	decoding [3]func(dst *byte, steps int, t, x *uint32, words *byte, n int,
		raw *byte, rawStep int, out *byte, outStep int) (left, used int)
	encoding [3]func(last, src *byte, steps int, codes *uint64, x *uint32, out *byte, outStep int) (put int)
)

// width is where a coder has the kernel of so many states.
func width(lanes int) int { return bits.TrailingZeros(uint(lanes)) - 4 }

// beyond is how many bytes ahead of what it puts a kernel may write. The states take them afterwards.
const beyond = 16

// coders differ in speed alone. Gathers are slow on AMD's processors, and on Intel's since their microcode
// was mended (Downfall, 2023).
var coders = []coder{
	{
		"avx2", simd.AVX2,
		decoding{decode16AVX2, decode32AVX2, decode64AVX2},
		encoding{encode16AVX2, encode32AVX2, encode64AVX2},
	},
	{
		"avx512 gathers", simd.AVX512,
		decoding{decode16AVX512, decode32AVX512, decode64AVX512},
		encoding{encode16AVX512, encode32AVX512, encode64AVX512},
	},
	{
		"avx512 loads", simd.AVX512,
		decoding{decode16LoadsAVX512, decode32LoadsAVX512, decode64LoadsAVX512},
		encoding{encode16LoadsAVX512, encode32LoadsAVX512, encode64LoadsAVX512},
	},
}

// choice is a pair of coders' kernels.
type choice struct {
	decode *decoding
	encode *encoding
}

// forced is what tests use in place of the fastest kernels.
var forced *choice

// coding is what codes at this level: nil where no kernel does.
func coding() *choice {
	if forced != nil {
		return forced
	}
	return chosen[simd.Now()]()
}

var chosen = [...]func() *choice{
	simd.Portable: func() *choice { return nil },
	simd.AVX2:     sync.OnceValue(func() *choice { return fastest(simd.AVX2) }),
	simd.AVX512:   sync.OnceValue(func() *choice { return fastest(simd.AVX512) }),
}

// fastest tries the coders that level has, for about a millisecond.
func fastest(level simd.Level) *choice {
	var some []*coder
	for i := range coders {
		if coders[i].level <= level {
			some = append(some, &coders[i])
		}
	}
	best := choice{&some[0].decoding, &some[0].encoding}
	if len(some) == 1 {
		return &best
	}
	t := newTrial()
	var least [2]time.Duration
	for range 4 { // the first of a coder is slower, and others may disturb any
		for _, c := range some {
			if d := t.decode(&c.decoding); least[0] == 0 || d < least[0] {
				least[0], best.decode = d, &c.decoding
			}
			if d := t.encode(&c.encoding); least[1] == 0 || d < least[1] {
				least[1], best.encode = d, &c.encoding
			}
		}
	}
	return &best
}

// trial is a run to try kernels on: of 16 KiB and about 5 bits a byte.
type trial struct {
	src, dst []byte
	f        Freqs
	e        Encoder
	d        Decoder
	stream   []byte
}

func newTrial() *trial {
	t := &trial{src: make([]byte, 16<<10), dst: make([]byte, 16<<10)}
	x := uint32(1)
	for i := range t.src {
		x = x*1664525 + 1013904223
		t.src[i] = byte(x>>27) + byte(x>>21&15) + byte(x>>15&15)
	}
	var c Counts
	c.Count(t.src)
	t.f.Normalize(&c)
	t.e.Reset(len(t.src), ManyLanes)
	t.e.set = t.f.values()
	t.e.codes.init(&t.f, &t.e.set)
	t.e.stepsPortable(t.src)
	t.stream = append(t.stream, t.e.End()...)
	t.d.table.fill(&t.f)
	return t
}

// decode is how long kernels take to decode.
func (t *trial) decode(k *decoding) time.Duration {
	_ = t.d.Init(t.stream, ManyLanes) // a stream of the encoder's own
	start := time.Now()
	k[width(ManyLanes)](&t.dst[0], len(t.dst)/ManyLanes, &t.d.table[0], &t.d.x[0], &t.d.words[0],
		len(t.d.words), &t.dst[0], 0, &t.dst[0], 0)
	return time.Since(start)
}

// encode is how long kernels take to encode.
func (t *trial) encode(k *encoding) time.Duration {
	t.e.Reset(len(t.src), ManyLanes)
	start := time.Now()
	k[width(ManyLanes)](&t.e.buf[t.e.at-1], &t.src[len(t.src)-1], len(t.src)/ManyLanes,
		&t.e.codes[0], &t.e.x[0], &t.src[0], 0)
	return time.Since(start)
}
