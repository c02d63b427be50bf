package blake3

import (
	"sync"

	"ckptfs/cas/simd"
)

const (
	chunk   = 1 << 10 // bytes of BLAKE3's chunks
	block   = 64
	width   = 16        // lanes of the kernel
	maxWide = 256 << 10 // a full chunk of the grid
	minWide = 16 << 10  // of an input by itself; of shorter ones several have to fill the lanes

	chunkStart = 1 << 0
	chunkEnd   = 1 << 1
	parent     = 1 << 2
	root       = 1 << 3
)

// compress16 runs the kernel of the level, which asks for more than the one in AVX-512 needs: the processors
// that came before it clock down when they see such instructions.
func compress16(out *[width]value, in *lanes, blocks, base, start uint64) {
	if simd.Has(simd.AVX512) {
		compress16AVX512(out, &in.src, blocks, base, start)
	} else {
		compress16AVX2(out, &in.src, blocks, base, start)
	}
}

// lanes are the inputs of the kernel, which knows where each field is.
type lanes struct {
	src     [width]*byte
	counter [width]uint32
	length  [width]uint32 // of the last block
	blocks  [width]uint32
	end     [width]uint32 // flags of the last block
}

type value = [32]byte

// hasher hashes inputs of at most maxWide bytes together.
type hasher struct {
	in     lanes
	to     [width]*value // where what a lane comes to belongs
	n      int           // lanes in use
	most   uint64        // blocks of the longest
	out    [width]value
	values [maxWide / chunk]value // of the chunks, then of each level of the trees
	tails  [width][chunk]byte     // of chunks that are not full
	trees  []tree
	sums   [maxWide / chunk]value // of the inputs
	one    [1][]byte
}

// tree is an input that has more than one value left.
type tree struct{ first, n, input int }

var hashers = sync.Pool{New: func() any { return new(hasher) }}

// sumWide sets sum to p's hash, if p has a length that it is for.
func sumWide(sum *value, p []byte) bool {
	if !simd.Has(simd.AVX2) || len(p) < minWide || len(p) > maxWide {
		return false
	}
	h := hashers.Get().(*hasher)
	h.one[0] = p
	h.sum(h.one[:])
	*sum = h.sums[0]
	h.free()
	return true
}

// sumWideAll sets sums to the hashes of inputs, if it is for their lengths.
func sumWideAll[H ~[32]byte](sums []H, inputs [][]byte) bool {
	if !simd.Has(simd.AVX2) || len(inputs) < 2 {
		return false
	}
	h := hashers.Get().(*hasher)
	defer h.free()
	for len(inputs) > 0 {
		n, values := 0, 0
		for n < len(inputs) && len(inputs[n]) <= maxWide {
			k := chunks(inputs[n])
			if values+k > len(h.values) {
				break
			}
			n, values = n+1, values+k
		}
		if n == 0 {
			sums[0] = Sum(inputs[0])
			n = 1
		} else {
			h.sum(inputs[:n])
			for i := range n {
				sums[i] = H(h.sums[i])
			}
		}
		inputs, sums = inputs[n:], sums[n:]
	}
	return true
}

// chunks is how many of BLAKE3's chunks p has.
func chunks(p []byte) int { return max(1, (len(p)+chunk-1)/chunk) }

func (h *hasher) free() {
	clear(h.in.src[:])
	h.one[0] = nil
	hashers.Put(h)
}

// sum sets h.sums to the hashes of inputs, all of whose chunks have room in h.values.
func (h *hasher) sum(inputs [][]byte) {
	h.trees = h.trees[:0]
	next := 0
	for i, p := range inputs {
		k := chunks(p)
		if k > 1 {
			h.trees = append(h.trees, tree{next, k, i})
		}
		c := 0
		for ; h.n == 0 && len(p)-c*chunk >= width*chunk; c += width {
			for i := range width {
				h.in.src[i], h.in.counter[i] = &p[(c+i)*chunk], uint32(c+i)
			}
			h.alike((*[width]value)(h.values[next:]), chunk/block, 0, chunkStart, chunkEnd)
			next += width
		}
		for ; c < k; c++ {
			to, end := &h.values[next], uint32(chunkEnd)
			if next++; k == 1 {
				to, end = &h.sums[i], chunkEnd|root
			}
			if h.chunk(p[c*chunk:min(len(p), (c+1)*chunk)], uint32(c), end, to); h.n == width {
				h.flush(0, chunkStart)
			}
		}
	}
	h.flush(0, chunkStart)
	// The levels of all trees at once: pairs side by side are a block; what is left over goes up as it is.
	for len(h.trees) > 0 {
		for _, t := range h.trees {
			k := 0
			for ; h.n == 0 && t.n/2-k >= width; k += width {
				for i := range width {
					h.in.src[i], h.in.counter[i] = &h.values[t.first+2*(k+i)][0], 0
				}
				h.alike((*[width]value)(h.values[t.first+k:]), 1, parent, 0, 0)
			}
			for ; k < t.n/2; k++ {
				to, end := &h.values[t.first+k], uint32(0)
				if t.n == 2 {
					to, end = &h.sums[t.input], root
				}
				h.add(&h.values[t.first+2*k][0], 0, 1, block, end, to)
				if h.n == width {
					h.flush(parent, 0)
				}
			}
		}
		h.flush(parent, 0)
		left := h.trees[:0]
		for _, t := range h.trees {
			if t.n%2 == 1 {
				h.values[t.first+t.n/2] = h.values[t.first+t.n-1]
			}
			if t.n = (t.n + 1) / 2; t.n > 1 {
				left = append(left, t)
			}
		}
		h.trees = left
	}
}

// alike compresses sixteen inputs that all have so many full blocks.
func (h *hasher) alike(out *[width]value, blocks uint32, base, start uint64, end uint32) {
	for i := range width {
		h.in.blocks[i], h.in.length[i], h.in.end[i] = blocks, block, end
	}
	compress16(out, &h.in, uint64(blocks), base, start)
}

// chunk puts one of BLAKE3's chunks into a lane.
func (h *hasher) chunk(p []byte, counter, end uint32, to *value) {
	src := &h.tails[h.n][0]
	if len(p) == chunk {
		src = &p[0]
	} else {
		tail := &h.tails[h.n]
		clear(tail[copy(tail[:], p):])
	}
	blocks := max(1, (len(p)+block-1)/block)
	h.add(src, counter, blocks, len(p)-(blocks-1)*block, end, to)
}

// add puts an input of so many blocks, the last of length bytes, into the next lane.
func (h *hasher) add(src *byte, counter uint32, blocks, length int, end uint32, to *value) {
	i := h.n
	h.in.src[i], h.in.counter[i], h.in.blocks[i] = src, counter, uint32(blocks)
	h.in.length[i], h.in.end[i], h.to[i] = uint32(length), end, to
	h.most = max(h.most, uint64(blocks))
	h.n++
}

// flush compresses the lanes in use.
func (h *hasher) flush(base, start uint64) {
	if h.n == 0 {
		return
	}
	for i := h.n; i < width; i++ { // their results are not used
		h.in.src[i], h.in.blocks[i] = h.in.src[0], 0
	}
	compress16(&h.out, &h.in, h.most, base, start)
	for i := range h.n {
		*h.to[i] = h.out[i]
	}
	h.n, h.most = 0, 0
}
