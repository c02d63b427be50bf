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

// FuzzLevels: all levels write numbers alike, alone and as differences, and read what they wrote. The bytes
// of change make the numbers of a step what they are, again and again, at each of so many elements.
func FuzzLevels(f *testing.F) {
	f.Add([]byte{1, 0, 2}, uint32(70_000), byte(0), byte(1))
	f.Add([]byte{0, 0x80}, uint32(20_000), byte(1), byte(3))
	f.Add([]byte{0xff, 3, 0, 0, 0, 0, 0, 7}, uint32(30_000), byte(2), byte(0))
	hints := []Hint{{"F32", 4}, {"BF16", 2}, {"F64", 8}, {"I32", 4}, {"I16", 2}, {"U8", 1}}
	const most = 300_000
	weights := map[int][]byte{}
	for _, w := range []int{1, 2, 4} {
		weights[w] = codectest.Weights(most, w)
	}
	f.Fuzz(func(t *testing.T, change []byte, n uint32, hint, every byte) {
		h := hints[int(hint)%len(hints)]
		before := weights[min(h.Elem, 4)][:n%most]
		if len(before) < minLen || len(change) == 0 {
			return
		}
		now := bytes.Clone(before)
		for i := 0; i < len(now); i++ {
			if i/h.Elem%(int(every)+1) == 0 {
				now[i] += change[i%len(change)]
			}
		}
		for _, raw := range [][]byte{now, bytes.Repeat(change, len(now)/len(change)+1)[:len(now)]} {
			checkLevels(t, raw, before, h)
		}
	})
}

// checkLevels encodes raw, alone and against base, and decodes it.
func checkLevels(t *testing.T, raw, base []byte, h Hint) {
	t.Helper()
	var alone, deltas [][]byte
	codectest.Levels(func(how string) {
		id, out := Encode(nil, raw, h)
		alone = append(alone, append(out, id))
		delta, ok := EncodeDelta(nil, raw, base, h, 2*len(raw)+100)
		if deltas = append(deltas, delta); !ok {
			t.Fatal(how, "no delta")
		}
	})
	if !codectest.Same(alone) || !codectest.Same(deltas) {
		t.Fatal("the levels write differently")
	}
	codectest.Levels(func(how string) {
		p := alone[0]
		got, err := Decode(nil, p[len(p)-1], p[:len(p)-1], len(raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%s: %v", how, err)
		}
		if got, err = DecodeDelta(nil, deltas[0], base, len(raw)); err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%s, a delta: %v", how, err)
		}
	})
}
