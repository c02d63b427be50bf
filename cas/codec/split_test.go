package codec

import (
	"bytes"
	"fmt"
	"testing"

	"ckptfs/cas/codectest"
)

// slowSplit is split, written as it is defined.
func slowSplit(src []byte, w, rot int) [8][]byte {
	var p [8][]byte
	for ; len(src) > 0; src = src[w:] {
		var v uint64
		for k := w - 1; k >= 0; k-- {
			v = v<<8 | uint64(src[k])
		}
		v = v<<rot | v>>(8*w-rot)&uint64(rot)
		for k := range w {
			p[k] = append(p[k], byte(v>>(8*k)))
		}
	}
	return p
}

func shapes(f func(w, rot int)) {
	for _, w := range []int{1, 2, 4, 8} {
		for rot := range 2 {
			if w > 1 || rot == 0 {
				f(w, rot)
			}
		}
	}
}

func TestSplitAndMerge(t *testing.T) {
	shapes(func(w, rot int) {
		for n := range 200 {
			src := codectest.Random(n * w)
			want := slowSplit(src, w, rot)
			codectest.Levels(func(how string) {
				var p [8][]byte
				for k := range w {
					p[k] = make([]byte, n, n+8)
				}
				split(&p, src, w, rot)
				for k := range w {
					if !bytes.Equal(p[k], want[k]) {
						t.Fatalf("%s, width %d, rotation %d, %d elements: plane %d is % x, want % x", how, w, rot,
							n, k, p[k], want[k])
					}
				}
				dst := bytes.Repeat([]byte{0xee}, n*w+8)
				merge(dst[:n*w], &p, w, rot)
				if !bytes.Equal(dst[:n*w], src) || !bytes.Equal(dst[n*w:], bytes.Repeat([]byte{0xee}, 8)) {
					t.Fatalf("%s, width %d, rotation %d, %d elements: merged % x, want % x", how, w, rot, n, dst,
						src)
				}
			})
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	src := codectest.Random(256 << 10)
	dst := make([]byte, len(src))
	shapes(func(w, rot int) {
		var p [8][]byte
		for k := range w {
			p[k] = make([]byte, len(src)/w)
		}
		b.Run(fmt.Sprintf("split/%d-%d", w, rot), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				split(&p, src, w, rot)
			}
		})
		b.Run(fmt.Sprintf("merge/%d-%d", w, rot), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				merge(dst, &p, w, rot)
			}
		})
	})
}

// TestPortableTwins holds the portable code, which other processors run, to the kernels.
func TestPortableTwins(t *testing.T) {
	for n := range 200 {
		for rot := range 2 {
			for _, w := range []int{2, 4} {
				src := codectest.Random(n * w)
				var p, q [8][]byte
				for k := range w {
					p[k], q[k] = make([]byte, n), make([]byte, n)
				}
				split(&p, src, w, rot)
				dst := make([]byte, n*w)
				if w == 2 {
					split2Portable(q[0], q[1], src, rot)
					merge2Portable(dst, q[0], q[1], rot)
				} else {
					split4Portable(q[0], q[1], q[2], q[3], src, rot)
					merge4Portable(dst, q[0], q[1], q[2], q[3], rot)
				}
				for k := range w {
					if !bytes.Equal(p[k], q[k]) {
						t.Fatalf("width %d, rotation %d, %d elements: plane %d is % x, the twin's % x", w, rot, n, k, p[k], q[k])
					}
				}
				if !bytes.Equal(dst, src) {
					t.Fatalf("width %d, rotation %d, %d elements: the twin merges % x, want % x", w, rot, n, dst, src)
				}
			}
		}
	}
}

// TestVerify: what is verified by kernels or their twins is right to the last bit, wherever that is.
func TestVerify(t *testing.T) {
	s := new(planeState)
	for _, n := range []int{1, 63, 64, 100, 300} {
		shapes(func(w, rot int) {
			src, base := codectest.Random(n*w), codectest.Random(n*w)
			for _, j := range []joiner{merger{w, rot}, undiffer{base, w, true}, undiffer{base, w, false}} {
				if u, ok := j.(undiffer); ok {
					splitDiff(s.planes(n, w), s.diffs[:], src, base, w, u.floats)
				} else {
					split(s.planes(n, w), src, w, rot)
				}
				codectest.Levels(func(how string) {
					if err := s.put(output{p: src, verify: true}, 0, n*w, w, j); err != nil {
						t.Fatalf("%s, %T, width %d, %d elements: %v", how, j, w, n, err)
					}
					if a := testing.AllocsPerRun(5, func() {
						_ = s.put(output{p: src, verify: true}, 0, n*w, w, j)
					}); a > 0 {
						t.Fatalf("%s, %T, width %d, %d elements: %v allocations", how, j, w, n, a)
					}
					for bit := 0; bit < 8*n*w; bit += 9 {
						src[bit/8] ^= 1 << (bit % 8)
						if s.put(output{p: src, verify: true}, 0, n*w, w, j) == nil {
							t.Fatalf("%s, %T, width %d, %d elements: bit %d is another", how, j, w, n, bit)
						}
						src[bit/8] ^= 1 << (bit % 8)
					}
				})
			}
		})
	}
}
