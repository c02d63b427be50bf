package blake3

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/zeebo/blake3"
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
		if got, want := Sum(p[off:off+n]), blake3.Sum256(p[off:off+n]); got != want {
			t.Errorf("%d bytes at %d: %x, want %x", n, off, got, want)
		}
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
	p := random(16<<10, 2)
	seen := map[[32]byte]bool{Sum(p): true}
	for i := range p {
		p[i] ^= 1 << (i % 8)
		sum := Sum(p)
		if seen[sum] {
			t.Fatalf("byte %d does not count", i)
		}
		if i%61 == 0 && sum != blake3.Sum256(p) {
			t.Fatalf("byte %d", i)
		}
		seen[sum] = true
		p[i] ^= 1 << (i % 8)
	}
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
		if Sum(p) != blake3.Sum256(p) {
			t.Fatalf("%d bytes", n)
		}
	})
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{16 << 10, 64 << 10, 256 << 10} {
		p := random(n, 3)
		for name, sum := range map[string]func([]byte) [32]byte{"ours": Sum, "library": blake3.Sum256} {
			b.Run(fmt.Sprintf("%dK/%s", n>>10, name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					sum(p)
				}
			})
		}
	}
}
