package blake3

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/zeebo/blake3"

	"ckptfs/cas/codectest"
)

func random(n int, seed byte) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

// The sum is the library's, of any length, and wherever the bytes lie.
func TestSum(t *testing.T) {
	p := random(3<<20, 1)
	check := func(off, n int) {
		t.Helper()
		want := blake3.Sum256(p[off : off+n])
		codectest.Levels(func(how string) {
			if got := Sum(p[off : off+n]); got != want {
				t.Errorf("%s, %d bytes at %d: %x, want %x", how, n, off, got, want)
			}
		})
	}
	for n := 1; n <= 2<<20; n *= 2 {
		for _, d := range []int{-1, 0, 1, 1024} {
			for _, off := range []int{0, 1, 8, 63} {
				check(off, n+d)
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		check(rng.IntN(1<<16), rng.IntN(400_000))
		check(rng.IntN(1<<16), 16<<10<<rng.IntN(7))
	}
	check(0, 0)
}

// Many inputs have the sums that each has by itself, whatever their lengths.
func TestSumAll(t *testing.T) {
	p := random(3<<20, 5)
	rng := rand.New(rand.NewPCG(3, 4))
	check := func(lengths ...int) {
		t.Helper()
		inputs, sums, off := make([][]byte, len(lengths)), make([][32]byte, len(lengths)), 0
		for i, n := range lengths {
			inputs[i] = p[off : off+n]
			off += n
		}
		codectest.Levels(func(how string) {
			SumAll(sums, inputs)
			for i, q := range inputs {
				if want := blake3.Sum256(q); sums[i] != want {
					t.Fatalf("%s, input %d of lengths %v: %x, want %x", how, i, lengths, sums[i], want)
				}
			}
			clear(sums)
		})
	}
	check()
	check(0)
	check(0, 0, 1)
	check(1, 63, 64, 65, 1023, 1024, 1025, 2048, 3072, 3073, 5000, 0, 7*1024, 16<<10, 17<<10+5, 300_000,
		4096, 600_000, 2)
	for n := range 70 {
		check(n, 1024*n, 1024*n+n)
	}
	for range 200 {
		lengths := make([]int, rng.IntN(300))
		for i := range lengths {
			lengths[i] = rng.IntN(9000)
		}
		check(lengths...)
	}
}

// A stream, in whatever pieces it comes, has the sum of its bytes.
func TestSumReader(t *testing.T) {
	p := random(1<<20, 3)
	for _, n := range []int{0, 1, 16 << 10, 64<<10 - 1, 64 << 10, len(p)} {
		got, read, err := SumReader(iotest.HalfReader(bytes.NewReader(p[:n])))
		if err != nil || read != int64(n) || got != Sum(p[:n]) {
			t.Errorf("%d bytes: %x of %d, %v", n, got, read, err)
		}
	}
}

// Each bit of a full chunk counts.
func TestSumOfEveryBit(t *testing.T) {
	codectest.Levels(func(how string) { testSumOfEveryBit(t, how) })
}

func testSumOfEveryBit(t *testing.T, how string) {
	p := random(16<<10, 2)
	seen := map[[32]byte]bool{Sum(p): true}
	for i := range p {
		p[i] ^= 1 << (i % 8)
		sum := Sum(p)
		if seen[sum] {
			t.Fatalf("%s: byte %d does not count", how, i)
		}
		if i%61 == 0 && sum != blake3.Sum256(p) {
			t.Fatalf("%s: byte %d", how, i)
		}
		seen[sum] = true
		p[i] ^= 1 << (i % 8)
	}
}

func FuzzSumAll(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, uint16(4096))
	f.Fuzz(func(t *testing.T, lengths []byte, scale uint16) {
		p := random(255*1<<10+1<<16, 1)
		var inputs [][]byte
		for i, n := range lengths[:min(len(lengths), 64)] {
			inputs = append(inputs, p[i:][:int(n)*(int(scale)%1025)+int(scale)%64])
		}
		sums := make([][32]byte, len(inputs))
		codectest.Levels(func(how string) {
			SumAll(sums, inputs)
			for i, q := range inputs {
				if sums[i] != blake3.Sum256(q) {
					t.Fatalf("%s: input %d of %d bytes", how, i, len(q))
				}
			}
			clear(sums)
		})
	})
}

func FuzzSum(f *testing.F) {
	f.Add(uint8(0), uint8(0), []byte("abc"))
	f.Add(uint8(4), uint8(3), []byte{})
	f.Fuzz(func(t *testing.T, size, off uint8, with []byte) {
		n := 16 << 10 << (size % 7)
		p := random(int(off)+n, size)[off:]
		for i, b := range with {
			p[(i*7919)%n] ^= b
		}
		codectest.Levels(func(how string) {
			if Sum(p) != blake3.Sum256(p) {
				t.Fatalf("%s: %d bytes", how, n)
			}
		})
	})
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{4 << 10, 16 << 10, 24 << 10, 50_000, 64 << 10, 100_000, 256 << 10} {
		p := random(n, 3)
		for name, sum := range map[string]func([]byte) [32]byte{"ours": Sum, "library": blake3.Sum256} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					sum(p)
				}
			})
		}
	}
}

// Chunks of a document that is cut finely.
func BenchmarkSumAll(b *testing.B) {
	const n = 512 << 10
	p := random(n, 3)
	rng := rand.New(rand.NewPCG(1, 1))
	var inputs [][]byte
	for off := 0; off < n; {
		k := min(1<<10+rng.IntN(8<<10), n-off)
		inputs = append(inputs, p[off:off+k])
		off += k
	}
	sums := make([][32]byte, len(inputs))
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			SumAll(sums, inputs)
		}
	})
	b.Run("library", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			for i, q := range inputs {
				sums[i] = blake3.Sum256(q)
			}
		}
	})
}
