package blake3

import (
	"testing"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"ckptfs/cas/codectest"
)

// Nothing beside the input is read: it lies between pages that cannot be.
func TestSumAtAnEdge(t *testing.T) {
	const n = 256 << 10
	page := unix.Getpagesize()
	room, err := unix.Mmap(-1, 0, n+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(room)
	p := room[page : page+n]
	copy(p, random(n, 4))
	for _, guard := range [][]byte{room[:page], room[page+n:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	codectest.Levels(func(how string) {
		for size := 16 << 10; size <= n; size *= 2 {
			for _, q := range [][]byte{p[:size], p[n-size:]} {
				if Sum(q) != blake3.Sum256(q) {
					t.Errorf("%s: %d bytes", how, size)
				}
			}
		}
		for size := 1; size < 20_000; size += 61 {
			inputs, sums := [][]byte{p[:size], p[n-size:]}, make([][32]byte, 2)
			SumAll(sums, inputs)
			for i, q := range inputs {
				if want := blake3.Sum256(q); sums[i] != want || Sum(q) != want {
					t.Errorf("%s: %d bytes", how, size)
				}
			}
		}
	})
}
