package blake3

import "golang.org/x/sys/cpu"

const (
	chunk   = 1 << 10 // bytes of BLAKE3's chunks
	block   = 64
	lanes   = 16
	maxWide = 256 << 10 // a full chunk of the grid; longer ones would want much of the stack

	chunkStart = 1 << 0
	chunkEnd   = 1 << 1
	parent     = 1 << 2
	root       = 1 << 3
)

// wide says that the kernel can be used and pays. It needs no more than AVX512F; VBMI is asked for since the processors that
// came before it clock down when they see such instructions.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VBMI

// sumWide sets sum to p's hash, if p has a length that it is for.
func sumWide(sum *[32]byte, p []byte) bool {
	if !wide || len(p) < lanes*chunk || len(p) > maxWide || len(p)&(len(p)-1) != 0 {
		return false
	}
	var values [maxWide / chunk * 32]byte // of the chunks, then of each level of the tree
	var counters [lanes]uint32
	n := len(p) / chunk
	for i := 0; i < n; i += lanes {
		for k := range counters {
			counters[k] = uint32(i + k)
		}
		compress16(&values[i*32], &p[i*chunk], chunk, chunk/block, &counters, 0, chunkStart, chunkEnd)
	}
	counters = [lanes]uint32{}
	flags := uint64(parent)
	for n /= 2; n >= 1; n /= 2 {
		if n == 1 {
			flags |= root
		}
		// Where a level has less than sixteen pairs the other lanes compress what lies behind them.
		for i := 0; i < n; i += lanes {
			compress16(&values[i*32], &values[i*block], block, 1, &counters, flags, 0, 0)
		}
	}
	copy(sum[:], values[:])
	return true
}
