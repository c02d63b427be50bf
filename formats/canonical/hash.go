package canonical

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"ckptfs/formats"
)

// Hash is a SHA-256, of an index or the root of a stream.
type Hash [sha256.Size]byte

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// multihash is the code of SHA-256 and the hash's length.
const multihash = "\x12\x20"

// String is the hash as a multihash in multibase.
func (h Hash) String() string {
	return "b" + base32Lower.EncodeToString(append([]byte(multihash), h[:]...))
}

func parseHash(s string) (h Hash, ok bool) {
	if len(s) != 56 || s[0] != 'b' {
		return h, false
	}
	p, err := base32Lower.DecodeString(s[1:])
	if err != nil || len(p) != len(multihash)+len(h) || string(p[:len(multihash)]) != multihash {
		return h, false
	}
	copy(h[:], p[len(multihash):])
	return h, h.String() == s // the last character has bits to spare
}

// ID is an artifact's identity.
type ID struct{ Index, Data Hash }

const prefix = "mi2:"

func (id ID) String() string { return prefix + id.Index.String() + ":" + id.Data.String() }

// ParseID reads what ID.String wrote and nothing else.
func ParseID(s string) (ID, error) {
	rest, ok := strings.CutPrefix(s, prefix)
	index, data, both := strings.Cut(rest, ":")
	var id ID
	var ok1, ok2 bool
	id.Index, ok1 = parseHash(index)
	id.Data, ok2 = parseHash(data)
	if !ok || !both || !ok1 || !ok2 {
		return ID{}, fmt.Errorf("%.130q is no artifact id", s)
	}
	return id, nil
}

// Hash is the index hash.
func (x *Index) Hash() Hash { return sha256.Sum256(x.Append(nil)) }

const (
	maxLeaf   = 4 << 20
	minLeaf   = 512 << 10
	manyLeafs = 4096
)

// leafSize is how long the leaves of a stream of n bytes are.
func leafSize(n int64) int64 {
	size := int64(maxLeaf)
	for size > minLeaf && (n+size-1)/size < manyLeafs {
		size /= 2
	}
	return size
}

// root folds the leaves' hashes, which it overwrites.
func root(level []Hash) Hash {
	if len(level) == 0 {
		return sha256.Sum256(nil)
	}
	for len(level) > 1 {
		n := 0
		for i := 0; i < len(level); i += 2 {
			if i+1 == len(level) {
				level[n] = level[i]
			} else {
				level[n] = sha256.Sum256(append(level[i][:len(level[i]):len(level[i])], level[i+1][:]...))
			}
			n++
		}
		level = level[:n]
	}
	return level[0]
}

// Stream is the byte stream of an index, read from the file that has the tensors. It is safe for concurrent
// use.
type Stream struct {
	r     io.ReaderAt
	spans []Span
	src   []int64 // of each span, in the file
	size  int64
}

var _ io.ReaderAt = (*Stream)(nil)

// NewStream returns the stream of x over r, a file whose regions are those that x was built of.
func NewStream(x *Index, r io.ReaderAt, regions []formats.Region) (*Stream, error) {
	spans, err := x.Map()
	if err != nil {
		return nil, err
	}
	s := &Stream{r: r, spans: spans, src: make([]int64, len(spans))}
	for i := range spans {
		sp := &spans[i]
		s.size = sp.Off + sp.Len
		if !sp.Pad {
			s.src[i] = regions[x.Source[sp.Entry]].Off
		}
	}
	return s, nil
}

// Size is the stream's length in bytes.
func (s *Stream) Size() int64 { return s.size }

// ReadAt is io.ReaderAt's. Errors of the file's come back as they are; one that ends early is
// io.ErrUnexpectedEOF.
func (s *Stream) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	first := sort.Search(len(s.spans), func(i int) bool { return s.spans[i].Off+s.spans[i].Len > off })
	for i := first; n < len(p) && i < len(s.spans); i++ {
		sp := &s.spans[i]
		from := off + int64(n) - sp.Off
		q := p[n:min(int64(len(p)), int64(n)+sp.Len-from)]
		if sp.Pad {
			clear(q)
		} else if err := formats.ReadFull(s.r, q, s.src[i]+from); err != nil {
			return n, err
		}
		n += len(q)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// window is how much a worker reads at a time.
const window = 256 << 10

var windows = sync.Pool{New: func() any { return new([window]byte) }}

// Hash is the data hash, with workers reading leaves side by side. It takes 256 KiB a worker and 32 bytes a
// leaf.
func (s *Stream) Hash(ctx context.Context, workers int) (Hash, error) {
	leaf := leafSize(s.size)
	sums := make([]Hash, (s.size+leaf-1)/leaf)
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(max(workers, 1))
	for i := range sums {
		if inner.Err() != nil {
			break
		}
		g.Go(func() error {
			off := int64(i) * leaf
			return s.hashLeaf(inner, &sums[i], off, min(leaf, s.size-off))
		})
	}
	if err := g.Wait(); err != nil {
		return Hash{}, err
	}
	if err := ctx.Err(); err != nil {
		return Hash{}, err
	}
	return root(sums), nil
}

func (s *Stream) hashLeaf(ctx context.Context, sum *Hash, off, n int64) error {
	buf := windows.Get().(*[window]byte)
	defer windows.Put(buf)
	h := sha256.New()
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := buf[:min(n, window)]
		if _, err := s.ReadAt(p, off); err != nil {
			return err
		}
		h.Write(p)
		off, n = off+int64(len(p)), n-int64(len(p))
	}
	h.Sum(sum[:0])
	return nil
}

// Identify returns the artifact id of the file r, whose layout is l. The error is ErrNoID, wrapped, when it
// has none.
func Identify(ctx context.Context, r io.ReaderAt, l *formats.Layout, workers int) (ID, error) {
	x, err := Build(l)
	if err != nil {
		return ID{}, err
	}
	s, err := NewStream(x, r, l.Regions)
	if err != nil {
		return ID{}, err
	}
	data, err := s.Hash(ctx, workers)
	return ID{x.Hash(), data}, err
}
