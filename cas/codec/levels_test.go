package codec

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	"ckptfs/cas/codectest"
)

// numbersLike are n elements of w bytes such as a layer has, and the same a step later, made without
// floating-point arithmetic: alike on every machine.
func numbersLike(n, w int) (now, before []byte) {
	x := uint32(1)
	next := func() uint32 {
		x = x*1664525 + 1013904223
		return x >> 8
	}
	for range n {
		exponent := uint32(120)
		for next()&1 != 0 && exponent > 100 {
			exponent--
		}
		v := next()<<31 | exponent<<23 | next()&0x7fffff
		if w == 2 {
			v >>= 16
		}
		moved := v + next()%5 - 2
		for k := range w {
			before, now = append(before, byte(v>>(8*k))), append(now, byte(moved>>(8*k)))
		}
	}
	return now, before
}

// TestLevelsReadEachOther: what a level writes every other one reads, and all write the same, also those of
// other processors: the sum is theirs.
func TestLevelsReadEachOther(t *testing.T) {
	sum := sha256.New()
	for _, h := range []Hint{{"F32", 4}, {"BF16", 2}} {
		for _, size := range []int{1000, 5000, 20_000, 70_000, 256 << 10} { // few states to many
			now, before := numbersLike(size/h.Elem, h.Elem)
			var alone, deltas [][]byte
			codectest.Levels(func(how string) {
				id, out := Encode(nil, now, h)
				alone = append(alone, append(out, id))
				delta, ok := EncodeDelta(nil, now, before, h, 2*size)
				deltas = append(deltas, append(delta, fmt.Sprint(ok)...))
				if !ok {
					t.Fatal(how, "no delta")
				}
			})
			if !codectest.Same(alone) || !codectest.Same(deltas) {
				t.Fatalf("%v, %d bytes: the levels write differently", h, size)
			}
			sum.Write(alone[0])
			sum.Write(deltas[0])
			codectest.Levels(func(how string) {
				for i := range alone {
					p := alone[i]
					got, err := Decode(nil, p[len(p)-1], p[:len(p)-1], len(now))
					if err != nil || !bytes.Equal(got, now) {
						t.Fatalf("%s, %v, %d bytes: %v", how, h, size, err)
					}
					d := deltas[i]
					got, err = DecodeAgainst(nil, Delta, d[:len(d)-len("true")], before, len(now))
					if err != nil || !bytes.Equal(got, now) {
						t.Fatalf("%s, a delta of %v, %d bytes: %v", how, h, size, err)
					}
				}
			})
		}
	}
	const want = "ebcceca0005b6441e3ad5bfc70d6030e8f63b3b13026d291aa910f25aa74c055"
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != want {
		t.Errorf("what is stored changed: %s, want %s", got, want)
	}
}
