package plans

import (
	"io"
	"slices"
	"sync"
)

// maxFactors bounds the matrices of one tensor, in bytes.
const maxFactors = 48 << 20

// Factors keeps the matrices of the products that plans computed last. It is shared by plans, so that all of
// them together take no more than its bound, or the matrices of one tensor.
type Factors struct {
	most int64

	loading sync.Mutex // one reads matrices at a time; mu comes after it

	mu    sync.Mutex
	last  []loaded // the latest last
	bytes int64
}

type loaded struct {
	m *merge
	f *factors
}

// NewFactors returns one that keeps so many bytes.
func NewFactors(most int64) *Factors { return &Factors{most: most} }

// get is the matrices of m. They are of the bytes that the source has now: who reads them says afterwards
// whether these were right.
func (c *Factors) get(src io.ReaderAt, m *merge) (*factors, error) {
	if f := c.find(m); f != nil {
		return f, nil
	}
	c.loading.Lock()
	defer c.loading.Unlock()
	if f := c.find(m); f != nil {
		return f, nil
	}
	f, err := m.load(src)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, loaded{m, f})
	c.bytes += m.bytes()
	for c.bytes > c.most && len(c.last) > 1 {
		c.bytes -= c.last[0].m.bytes()
		c.last = slices.Delete(c.last, 0, 1)
	}
	return f, nil
}

func (c *Factors) find(m *merge) *factors {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.last, func(x loaded) bool { return x.m == m })
	if i < 0 {
		return nil
	}
	x := c.last[i]
	c.last = append(slices.Delete(c.last, i, i+1), x)
	return x.f
}

// drop drops what is kept of these.
func (c *Factors) drop(all []*merge) {
	mine := map[*merge]bool{}
	for _, m := range all {
		mine[m] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = slices.DeleteFunc(c.last, func(x loaded) bool {
		if mine[x.m] {
			c.bytes -= x.m.bytes()
		}
		return mine[x.m]
	})
}
