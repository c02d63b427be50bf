package expected

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"ckptfs/cas"
)

// of is some content, and its hash.
func of(i int) (cas.Hash, []byte) {
	p := bytes.Repeat([]byte{byte(i), byte(i >> 8), 3}, 100+i%7)
	return cas.Sum(p), p
}

// Contents has what was decoded last, as many bytes as it may, and decodes what it has not.
func TestContents(t *testing.T) {
	var c Contents
	_, first := of(0)
	c.Init(int64(3 * len(first)))
	decoded := map[cas.Hash]int{}
	get := func(i int) {
		t.Helper()
		h, want := of(i)
		held := c.Held()
		out, err := held.Get(h, len(want), func(buf []byte) ([]byte, bool, error) {
			decoded[h]++
			return append(buf, want...), true, nil
		})
		if err != nil || !bytes.Equal(out, want) {
			t.Fatalf("%d: %d bytes, %v", i, len(out), err)
		}
		held.Release()
	}
	for range 3 {
		get(0)
		get(7)
	}
	for i := 14; i < 7*20; i += 7 { // all as long
		get(i)
		if c.bytes > c.max {
			t.Errorf("%d bytes stay", c.bytes)
		}
	}
	get(0)
	h, _ := of(0)
	other, _ := of(7)
	if decoded[h] != 2 || decoded[other] != 1 {
		t.Errorf("decoded %d and %d times", decoded[h], decoded[other])
	}
}

// What could not be decoded, or not be held against what it should be, does not stay.
func TestContentsNotSure(t *testing.T) {
	var c Contents
	c.Init(1 << 20)
	h, want := of(1)
	bad := errors.New("bad")
	for _, said := range []error{bad, nil} {
		held := c.Held()
		out, err := held.Get(h, len(want), func(buf []byte) ([]byte, bool, error) {
			return append(buf, want...), false, said
		})
		if err != said || said == nil && !bytes.Equal(out, want) {
			t.Errorf("%d bytes, %v", len(out), err)
		}
		held.Release()
		if c.all.Len() > 0 || c.bytes > 0 {
			t.Errorf("%d stay", c.all.Len())
		}
	}
}

// Many ask for a few at once, of which fewer stay: each gets what it asked for, and what one holds is not
// given to another meanwhile.
func TestContentsShared(t *testing.T) {
	var c Contents
	_, first := of(0)
	c.Init(int64(4 * len(first)))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			held, wants := c.Held(), [][]byte{}
			var got [][]byte
			for range 2000 {
				h, want := of(r.IntN(12))
				out, err := held.Get(h, len(want), func(buf []byte) ([]byte, bool, error) {
					return append(buf, want...), r.IntN(9) > 0, nil
				})
				if got, wants = append(got, out), append(wants, want); err != nil {
					t.Error(err)
					return
				}
				if r.IntN(3) == 0 {
					for i, out := range got {
						if !bytes.Equal(out, wants[i]) {
							t.Errorf("%d bytes are others", len(out))
						}
					}
					held.Release()
					got, wants = got[:0], wants[:0]
				}
			}
			held.Release()
		})
	}
	all.Wait()
	if c.bytes > c.max || len(c.free) > maxFree {
		t.Errorf("%d bytes, %d free", c.bytes, len(c.free))
	}
}
